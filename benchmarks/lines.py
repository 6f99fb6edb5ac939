# ruff: noqa: E501  (a report is written as it is)
"""A million harmed lines through `undivided translate`: as many come out, in order, the same whatever the batches; memory stays flat.

    python benchmarks/lines.py [--lines 1000000] [--sizes 64 7 1] [--alone 1000000] [--workers 2] [--report docs/lines.md]

The model is tiny and trained for a moment, so that a million lines take minutes; what is tried is not its quality. All lines go through one
command. Then all of them are translated again, in parts, with batches of at most 64, 7 and 1 sentences, and must come out the same. What is
done is kept in the folder, with a digest of the code that did it: a stopped run resumes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import redirect_stderr
from datetime import date
from pathlib import Path
from typing import Any

from undivided.core.console import Console
from undivided.training.loop import train

ROOT = Path(__file__).resolve().parent.parent
PART = 100_000
"""Lines that are translated again in one process."""
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


def make_model(folder: Path) -> None:
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


def translate_all(model: Path, source: Path, target: Path, engine: str) -> dict[str, Any]:
    """The command over the whole file: seconds of CPU time, memory over time, how it ended."""
    command = [sys.executable, "-m", "undivided", "translate", str(model), str(source), "--engine", engine, "--threads", "1",
               "--quiet", "--format", "lines"]  # fmt: skip
    with tempfile.TemporaryFile() as words, target.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=words)
        memory = Memory(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        ended = f"exit code {process.returncode}"
        words.seek(max(0, words.seek(0, 2) - 2000))
        said = words.read().decode("utf-8", "replace")
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: {ended}: {said[-300:]}")
    third = max(1, len(memory.seen) // 3)
    thirds = [max(memory.seen[start : start + third], default=0.0) for start in (0, third, 2 * third)]
    seconds = usage.ru_utime + usage.ru_stime
    return {"seconds": seconds, "memory": thirds, "ended": ended}


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
    from undivided.inference.engines import ctranslate2, int8, torch

    for module in (ctranslate2, int8, torch):
        assert hasattr(module, "batch_by_length")
        module.batch_by_length = batches_of(size)
    given = ["translate", str(model), str(source), "-o", str(target), "--engine", engine, "--quiet", "--threads", "1",
             "--format", "lines"]  # fmt: skip
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
        code = main(given)
    if code:
        raise SystemExit(f"batches of {size}: exit code {code}")


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


def digest_of_code() -> str:
    """Which code a result is of."""
    found = hashlib.sha256()
    for path in [*sorted((ROOT / "src" / "undivided").rglob("*.py")), Path(__file__)]:
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


class Work:
    """What is to be done and what is done, in a folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.folder, self.lock = options, options.folder, threading.Lock()
        self.path = self.folder / "results.json"
        self.settings = {"code": digest_of_code(), "lines": options.lines, "engine": options.engine}
        self.known: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        if self.known.get("settings") != self.settings:
            self.known = {"settings": self.settings, "done": {}}

    def begin(self) -> None:
        """Make the model and the lines, where they are not there yet."""
        if "kinds" in self.known:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.folder / "model", ignore_errors=True)
        make_model(self.folder)
        self.known["kinds"] = write_lines(self.folder / "all", self.options.lines, 1)
        for start in range(0, self.options.lines, PART):
            lines = lines_of(self.folder / "all")[start : start + PART]
            (self.folder / f"all.{start}").write_bytes(b"".join(line + b"\n" for line in lines))
        self._save()

    def missing(self) -> list[str]:
        """Tasks that are not done: `all`, and a size of batches with the number of the first line."""
        again = [f"{size} {start}" for size in self.options.sizes for start in self.parts(size)]
        return [task for task in ["all", *again] if task not in self.known["done"]]

    def parts(self, size: int) -> range:
        """The first lines of the parts that are translated with batches of this size."""
        return range(0, min(self.options.lines, self.options.alone) if size == 1 else self.options.lines, PART)

    def run(self, task: str) -> None:
        """Do one task in a process of its own."""
        size, _, start = task.partition(" ")
        if task == "all":
            found = translate_all(self.folder / "model", self.folder / "all", self.folder / "out", self.options.engine)
        else:
            place = [str(self.folder / "model"), str(self.folder / f"all.{start}"), str(self.folder / f"out.{size}.{start}")]
            command = [sys.executable, __file__, "--again", *place, size, self.options.engine]
            process = subprocess.Popen(command)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise SystemExit(f"{task}: exit code {process.returncode}")
            found = {"seconds": usage.ru_utime + usage.ru_stime, "memory": usage.ru_maxrss / 1024}
        with self.lock:
            self.known["done"][task] = found
            self._save()
        print(f"{task}: {found}", flush=True)

    def _save(self) -> None:
        written = self.path.with_suffix(".new")
        written.write_text(json.dumps(self.known), encoding="utf-8")
        os.replace(written, self.path)


