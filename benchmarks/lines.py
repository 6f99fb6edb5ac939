# ruff: noqa: E501  (a report is written as it is)
"""A million harmed lines through `undivided translate`: as many come out, in order, the same whatever the batches; memory stays flat.

    python benchmarks/lines.py [--lines 1000000] [--again 20000] [--alone 2000] [--report docs/lines.md]

The model is tiny and trained for a moment, so that a million lines take minutes; what is tried is not its quality. All lines go through the
command once. Some are translated again, in this process, with batches of at most 1, 7 and 64 sentences, and must come out the same.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from datetime import date
from pathlib import Path
from typing import Any

from undivided.core.console import Console
from undivided.training.loop import train

ROOT = Path(__file__).resolve().parent.parent
WORDS = {
    "the": "das", "house": "Haus", "is": "ist", "red": "rot", "tree": "Baum", "a": "ein", "and": "und", "stands": "steht", "here": "hier",
    "open": "offen", "window": "Fenster", "no": "kein", "man": "Mann", "sees": "sieht", "today": "heute", "not": "nicht",
}  # fmt: skip
PLACEHOLDERS = (
    "%s",
    "{name}",
    "%(count)d",
    "<b>",
    "</b>",
    "&amp;",
    "https://example.org/a?b=1",
    "$HOME",
    "\\n",
    "{{x}}",
    "12.5 cm",
    "a@b.org",
)
ODD = (
    "\u200b",
    "\u202e",
    "\ufeff",
    "\u2028",
    "\x85",
    "\u0301" * 9,
    "\U0001f469\u200d\U0001f680",
    "\ufffd",
    "\ue000",
    "\U0010ffff",
    "ﷺ",
    "ẞ",
    "İ",
)


def sentence(chance: random.Random, most: int = 9) -> str:
    return " ".join(chance.choice(list(WORDS)) for _ in range(chance.randrange(1, most))) + chance.choice(("", ".", "!", "?"))


def text(chance: random.Random, kind: str) -> str:  # noqa: PLR0911
    """A line that is text, of one kind."""
    words = sentence(chance)
    if kind == "unicode":
        return "".join(
            chr(chance.choice((chance.randrange(0x20, 0xD800), chance.randrange(0xE000, 0x110000))))
            for _ in range(chance.randrange(1, 12))
        )
    if kind == "odd":
        return chance.choice(ODD) + words[:20] + chance.choice(ODD)
    if kind == "control":
        return words[:9] + chr(chance.choice((1, 7, 8, 11, 12, 13, 27, 28, 127, 0x9B))) + words[9:20]
    if kind == "placeholders":
        return f"{chance.choice(PLACEHOLDERS)} {words} {chance.choice(PLACEHOLDERS)}"
    if kind == "repeated":
        return f"{chance.choice(list(WORDS))} " * chance.randrange(5, 30)
    if kind == "long":
        return " ".join(sentence(chance) for _ in range(chance.randrange(100, 1000)))
    if kind == "unbroken":
        return chance.choice("aÄ가中") * chance.randrange(500, 5000)
    return words


KINDS = {
    "words": 700, "empty": 60, "spaces": 20, "placeholders": 80, "odd": 50, "unicode": 30, "control": 20, "repeated": 4, "NUL": 10, "bad bytes": 15,
    "long": 0.05, "unbroken": 0.05,
}  # fmt: skip
"""Kinds of lines, and their shares."""


def make_line(chance: random.Random, kind: str) -> bytes:
    """A line without its end."""
    if kind == "empty":
        return b""
    if kind == "spaces":
        return chance.choice((" ", "\t", "\u3000", "  \u00a0 ")).encode()
    if kind == "NUL":
        return sentence(chance).encode().replace(b" ", b"\0", 1) + b"\0"
    if kind == "bad bytes":
        line = sentence(chance).encode()
        return line[:4] + chance.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88", b"\x80")) + line[4:]
    return text(chance, kind).replace("\n", " ").encode("utf-8", "replace")


def write_lines(path: Path, count: int, seed: int) -> Counter[str]:
    """Harmed lines, always the same for a seed; how many there are of each kind."""
    chance, counts = random.Random(seed), Counter[str]()
    kinds = chance.choices(list(KINDS), list(KINDS.values()), k=count)
    with path.open("wb") as stream:
        for kind in kinds:
            counts[kind] += 1
            stream.write(make_line(chance, kind) + (b"\r\n" if chance.random() < 0.05 else b"\n"))
    return counts


def make_model(folder: Path) -> Path:
    """A model of a few thousand weights that has seen some made-up sentences."""
    chance = random.Random(1)
    for side in ("en", "de"):
        (folder / f"train.{side}").write_text("", encoding="utf-8")
    pairs = [[chance.choice(list(WORDS)) for _ in range(chance.randrange(2, 9))] for _ in range(3000)]
    (folder / "train.en").write_text("".join(f"{' '.join(each)}.\n" for each in pairs), encoding="utf-8")
    (folder / "train.de").write_text("".join(f"{' '.join(WORDS[word] for word in each)}.\n" for each in pairs), encoding="utf-8")
    recipe: dict[str, dict[str, Any]] = {
        "data": {"train": [[str(folder / "train.en"), str(folder / "train.de")]], "source_lang": "en", "target_lang": "de"},
        "tokens": {"vocab_size": 400},
        "batches": {"tokens": 1500},
        "model": {"d_model": 32, "d_ff": 64, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0},
        "search": {"beam_size": 1, "max_extra": 8},
        "train": {"out": str(folder / "model"), "max_steps": 1500, "schedule": "cosine", "warmup_steps": 20, "rate": 0.01, "threads": 1,
                  "save_every": 200, "validate_every": 1000, "average": 1, "log_every": 100},
    }  # fmt: skip
    train(recipe, Console(quiet=True))
    return folder / "model"


class Memory:
    """The resident memory of a process, in MB, looked at every second."""

    def __init__(self, pid: int) -> None:
        self.seen: list[float] = []
        self._thread = threading.Thread(target=self._watch, args=(pid,), daemon=True)
        self._thread.start()

    def _watch(self, pid: int) -> None:
        while True:
            try:
                fields = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
            except OSError:
                return
            found = [line.split()[1] for line in fields.splitlines() if line.startswith("VmRSS")]
            if found:
                self.seen.append(int(found[0]) / 1024)
            time.sleep(1)


def translate_all(model: Path, source: Path, target: Path, engine: str, minutes: float) -> tuple[float, list[float], str, str]:
    """The command over the whole file, as long as there is time: seconds, memory over time, how it ended, last words."""
    command = [
        sys.executable,
        "-m",
        "undivided",
        "translate",
        str(model),
        str(source),
        "--engine",
        engine,
        "--quiet",
        "--format",
        "lines",
    ]
    start = time.monotonic()
    with tempfile.TemporaryFile() as words, target.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=words)
        memory = Memory(process.pid)
        try:
            ended = f"exit code {process.wait(60 * minutes)}"
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            ended = f"stopped by this script after {minutes:g} minutes: the rest was not tried"
        words.seek(max(0, words.seek(0, 2) - 2000))
        said = words.read().decode("utf-8", "replace")
    return time.monotonic() - start, memory.seen, ended, said


def batches_of(size: int) -> Any:
    """A way to cut batches that has at most so many sentences in one."""

    def cut(lengths: Sequence[int], beams: int = 1, workers: int = 1) -> Iterator[list[int]]:
        order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
        for start in range(0, len(order), size):
            yield order[start : start + size]

    return cut


def translate_again(model: Path, source: Path, target: Path, size: int, engine: str) -> None:
    """The command in this process, with batches of at most `size` sentences."""
    from undivided.cli import main
    from undivided.inference.engines import ctranslate2, torch

    modules: tuple[Any, ...] = (ctranslate2, torch)
    before = [module.batch_by_length for module in modules]
    try:
        for module in modules:
            module.batch_by_length = batches_of(size)
        given = [
            "translate",
            str(model),
            str(source),
            "-o",
            str(target),
            "--engine",
            engine,
            "--quiet",
            "--threads",
            "1",
            "--format",
            "lines",
        ]
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
            code = main(given)
    finally:
        for module, cut in zip(modules, before, strict=True):
            module.batch_by_length = cut
    if code:
        raise SystemExit(f"batches of {size}: exit code {code}")


def lines_of(path: Path, count: int | None = None) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1][:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--again", type=int, default=20_000, help="lines that are translated with batches of 7 and 64")
    parser.add_argument("--alone", type=int, default=2_000, help="lines that are translated one by one")
    parser.add_argument("--engine", default="ctranslate2", help="ctranslate2 is what `auto` takes for such a model")
    parser.add_argument("--minutes", type=float, default=60.0, help="most minutes for all lines")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "lines.md")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = make_model(folder)
        counts = write_lines(folder / "all", options.lines, 1)
        seconds, memory, ended, said = translate_all(model, folder / "all", folder / "out", options.engine, options.minutes)
        print(f"{options.lines:,} lines, {seconds:.0f} s, {ended}", said[-300:], flush=True)
        source, result = (folder / "all").read_bytes().count(b"\n"), lines_of(folder / "out")
        rows = []
        for size, count in ((64, options.again), (7, options.again), (1, options.alone)):
            count = min(count, options.lines)
            part = folder / f"part{size}"
            part.write_bytes(b"".join(line + b"\n" for line in lines_of(folder / "all", count)))
            translate_again(model, part, folder / "again", size, options.engine)
            again = lines_of(folder / "again")
            different = [number for number, (one, two) in enumerate(zip(again, result[:count], strict=True), 1) if one != two]
            rows.append(
                f"| {size} | {count:,} | {len(again):,} | {len(different):,} | {', '.join(map(str, different[:5])) or '—'} |"
            )
            print(rows[-1], flush=True)
        empty = _empty_lines(folder / "all", result)
    write_report(options, counts, (seconds, memory, ended), (source, len(result), empty), rows)


def _empty_lines(path: Path, result: Sequence[bytes]) -> int:
    """Lines that are empty on one side only; nothing but spaces counts as empty."""
    sources = (line.decode("utf-8", "replace").strip() for line in lines_of(path))
    return sum((not one) != (not two.strip()) for one, two in zip(sources, result, strict=False) if not one)


def write_report(
    options: argparse.Namespace,
    counts: Counter[str],
    run: tuple[float, list[float], str],
    found: tuple[int, int, int],
    rows: list[str],
) -> None:
    seconds, memory, ended = run
    third = max(1, len(memory) // 3)
    shares = [max(memory[start : start + third], default=0.0) for start in (0, third, 2 * third)]
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
    text = f"""# {options.lines:,} harmed lines

Written by `benchmarks/lines.py --lines {options.lines} --again {options.again} --alone {options.alone} --engine {options.engine}` (`make prove-lines`) on {date.today()}.

The lines: {kinds}. One in twenty ends with `\\r\\n`. The model is tiny and was trained for a moment; its translations mean nothing.

| | |
|---|---|
| lines in | {found[0]:,} |
| lines out | {found[1]:,} |
| how it ended | {ended} |
| empty lines that did not stay empty | {found[2]:,} |
| seconds, on a machine shared with others | {seconds:,.0f} |
| largest memory in the first, second and last third | {", ".join(f"{share:,.0f} MB" for share in shares)} |

The first lines again, with batches of at most so many sentences (above, batches are cut as always); every line must be the same, in the same place:

| sentences in a batch | lines in | lines out | different | which |
|---|---|---|---|---|
{chr(10).join(rows)}
"""
    options.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
