# ruff: noqa: E501  (a report is written as it is)
"""`undivided check`: its speed beside a loop that only reads, its memory, and how many planted faults it finds.

    python benchmarks/check.py [--pairs 400000] [--report docs/benchmarks/check.md]

Corpora come from $UNDIVIDED_CORPORA. Speed is pairs per second of CPU time of one core; the loop that reads and the check take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from undivided.data.text_files import raw_lines

ROOT = Path(__file__).resolve().parent.parent
CORPORA = Path(os.environ.get("UNDIVIDED_CORPORA", ROOT.parent / "shared" / "corpora"))
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
PLANTED = 200


def read(name: str, language: str) -> list[str]:
    return [line.decode("utf-8", "replace") for line in raw_lines(CORPORA / f"{name}.{language}")]


def write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return path


def cpu_seconds(command: Sequence[str]) -> tuple[float, float, float, str]:
    """CPU seconds, wall seconds, largest memory in MB and output of a command."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    assert process.stdout
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status:
        raise SystemExit(f"{' '.join(map(str, command))} failed with {status}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - start, usage.ru_maxrss / 1024, out.decode()


READ = "import sys\nfor pair in zip(open(sys.argv[1], encoding='utf-8'), open(sys.argv[2], encoding='utf-8')): pass"


def commands(source: Path, target: Path) -> dict[str, list[str]]:
    return {
        "wc -l": ["wc", "-l", str(source), str(target)],
        "a Python loop that only reads": [sys.executable, "-c", READ, str(source), str(target)],
        "undivided check": [sys.executable, "-m", "undivided", "check", str(source), str(target), "--json", "--quiet"],
    }


def measure_speed(folder: Path, pairs: int, rounds: int) -> tuple[list[str], list[str]]:
    """Speed of a large corpus, all taking turns; and memory of a small and a large one."""
    lines = [
        (a, b)
        for name in ("libreoffice-help/en-de/train", "multi30k/train")
        for a, b in zip(read(name, "en"), read(name, "de"), strict=True)
    ]
    rows, memory = [], []
    for size in (pairs // 10, pairs):
        chosen = [lines[number % len(lines)] for number in range(size)]
        # Every repetition has a number of its own, so that not everything is a duplicate.
        source = write(folder / f"{size}.en", [f"{each[0]} ({number // len(lines)})" for number, each in enumerate(chosen)])
        target = write(folder / f"{size}.de", [f"{each[1]} ({number // len(lines)})" for number, each in enumerate(chosen)])
        times: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name, command in commands(source, target).items():
                used, _, largest, _ = cpu_seconds(command)
                times.setdefault(name, []).append(used)
                if name == "undivided check":
                    memory.append((size, largest))
        base = statistics.median(times["a Python loop that only reads"])
        for name, each in times.items():
            middle = statistics.median(each)
            rows.append(f"| {size:,} | {name} | {middle:.2f} | {size / middle:,.0f} | {middle / base:.1f} |")
            print(rows[-1], flush=True)
    sizes = sorted({size for size, _ in memory})
    said = [f"{size:,} pairs: {max(largest for each, largest in memory if each == size):,.0f} MB" for size in sizes]
    return rows, said


def check(folder: Path, source: Sequence[str], target: Sequence[str], name: str) -> dict[str, Any]:
    ours, theirs = write(folder / f"{name}.en", source), write(folder / f"{name}.de", target)
    command = [
        sys.executable,
        "-m",
        "undivided",
        "check",
        str(ours),
        str(theirs),
        "--json",
        "--quiet",
        "--clean",
        str(folder / "clean"),
    ]
    return json.loads(cpu_seconds(command)[3])


def mojibake(text: str) -> str:
    return text.encode().decode("cp1252", "replace").replace("\ufffd", "")


Plant = Callable[[str, str, random.Random], tuple[str, str] | None]


def plants(french: Sequence[str]) -> dict[str, Plant]:
    """What is done to a good pair; None where this cannot be done to it."""
    return {
        "target-language": lambda a, b, chance: (a, chance.choice(french)),
        "untranslated": lambda a, b, chance: (a, a) if len(a.split()) >= 6 else None,
        "swapped": lambda a, b, chance: (b, a) if len(a.split()) >= 4 else None,
        "mojibake": lambda a, b, chance: (a, mojibake(b)) if sum(each > "\x7f" for each in b) >= 2 else None,
        "control": lambda a, b, chance: (a, b[:5] + chr(chance.randrange(1, 9)) + b[5:]),
        "broken": lambda a, b, chance: (a, b[:5] + "\ufffd" + b[6:]),
        "length-ratio": lambda a, b, chance: (a, " ".join(b.split()[:2])) if len(b.split()) >= 14 else None,
        "mangled": lambda a, b, chance: (a, b + " " + " ".join(b.split()[-1:] * 5)),
        "empty": lambda a, b, chance: (a, ""),
        "placeholders": lambda a, b, chance: (f"{a} %(name)s", f"{b} %(Name)s"),
        "duplicate": lambda a, b, chance: (a, b),
    }  # fmt: skip


def measure_planted(folder: Path) -> list[str]:
    """Faults planted into real text: how many pairs with each are found, by its own rule and by any that removes."""
    rows = []
    source, target = read("libreoffice-help/en-de/train", "en"), read("libreoffice-help/en-de/train", "de")
    french = [line for line in read("libreoffice-help/en-fr/train", "fr") if len(line.split()) >= 3]
    before = check(folder, source, target, "before")
    for name, plant in plants(french).items():
        chance = random.Random(name)
        ours, theirs, done, number = list(source), list(target), 0, 0
        places = chance.sample(range(len(source)), len(source))
        while done < PLANTED and number < len(places):
            made = plant(source[places[number]], target[places[number]], chance)
            if made and name == "duplicate":
                ours.append(made[0])
                theirs.append(made[1])
            elif made:
                ours[places[number]], theirs[places[number]] = made
            done, number = done + bool(made), number + 1
        after = check(folder, ours, theirs, "after")
        own = after["rules"].get(name, {}).get("pairs", 0) - before["rules"].get(name, {}).get("pairs", 0)
        rows.append(f"| {name} | {done} | {own} | {after['faulty'] - before['faulty']} |")
        print(rows[-1], flush=True)
    return rows


def measure_drift(folder: Path, rounds: int) -> list[str]:
    """Lines taken out of one side: where the drift is said to begin, beside where it does."""
    rows = []
    for name, ours, theirs in (
        ("multi30k/train", "en", "de"),
        ("libreoffice-help/en-de/train", "en", "de"),
        ("libreoffice-help/en-ko/train", "en", "ko"),
    ):
        source, target, chance = read(name, ours), read(name, theirs), random.Random(name)
        errors, missed = [], 0
        false_alarms = len(check(folder, source, target, "drift")["misaligned"])
        for _ in range(rounds):
            place, lost = chance.randrange(500, len(source) - 500), chance.choice([1, 1, 2, 5])
            found = check(folder, source, target[:place] + target[place + lost :], "drift")["misaligned"]
            if found:
                errors.append(abs(found[0]["start"] - place - 1))
            else:
                missed += 1
        errors.sort()
        rows.append(
            f"| {name} {ours}–{theirs} | {len(source):,} | {false_alarms} | {rounds - missed} of {rounds} | {statistics.median(errors):.0f} | {errors[-1]} |"
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "benchmarks" / "check.md")
    options = parser.parse_args()
    if not CORPORA.is_dir():
        raise SystemExit(f"{CORPORA}: no corpora there; set UNDIVIDED_CORPORA")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        speed, memory = measure_speed(folder, options.pairs, options.rounds)
        planted = measure_planted(folder)
        drift = measure_drift(folder, 10)
    text = f"""# `undivided check`: speed, memory, and what it finds

Written by `benchmarks/check.py --pairs {options.pairs} --rounds {options.rounds}` (`make bench-check`) on {date.today()}; one core.
CPU seconds are those of the whole command, start included; medians, all taking turns.

| pairs | program | CPU seconds | pairs/s | times the loop |
|---|---|---|---|---|
{chr(10).join(speed)}

Largest memory of the check: {"; ".join(memory)}.

## Planted faults

Pairs of the German help of an office suite are made faulty in one way; found are the pairs that a rule reports beyond those of the text as it is.

| fault | planted | found by its rule | found by any rule that removes |
|---|---|---|---|
{chr(10).join(planted)}

## Misalignment

One to five lines are taken out of the target at a random place.

| corpus | lines | false alarms as it is | found | lines off, median | worst |
|---|---|---|---|---|---|
{chr(10).join(drift)}
"""
    options.report.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
