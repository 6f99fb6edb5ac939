"""`make mutants`: one small fault at a time in a copy of the package, which the tests near it must notice.

A mutant is a promise broken by hand (tools/mutations.py). The tool first runs all the tests it needs on an unchanged copy, then
every mutant against its own few tests. It fails when a mutant survives, when its text has gone stale, or when it only breaks an
import, which proves nothing. The table is printed and written to docs/mutants.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "undivided"
REPORT = ROOT / "docs" / "mutants.md"
FAILED = re.compile(r"^(?:FAILED|ERROR) tests/(.+?)(?: - .*)?$", re.MULTILINE)


class Mutant(NamedTuple):
    """A fault: in a file of the package, a text that occurs in it exactly once becomes another."""

    name: str
    promise: str
    """What no longer holds."""
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Node ids below tests/, one of which must fail."""


class Outcome(NamedTuple):
    """What became of a mutant: the test that noticed it, or why none did."""

    mutant: Mutant
    killer: str
    survived: str
    seconds: float


def find_stale(mutants: Iterable[Mutant], package: Path = PACKAGE) -> list[str]:
    """Mutants whose text is not there exactly once, or that change nothing."""
    faults = []
    for mutant in mutants:
        path = package / mutant.file
        count = path.read_text(encoding="utf-8").count(mutant.old) if path.exists() else 0
        if count != 1:
            faults.append(f"{mutant.name}: {mutant.file} holds {mutant.old!r} {count} times, not once")
        if mutant.old == mutant.new:
            faults.append(f"{mutant.name}: changes nothing")
    return faults


def apply(mutant: Mutant, package: Path) -> None:
    """Put the fault into a copy of the package."""
    path = package / mutant.file
    path.write_text(path.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")


def run_tests(source: Path, tests: Sequence[str], timeout: float, *more: str, **variables: str) -> tuple[int, str]:
    """Exit code and output of pytest with the package of a folder; code −1 where it did not end in time."""
    # One thread each: runs beside each other would wait for each other at every barrier.
    more_env = {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "1000", "OMP_NUM_THREADS": "1"}
    more_env |= variables
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *more, *(f"tests/{test}" for test in tests)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **more_env}, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return -1, f"not finished after {timeout:.0f} s"
    return done.returncode, done.stdout + done.stderr


def check_copy(source: Path) -> None:
    """The tests must import the copy, or no mutant could ever be noticed."""
    code = "import undivided; print(undivided.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
    if not found.startswith(str(source)):
        raise SystemExit(f"the copy in {source} is not what Python imports, but {found.strip()}")


def copy_package(folder: Path) -> Path:
    """A copy of src/ to import from."""
    return Path(shutil.copytree(PACKAGE, folder / "undivided", ignore=shutil.ignore_patterns("__pycache__"))).parent


def try_mutant(mutant: Mutant, timeout: float) -> Outcome:
    """Apply a mutant to a copy of its own and run its tests."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        source = copy_package(Path(folder))
        apply(mutant, source / "undivided")
        # Libraries built of mutants must not stay in the user's cache.
        cache = {"XDG_CACHE_HOME": f"{folder}/cache"} if mutant.file.endswith(".c") else {}
        code, output = run_tests(source, mutant.tests, timeout, "-x", **cache)
    found = FAILED.search(output)
    seconds = time.monotonic() - began
    if code == 1 and found:
        return Outcome(mutant, found[1], "", seconds)
    if code == 0:
        last = output.splitlines()[-1]
        return Outcome(mutant, "", f"SURVIVED: {last}", seconds)
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    return Outcome(mutant, "", f"PROVES NOTHING: pytest ended with {code}: {last}", seconds)


def check_baseline(mutants: Sequence[Mutant], jobs: int, timeout: float) -> list[str]:
    """What the needed tests say of the unchanged package: each must be there, run and pass."""
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    # Tests of one file share fixtures, so a file is not split.
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    parts = [[test for test in tests if test.partition("::")[0] in files[part::jobs]] for part in range(jobs)]
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder, ThreadPoolExecutor(jobs) as pool:
        source = copy_package(Path(folder))
        check_copy(source)
        results = pool.map(lambda part: run_tests(source, part, timeout), filter(None, parts))
        return [output for code, output in results if code != 0]


def as_row(outcome: Outcome) -> str:
    """A line of the report."""
    mutant = outcome.mutant
    killer = f"`{outcome.killer}`" if outcome.killer else f"**{outcome.survived}**"
    cells = (mutant.name, f"`{mutant.file}`", mutant.promise, killer, f"{outcome.seconds:.0f}")
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def join_rows(before: str, outcomes: Iterable[Outcome], names: Iterable[str]) -> list[str]:
    """The lines of a report, in the order of the names: those of today's outcomes, else those that it had before."""
    known = {row.split(" | ", 1)[0].removeprefix("| "): row for row in before.splitlines() if re.match(r"\| [a-z0-9-]+ \| `", row)}
    known |= {each.mutant.name: as_row(each) for each in outcomes}
    return [known[name] for name in names if name in known]


def as_table(rows: Sequence[str]) -> str:
    """The report, as Markdown."""
    killed = sum("**" not in row for row in rows)
    lines = [
        "# Mutants",
        "",
        "Made by `make mutants` (tools/mutants.py). Each row is a fault put by hand into a copy of the package, the promise that",
        "it breaks, and the test that notices it. A survivor fails the target. A run by name renews the rows of its mutants alone.",
        "",
        f"{killed} of {len(rows)} are killed.",
        "",
        "| mutant | in | promise | killed by | s |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *rows]) + "\n"


def main() -> int:
    """Run them all, or those that are named."""
    from mutations import MUTANTS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these mutants; of the report, only their rows are renewed")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for the tests of a mutant")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests on the unchanged package first")
    given = parser.parse_args()
    unknown = set(given.names) - {mutant.name for mutant in MUTANTS}
    if unknown:
        raise SystemExit(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in MUTANTS if not given.names or mutant.name in given.names]
    if stale := find_stale(chosen):
        raise SystemExit("stale, to be written anew in tools/mutations.py:\n" + "\n".join(stale))
    if not given.no_baseline:
        print("the tests on the unchanged package …", flush=True)
        if failed := check_baseline(chosen, given.jobs, 10 * given.timeout):
            raise SystemExit("the tests fail without any mutant:\n" + "\n".join(failed))
    outcomes = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for each in pool.map(lambda mutant: try_mutant(mutant, given.timeout), chosen):
            outcomes.append(each)
            print(f"{each.mutant.name:32} {each.seconds:5.0f} s  {each.killer or each.survived}", flush=True)
    table = as_table(join_rows(REPORT.read_text(encoding="utf-8"), outcomes, [mutant.name for mutant in MUTANTS]))
    print(f"\n{table}")
    REPORT.write_text(table, encoding="utf-8")
    return 1 if any(each.survived for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
