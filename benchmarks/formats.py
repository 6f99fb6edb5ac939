# ruff: noqa: E501  (a report is written as it is)
"""Real catalogues and harmed documents of every format: byte-identical when nothing is translated, accepted by their own tools when all is.

    python benchmarks/formats.py [--count 20000] [--folder .venv/catalogues] [--report docs/formats.md]

The work is cut into tasks: an origin of catalogues, a thousand harmed documents of a format, office files, hostile files, large
memories. What each found is kept in the folder, with a digest of the code that found it: a stopped run resumes, and a task is done again
when that code has changed. The report is written when all tasks are done with the same code. Catalogues: `format_catalogues.py`.

The tools of the formats are in Debian's packages gettext, libxml2-utils, qt6-l10n-tools, libreoffice-writer-nogui, libreoffice-calc-nogui,
libreoffice-impress-nogui and chromium; where one is missing, the report says so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from datetime import date
from pathlib import Path
from typing import Any

import format_office
from format_catalogues import ORIGINS, Outcome, translate
from format_fuzz import fuzz, seeds
from format_hostile import try_browser, try_hostile, try_memory, try_named_dtd

ROOT = Path(__file__).resolve().parent.parent
CODE = (
    "src/undivided/formats/*.py",
    "src/undivided/data/sentences.py",
    "benchmarks/format_*.py",
    "tests/unit/formats/catalogues.py",
    "tests/unit/formats/office_files.py",
    "tests/unit/formats/test_pages.py",
)
PART = 1000
"""Harmed documents in a task."""


def digest_of_code() -> str:
    """Which code a result is of."""
    found = hashlib.sha256()
    for pattern in CODE:
        for path in sorted(ROOT.glob(pattern)):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def all_tasks(count: int) -> list[str]:
    """What there is to do, the longest first; of harmed documents, a part of each format before the next parts."""
    fuzzed = [f"fuzz {format} {start}" for start in range(0, count, PART) for format in seeds()]
    return [*(f"catalogue {name}" for name in ORIGINS), "office", "hostile", "memory", *fuzzed]


def run_task(task: str, folder: Path, count: int, seed: int, sizes: tuple[int, ...]) -> Any:
    """What one task finds, as JSON can hold it."""
    kind, _, name = task.partition(" ")
    if kind == "catalogue":
        return ORIGINS[name](folder)._asdict()
    if kind == "office":
        return [*format_office.try_office(), ("html, in a browser", try_browser(lambda data, format: translate(data, format)[0]))]
    if kind == "hostile":
        return [*try_hostile(), ("a DTD on another machine that is only named (TMX)", try_named_dtd())]
    if kind == "memory":
        return try_memory(sizes)
    format, _, start = name.partition(" ")
    found = fuzz(format, min(PART, count - int(start)), f"{seed} {start}")
    wrong = [(message, data.decode("latin-1")) for data, message in found.wrong[:3]]
    return {"counts": found.counts, "slowest": found.slowest, "wrong": wrong}


def timed_task(task: str, *given: Any) -> tuple[Any, float]:
    """What a task finds, and the CPU time that it took, with the programs that it ran."""
    before = sum(os.times()[:4])
    return run_task(task, *given), sum(os.times()[:4]) - before


class Kept:
    """Results on disk, each with the code and the settings that it is of."""

    def __init__(self, path: Path, options: argparse.Namespace) -> None:
        self.path, self.code, self.options = path, digest_of_code(), options
        self.known: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def key(self, task: str) -> str:
        kind = task.partition(" ")[0]
        start = int(task.rpartition(" ")[2]) if kind == "fuzz" else 0
        size = min(PART, self.options.count - start)
        given = {"fuzz": f" {size} {self.options.seed}", "memory": f" {self.options.sizes}"}
        return self.code + given.get(kind, "")

    def missing(self) -> list[str]:
        """Tasks that are not done, or were done with other code."""
        return [task for task in all_tasks(self.options.count) if self.known.get(task, {}).get("key") != self.key(task)]

    def add(self, task: str, result: Any, seconds: float) -> None:
        self.known[task] = {"key": self.key(task), "result": result, "seconds": seconds}
        written = self.path.with_suffix(".new")
        written.write_text(json.dumps(self.known), encoding="utf-8")
        os.replace(written, self.path)

    def results(self, kind: str) -> Iterator[tuple[str, Any]]:
        """Name and result of the tasks of a kind."""
        for task in all_tasks(self.options.count):
            if task.partition(" ")[0] == kind:
                yield task.partition(" ")[2], self.known[task]["result"]

    @property
    def seconds(self) -> float:
        return sum(self.known[task]["seconds"] for task in all_tasks(self.options.count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="harmed documents of each format")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[2, 200, 2000], metavar="MB", help="sizes of translation memories to read"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv" / "catalogues")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "formats.md")
    parser.add_argument("--tasks", nargs="*", default=[], metavar="WORD", help="only tasks with one of these words in their name")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="tasks at a time")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    kept = Kept(options.folder / "results.json", options)
    wanted = [task for task in kept.missing() if not options.tasks or any(word in task for word in options.tasks)]
    given = options.folder, options.count, options.seed, tuple(options.sizes)
    with ProcessPoolExecutor(options.workers) as pool:
        waiting: dict[Future[tuple[Any, float]], str] = {pool.submit(timed_task, task, *given): task for task in wanted}
        for done in as_completed(waiting):
            if error := done.exception():
                print(f"{waiting[done]} failed, and is still to do: {type(error).__name__}: {error}", flush=True)
                continue
            result, seconds = done.result()
            kept.add(waiting[done], result, seconds)
            print(f"{waiting[done]}, {seconds:.0f} s: {str(result)[:300]}", flush=True)
    if missing := kept.missing():
        more = f" and {len(missing) - 9} more" if len(missing) > 9 else ""
        raise SystemExit(f"no report yet; still to do: {', '.join(missing[:9])}{more}")
    options.report.write_text(report(options, kept), encoding="utf-8")


def report(options: argparse.Namespace, kept: Kept) -> str:
    outcomes = [Outcome(**each) for _, each in kept.results("catalogue")]
    office, hostile, memory = (result for kind in ("office", "hostile", "memory") for _, result in kept.results(kind))
    fuzzed = {format: (Counter[str](), list[float]()) for format in seeds()}
    for name, found in kept.results("fuzz"):
        counts, slowest = fuzzed[name.partition(" ")[0]]
        counts.update(found["counts"])
        slowest.append(found["slowest"])
    wrong = sum(counts["wrong"] for counts, _ in fuzzed.values())
    rows = [
        "# Documents: real catalogues, and harmed ones",
        "",
        f"Written by `benchmarks/formats.py --count {options.count} --seed {options.seed}` (`make prove-formats`) on {date.today()}. Its tasks took "
        f"{kept.seconds / 60:.0f} minutes of CPU time together.",
        "",
        "## Real catalogues",
        "",
        "Opened and saved without a translation, each must be byte-identical. Then every text is translated (into capitals, with what is protected "
        "masked), and the tool of the format is asked about files whose original it accepts. XLIFF is checked against its schema.",
        "",
        "| catalogues | files | segments | byte-identical | protected text lost | tool | accepted | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in outcomes:
        accepted = f"{each.accepted:,} of {each.asked:,}" if each.asked else "—"
        rows.append(
            f"| {each.origin} | {each.files:,} | {each.segments:,} | {each.identical:,} | {each.faults:,} | `{each.tool}` | {accepted} | {each.remark} |"
        )
    rows += [
        "",
        "## Office files and pages",
        "",
        "Written by LibreOffice, translated, opened by LibreOffice again; and a page, translated, in a browser.",
        "",
        "| format | what was found |",
        "|---|---|",
    ]
    rows += [f"| {format} | {found} |" for format, found in office]
    rows += ["", "## Files that mean harm", "", "| attack | what happened |", "|---|---|"]
    rows += [f"| {attack} | {found} |" for attack, found in hostile]
    rows += ["", "## Large translation memories", "", "Read to train from, each in a process of its own.", ""]
    rows += ["| size of the TMX | units | most memory |", "|---|---|---|"]
    rows += [f"| {' | '.join(row)} |" for row in memory]
    rows += [
        "",
        "## Harmed documents",
        "",
        "Documents of each format with one to four random changes (bytes flipped, cut out, repeated, moved, put in). Each is refused in one "
        "sentence, or it is byte-identical when saved, keeps every segment through a bad model's translations, and can be read again. "
        f"**{wrong:,} went wrong** (an error that nobody foresaw, a wrong result, or more than five seconds of CPU time).",
        "",
        "| format | documents | refused | translated | wrong | slowest |",
        "|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {format} | {counts.total():,} | {counts['refused']:,} | {counts['translated']:,} | {counts['wrong']:,} | {max(slowest):.2f} s |"
        for format, (counts, slowest) in fuzzed.items()
    ]
    return "\n".join([*rows, ""])


if __name__ == "__main__":
    main()
