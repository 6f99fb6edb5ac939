"""What is attacked: small real models of every kind, a training with checkpoints, texts, and the right results for all of them."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 24
"""Of the training that is disturbed."""
SAVE_EVERY = 4
HALF = 12
"""The step from which disturbed trainings resume."""

SUBJECTS = {"the dog": "der Hund", "a cat": "eine Katze", "my bird": "mein Vogel", "the old horse": "das alte Pferd"}
VERBS = {"sees": "sieht", "likes": "mag", "hears": "hört", "finds": "findet"}
OBJECTS = {"the house": "das Haus", "a tree": "einen Baum", "your garden": "deinen Garten", "the river": "den Fluss"}
TIMES = {"today": "heute", "at night": "nachts", "again": "wieder", "in the rain": "im Regen"}
PARTS = (SUBJECTS, VERBS, OBJECTS, TIMES)


def make_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Sentences of a made-up language pair."""
    chance = random.Random(seed)
    picks = [[chance.choice(list(part)) for part in PARTS] for _ in range(count)]
    return [
        (" ".join(pick).capitalize() + ".", " ".join(part[word] for part, word in zip(PARTS, pick, strict=True)) + ".")
        for pick in picks
    ]


def odd_line(chance: random.Random, words: int = 12) -> str:
    """A line that nobody wrote: words of the language, of none, digits, signs, other scripts."""
    pool = [word for part in PARTS for word in part]
    odd = ["ß", "→", "123.45", "http://a.b/c?d=e", "漢字", "🙂🙂", "é́", "<b>", "&amp;", "%s", "{0}", "\u200d", "A" * 30, "...", "—"]
    return " ".join(chance.choice(pool if chance.random() < 0.7 else odd) for _ in range(chance.randint(1, words)))


@dataclass
class World:
    """The folder of everything, and what is right."""

    home: Path
    right: dict[str, Any] = field(default_factory=dict)
    """Digests and translations of undisturbed runs."""

    def model(self, kind: str) -> Path:
        return self.home / kind

    @property
    def kinds(self) -> list[str]:
        return ["transformer", "learned", "recurrent", "convolutional", "gpt", "bert", "vision", "drawing"]

    @property
    def pairs(self) -> list[str]:
        return [str(self.home / "train.src"), str(self.home / "train.tgt")]

    @property
    def text(self) -> Path:
        return self.home / "text"

    @property
    def recipe(self) -> Path:
        """Of the training that is disturbed."""
        return self.home / "run.json"

    def copy(self, kind: str, place: Path) -> Path:
        return shutil.copytree(self.model(kind), place, symlinks=True)

    def command(self, kind: str, folder: Path) -> list[str | Path]:
        """A command that uses a model of this kind, with one thread."""
        common: list[str | Path] = ["--threads", "1"]
        match kind:
            case "gpt":
                return ["generate", folder, "The dog", "a cat", *common]
            case "bert":
                return ["classify", folder, self.text, *common]
            case "vision":
                return ["classify", folder, self.home / "images.idx", *common]
            case "drawing":
                return ["generate", folder, "zero", "-o", folder.parent / "drawn.png", *common]
            case _:
                return ["translate", folder, self.text, "--engine", "torch", *common]


def seq2seq(out: Path, pairs: list[str], **model: Any) -> dict[str, Any]:
    heads = {} if model.get("kind") in ("recurrent", "convolutional") else {"d_ff": 64, "n_heads": 2}
    return {
        "data": {"train": [pairs], "source_lang": "en", "target_lang": "de", "hold_out": 0},
        "tokens": {"vocab_size": 320},
        "batches": {"tokens": 800},
        "model": {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.1} | heads | model,
        "train": {
            "out": str(out), "max_steps": 150, "schedule": "cosine", "warmup_steps": 10, "rate": 0.01, "threads": 1,
            "save_every": 150, "average": 1, "log_every": 50, "device": "cpu",
        },
    }  # fmt: skip


def single_stack(out: Path, train: list[str], **model: Any) -> dict[str, Any]:
    values = seq2seq(out, train, **model)
    values["data"] = {"train": [train]} | ({"max_length": 24} if model["kind"] != "vision" else {})
    values["model"].pop("encoder_layers" if model["kind"] in ("decoder_only", "drawing") else "decoder_layers")
    values["train"] |= {"max_steps": 30, "save_every": 30}
    return values


