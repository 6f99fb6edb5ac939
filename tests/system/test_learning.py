"""A task must be learned, through text files, the real training, and the model folder it leaves."""

import random

import pytest

from samples import write_pairs
from undivided import Translator
from undivided.core.console import Console
from undivided.training.loop import train

TASKS = {"copy": lambda line: line, "reverse": lambda line: line[::-1]}


def letter_lines(count: int) -> list[str]:
    """Different lines of three to eight letters with spaces between, so that each letter is a token."""
    chance, lines = random.Random(1), set()
    while len(lines) < count:
        lines.add(" ".join(chance.choice("abcdefghij") for _ in range(chance.randint(3, 8))))
    return chance.sample(sorted(lines), count)


@pytest.mark.parametrize(("task", "norm", "steps"), [("copy", "post", 600), ("reverse", "pre", 600)])
def test_learns(tmp_path, task, norm, steps):
    pairs = [(line, TASKS[task](line)) for line in letter_lines(8300)]
    seen, unseen = pairs[:8000], pairs[8000:]
    out = train(
        {
            "data": {"train": [write_pairs(tmp_path, task, seen)]},
            "tokens": {"vocab_size": 300},
            "batches": {"tokens": 1200},
            "model": {
                "d_model": 64, "d_ff": 128, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0, "norm": norm,
            },
            "train": {
                "out": str(tmp_path / "model"), "max_steps": steps, "schedule": "cosine", "rate": 0.004 if norm == "pre" else 0.003,
                "warmup_steps": 100, "threads": 1, "save_every": 100, "average": 1,
            },
        },
        Console(quiet=True),
    )  # fmt: skip
    translator = Translator(out, threads=1)
    for beam_size in (1, 4):
        outputs = translator.translate([source for source, _ in unseen], beam_size=beam_size)
        right = sum(output == target for output, (_, target) in zip(outputs, unseen))
        assert right / len(unseen) >= 0.99, beam_size
