"""Make the frozen model folder that every later release must load and translate identically.

Run once for each format version: python tests/contract/make_frozen.py. Never run it to make a failing test pass.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from undivided import Translator
from undivided.artifact import FORMAT_VERSION
from undivided.training.loop import train

HOME = Path(__file__).parent / f"frozen-{FORMAT_VERSION}"
COLOURS = {"red": "rot", "blue": "blau", "green": "grün", "grey": "grau"}
THINGS = {"boat": "Boot", "house": "Haus", "book": "Buch", "door": "Tor"}
PAIRS = [
    (f"{start} {colour} {thing}.", f"{begin} {farbe}es {ding}.")
    for start, begin in (("A", "Ein"), ("My", "Mein"), ("No", "Kein"), ("Your", "Dein"))
    for colour, farbe in COLOURS.items()
    for thing, ding in THINGS.items()
]
INPUTS = ["A red boat.", "Your grey door.", "No blue house.", "", "  ", "My green", "東京 ▁ <s>", "A red boat. No blue house."]


def main() -> None:
    """Train for a moment, keep the folder without its training, and note what it translates to."""
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch) / "src", Path(scratch) / "tgt"]
        for side, path in enumerate(files):
            path.write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
        out = train(
            {
                "data": {"train": [[str(path) for path in files]], "source_lang": "en", "target_lang": "de"},
                "tokens": {"vocab_size": 300},
                "batches": {"tokens": 300},
                "model": {"d_model": 16, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0},
                "train": {
                    "out": f"{scratch}/model", "max_steps": 400, "schedule": "cosine", "rate": 0.02, "warmup_steps": 40,
                    "threads": 1, "average": 1, "save_every": 400,
                },
            }
        )  # fmt: skip
        shutil.rmtree(HOME, ignore_errors=True)
        shutil.copytree(out, HOME, ignore=shutil.ignore_patterns("training"))
    translator = Translator(HOME, device="cpu", threads=1, engine="torch")
    beam = [[result.text, result.score] for result in translator.stream(INPUTS)]
    expected = {
        "inputs": INPUTS,
        "beam": beam,
        "greedy": translator.translate(INPUTS, beam_size=1),
        "ids": translator.artifact.tokenizer.source.encode(INPUTS),
        "log_probabilities": translator.score(["A red boat."], ["Ein rotes Boot."])[0],
    }
    (HOME / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