def disturbed(out: Path, pairs: list[str]) -> dict[str, Any]:
    """The training that is disturbed: everything random is on."""
    values = seq2seq(out, pairs)
    values["tokens"] |= {"dropout": 0.1}
    values["batches"] = {"tokens": 300}
    values["model"] |= {"d_model": 16, "d_ff": 32}
    values["train"] |= {
        "max_steps": STEPS,
        "save_every": SAVE_EVERY,
        "keep_last": 20,
        "average": 2,
        "log_every": 1,
        "ema": 0.9,
        "precision": "float32",
    }
    return values


def build_world(home: Path) -> World:
    """Make everything in a fork, so that this process has no threads when it forks trials; read what is right."""
    if (home / "right.json").exists():
        return World(home, json.loads((home / "right.json").read_text()))
    home.mkdir(parents=True)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            _build(home)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise SystemExit("the models that are to be attacked could not be made; see above")
    return World(home, json.loads((home / "right.json").read_text()))


def _build(home: Path) -> None:
    from undivided.core.console import Console
    from undivided.training.loop import train

    def make(values: dict[str, Any]) -> None:
        train(values, Console(quiet=True, stream=io.StringIO()))

    for name, pairs in (("train", make_pairs(200, 1)), ("few", make_pairs(40, 2))):
        for side, suffix in enumerate(("src", "tgt")):
            (home / f"{name}.{suffix}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    chance = random.Random(3)
    (home / "text").write_text("".join(f"{odd_line(chance)}\n" for _ in range(20)), encoding="utf-8")
    pairs = [str(home / "train.src"), str(home / "train.tgt")]
    make(seq2seq(home / "transformer", pairs))
    make(
        seq2seq(home / "learned", pairs, positions="learned", max_positions=40)
        | {"data": {"train": [pairs], "max_length": 30, "hold_out": 0}}
    )
    make(seq2seq(home / "recurrent", pairs, kind="recurrent"))
    make(seq2seq(home / "convolutional", pairs, kind="convolutional"))
    _build_single_stacks(home, make)
    values = disturbed(home / "run", [str(home / "few.src"), str(home / "few.tgt")])
    (home / "run.json").write_text(json.dumps(values))
    make(values)
    _halve(home)
    (home / "right.json").write_text(json.dumps(_find_right(home)))


def _build_single_stacks(home: Path, make: Any) -> None:
    from undivided.data.images import write_idx

    chance = np.random.default_rng(4)
    write_idx(home / "images.idx", chance.integers(0, 255, (30, 8, 8)).astype(np.uint8))
    (home / "labels").write_text("".join(f"{('zero', 'one', 'two')[number % 3]}\n" for number in range(30)))
    (home / "classes").write_text("".join(f"{('up', 'down')[number % 2]}\n" for number in range(200)))
    text, images = str(home / "train.src"), [str(home / "images.idx"), str(home / "labels")]
    make(single_stack(home / "gpt", [text], kind="decoder_only"))
    make(single_stack(home / "bert", [text, str(home / "classes")], kind="encoder_only"))
    make(single_stack(home / "vision", images, kind="vision", patch=4))
    make(single_stack(home / "drawing", images, kind="drawing", patch=4, codes=16))


def _halve(home: Path) -> None:
    """A copy of the run as it was in the middle: no model yet, checkpoints up to the half."""
    half = shutil.copytree(home / "run", home / "half")
    for path in half.iterdir():
        if path.is_file():
            path.unlink()
    for path in (half / "training" / "checkpoints").iterdir():
        if int(path.name[5:]) > HALF:
            shutil.rmtree(path)
    log = half / "training" / "log.jsonl"
    kept = [line for line in log.read_text().splitlines() if json.loads(line)["step"] <= HALF]
    log.write_text("".join(f"{line}\n" for line in kept))


ENGINES = ("torch", "int8", "ctranslate2")


def _find_right(home: Path) -> dict[str, Any]:
    """What undisturbed commands give."""
    from undivided.core.errors import InputError
    from undivided.core.files import sha256_of
    from undivided.inference.translator import Translator

    lines = (home / "text").read_text(encoding="utf-8").splitlines()
    long = [odd_line(random.Random(number)) for number in range(6000)]
    (home / "long").write_text("".join(f"{line}\n" for line in long), encoding="utf-8")
    right: dict[str, Any] = {"weights": sha256_of(home / "run" / "model.safetensors"), "engines": []}
    for engine in ENGINES:
        try:
            translator = Translator(home / "transformer", threads=1, engine=engine)
        except InputError:
            if engine != "int8":
                raise
            # A processor without the instructions has two engines to attack.
            continue
        right["engines"].append(engine)
        right[engine] = translator.translate(lines)
        right[f"long-{engine}"] = [each.text for each in translator.stream(iter(long), beam_size=1)]
    right["learned"] = Translator(home / "learned", threads=1, engine="torch").translate(lines)
    return right