def main() -> None:
    if sys.argv[1:2] == ["--again"]:
        model, source, target, size, engine = sys.argv[2:]
        translate_again(Path(model), Path(source), Path(target), int(size), engine)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--sizes", type=int, nargs="*", default=[64, 7, 1], help="sentences in a batch, at most")
    parser.add_argument("--alone", type=int, default=1_000_000, help="of batches of one, so many lines, in whole parts")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at a time, of one thread each")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv" / "lines")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "lines.md")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    work = Work(options)
    work.begin()
    with ThreadPoolExecutor(options.workers) as pool:
        for done in as_completed([pool.submit(work.run, task) for task in work.missing()]):
            done.result()
    write_report(work)


def compare(work: Work, size: int, result: Sequence[bytes]) -> str:
    """A row: the lines that came out with batches of another size, beside those of the whole run."""
    again: list[bytes] = []
    for start in work.parts(size):
        again += lines_of(work.folder / f"out.{size}.{start}")
    different = [number for number, (one, two) in enumerate(zip(again, result, strict=False), 1) if one != two]
    done = [work.known["done"][f"{size} {start}"] for start in work.parts(size)]
    lines = min(work.options.lines, len(work.parts(size)) * PART)
    cells = [f"{size}", f"{lines:,}", f"{len(again):,}", f"{len(different):,}", ", ".join(map(str, different[:5])) or "—",
             f"{max(each['memory'] for each in done):,.0f} MB", f"{sum(each['seconds'] for each in done):,.0f}"]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def engine_of(folder: Path, name: str) -> str:
    """The engine that this name stands for here."""
    from undivided import Translator

    return Translator(folder / "model", engine=name, threads=1, console=Console(quiet=True)).engine.name


def _empty_lines(path: Path, result: Sequence[bytes]) -> int:
    """Lines that are empty on one side only; nothing but spaces counts as empty."""
    sources = (line.decode("utf-8", "replace").strip() for line in lines_of(path))
    return sum((not one) != (not two.strip()) for one, two in zip(sources, result, strict=False) if not one)


def write_report(work: Work) -> None:
    options, run, result = work.options, work.known["done"]["all"], lines_of(work.folder / "out")
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in Counter(work.known["kinds"]).most_common())
    text = f"""# {options.lines:,} harmed lines

Written by `benchmarks/lines.py --lines {options.lines} --sizes {" ".join(map(str, options.sizes))}` (`make prove-lines`) on {date.today()}. Engine: {engine_of(work.folder, options.engine)}, which is what `--engine {options.engine}` takes here.

The lines: {kinds}. One in twenty ends with `\\r\\n`. The model is tiny and was trained for a moment; its translations mean nothing.

| all lines in one command | |
|---|---|
| lines in | {len(lines_of(work.folder / "all")):,} |
| lines out | {len(result):,} |
| how it ended | {run["ended"]} |
| empty lines that did not stay empty | {_empty_lines(work.folder / "all", result):,} |
| seconds of CPU time | {run["seconds"]:,.0f} |
| largest memory in the first, second and last third | {", ".join(f"{each:,.0f} MB" for each in run["memory"])} |

Again, {PART:,} lines at a time, with batches of at most so many sentences (above, batches are cut as always); every line must be the same, in the same place:

| sentences in a batch | lines in | lines out | different | which | largest memory | CPU seconds |
|---|---|---|---|---|---|---|
{chr(10).join(compare(work, size, result) for size in options.sizes)}
"""
    options.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
