"""Damage a model folder and a checkpoint in 1,000 random ways; every one must be refused with the damaged part named.

    python benchmarks/damage.py [--count 1000] [--seed 1] [--report docs/damage.md]

A harm is one flipped bit or a truncation, in a part and at a place drawn from the seed. `undivided translate` is then run on
the folder, or `undivided average` on the checkpoint: it must exit with 2, name the part, and not fall over.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import NamedTuple

from undivided.cli import main as undivided
from undivided.core.console import Console
from undivided.training.checkpoint import newest, paths
from undivided.training.loop import train

ROOT = Path(__file__).resolve().parent.parent
COLOURS = {"red": "rot", "blue": "blau", "green": "grün", "grey": "grau"}
THINGS = {"boat": "Boot", "house": "Haus", "book": "Buch", "door": "Tor"}


class Harm(NamedTuple):
    """What is done to a file."""

    kind: str
    place: int
    bit: int = 0

    def apply(self, content: bytes) -> bytes:
        if self.kind == "truncation":
            return content[: self.place]
        changed = bytearray(content)
        changed[self.place] ^= 1 << self.bit
        return bytes(changed)


def draw(chance: random.Random, size: int) -> Harm:
    """Three flips for every truncation, at any place."""
    if chance.random() < 0.25:
        return Harm("truncation", chance.randrange(size))
    return Harm("flip", chance.randrange(size), chance.randrange(8))


def make_run(folder: Path) -> Path:
    """Train a moment: a model folder, and beside it a run with two checkpoints."""
    pairs = [(f"A {c} {t}.", f"Ein {farbe}es {ding}.") for c, farbe in COLOURS.items() for t, ding in THINGS.items()]
    files = [folder / "src", folder / "tgt"]
    for side, path in enumerate(files):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    model = {"d_model": 16, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    settings = {"out": str(folder / "run"), "max_steps": 20, "save_every": 10, "threads": 1, "ema": 0.9, "warmup_steps": 5}
    recipe = {"data": {"train": [[str(path) for path in files]]}, "tokens": {"vocab_size": 300}, "model": model, "train": settings}
    return train(recipe, Console(quiet=True, stream=io.StringIO()))


def ran(*arguments: str) -> tuple[int, str, str]:
    """Run one command in this process: exit code, stdout, stderr. What it does not foresee comes out as an exception."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = undivided(list(arguments))
        out.flush()
    return code, out.buffer.getvalue().decode(), err.getvalue()


class Target(NamedTuple):
    """A folder to harm and the command that must notice."""

    name: str
    folder: Path
    parts: list[str]
    command: Callable[[], tuple[int, str, str]]


def targets(run: Path, scratch: Path) -> list[Target]:
    """The model folder and the newest checkpoint of a run, each with the parts that are read."""
    text = scratch / "text"
    text.write_text("A red boat.\n", encoding="utf-8")
    last = paths(run / "training" / "checkpoints")[-1]
    model_parts = sorted(part.name for part in run.iterdir() if part.is_file() and part.name != "README.md")
    return [
        Target(
            "model folder",
            run,
            model_parts,
            lambda: ran("translate", str(run), str(text), "--threads", "1", "--engine", "torch", "-q"),
        ),
        Target(
            "checkpoint",
            last,
            sorted(part.name for part in last.iterdir()),
            lambda: ran("average", str(run), "--last", "1", "-o", str(scratch / "averaged")),
        ),
    ]


def prove(run: Path, scratch: Path, count: int, seed: int) -> tuple[Counter[tuple[str, str, str]], list[str]]:
    """Do so many harms, one after the other, each undone: how many of each kind were refused, and what was not."""
    chance, refused, faults = random.Random(seed), Counter(), []
    where = targets(run, scratch)
    for target in where:
        code, _, err = target.command()
        assert code == 0, f"{target.name}: refused without any harm: {err}"
    for number in range(count):
        target = where[number % len(where)]
        part = chance.choice(target.parts)
        path = target.folder / part
        content = path.read_bytes()
        harm = draw(chance, len(content))
        path.write_bytes(harm.apply(content))
        try:
            code, _, err = target.command()
            if code == 2 and f"{part} is damaged" in err and "Traceback" not in err and skipped(target, part):
                refused[target.name, part, harm.kind] += 1
            else:
                faults.append(f"{target.name}, {part}, {harm}: exit code {code}: {err}")
        except Exception as error:
            faults.append(f"{target.name}, {part}, {harm}: fell over: {error!r}")
        finally:
            path.write_bytes(content)
    return refused, faults


def skipped(target: Target, part: str) -> bool:
    """A training that resumes also names the damaged checkpoint, and uses the one before it."""
    if target.name != "checkpoint":
        return True
    said = io.StringIO()
    found = newest(target.folder.parent, Console(stream=said))
    return found is not None and found.state["step"] == 10 and f"{part} is damaged" in said.getvalue()


def card_is_free(run: Path, target: Target, count: int, seed: int) -> int:
    """How often a harmed model card changed nothing: it is not in the manifest, so that a person may edit it."""
    card, chance, same = run / "README.md", random.Random(seed), 0
    content, expected = card.read_bytes(), target.command()
    for _ in range(count):
        card.write_bytes(draw(chance, len(content)).apply(content))
        same += target.command() == expected
    card.write_bytes(content)
    return same


def report(refused: Counter[tuple[str, str, str]], faults: list[str], count: int, seed: int, cards: str, seconds: float) -> str:
    rows = []
    for target, part in sorted({key[:2] for key in refused}):
        flips, cuts = (refused[target, part, kind] for kind in ("flip", "truncation"))
        rows.append(f"| {target} | `{part}` | {flips} | {cuts} |")
    return "\n".join(
        [
            "# Damage: what random harm does",
            "",
            f"Written by `benchmarks/damage.py --count {count} --seed {seed}` (`make prove-damage`) on {date.today().isoformat()}, "
            f"in {seconds:.0f} seconds.",
            "",
            f"**{count:,} harms, {refused.total():,} refused with exit code 2 and the damaged part named, {len(faults)} not.** "
            "A harm is one flipped bit or a truncation, at a place drawn from the seed.",
            "The model folder was read by `undivided translate`, the checkpoint by `undivided average` and by the search for the",
            "newest whole checkpoint, which named the damaged one and took the one before it.",
            "",
            "| what | part | flipped bits, refused | truncations, refused |",
            "|---|---|---|---|",
            *rows,
            "",
            f"The model card (`README.md`) is not in the manifest: nothing reads it, a person may edit it, and all it says is in "
            f"`config.json`. {cards} harms to it changed nothing.",
            *(["", "Not refused:", "", *(f"- {fault}" for fault in faults)] if faults else []),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", default=str(ROOT / "docs" / "damage.md"))
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        run = make_run(scratch)
        refused, faults = prove(run, scratch, options.count, options.seed)
        cards = max(1, options.count // 20)
        cards_text = f"{card_is_free(run, targets(run, scratch)[0], cards, options.seed)} of {cards}"
    text = report(refused, faults, options.count, options.seed, cards_text, time.monotonic() - began)
    print(text)
    Path(options.report).write_text(text + "\n", encoding="utf-8")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
