"""Try to do harm in some thousand random ways; each must end in order: nothing lost, nothing wrong, no abort, no traceback.

    python benchmarks/adversary.py [--seed 1] [--share 1.0] [--only NAME …] [--report docs/adversary.md]

A trial is a function of the seed, the attack's name and its number: `--only 'two writers' --number 17` repeats one.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import pkgutil
import resource
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Some virtual machines announce AMX and don't grant it: half-precision products of torch would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from attacks import engines, folders, places, sanitizer, streams, texts, trainings, verbs
from attacks.command import Patience, run_forked
from attacks.journal import Journal
from attacks.pool import Plan, Result, run_trials
from attacks.report import describe
from attacks.trial import Attack
from attacks.world import World, build_world

ROOT = Path(__file__).resolve().parent.parent
QUIET_SECONDS = 0.5
"""That a translation of a few lines takes in a fork; where it takes longer, all time limits of trials are longer too."""
MODULES = [folders, trainings, texts, streams, places, verbs, engines, sanitizer]


def import_everything() -> None:
    """What trials would import, so that each fork has it already."""
    import ctranslate2  # noqa: F401

    import undivided

    for module in pkgutil.walk_packages(undivided.__path__, "undivided."):
        if not module.name.endswith(("__main__", ".trial")):
            importlib.import_module(module.name)
    # PyTorch imports these when a model is first built, which takes longer than most trials.
    for name in ("torch._dynamo", "torch._inductor", "PIL.Image", "sacrebleu"):
        with suppress(ImportError):
            importlib.import_module(name)
    # Other users, whom some trials become, cannot read the cache.
    importlib.import_module("undivided.nn.library").load_library()
    gc.freeze()


def use_own_cache(home: Path) -> None:
    """Keep out of the user's cache, but take compiled kernels from it."""
    known = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "undivided"
    (home / "undivided").mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in known.glob("kernels-*"):
        shutil.copy2(path, home / "undivided")
    os.environ["XDG_CACHE_HOME"] = str(home)


def measure_patience(world: World, scratch: Path) -> float:
    """By how much this machine is slower, or busier with other work, than the one that the time limits were chosen on."""
    times = []
    for _ in range(3):
        began = time.monotonic()
        run_forked(world.command("transformer", world.model("transformer")), scratch, timeout=300)
        times.append(time.monotonic() - began)
    return min(10.0, max(1.0, sorted(times)[1] / QUIET_SECONDS))


def check_others_may_enter(folder: Path) -> None:
    """Some trials become users that nobody is, and must read what is attacked."""
    for each in (folder, *folder.resolve().parents):
        if not each.stat().st_mode & 0o001:
            raise SystemExit(f"{each}: other users may not enter it; choose another --keep, for example below /var/tmp")


def attack(chosen: list[Attack], home: Path, options: argparse.Namespace) -> tuple[list[Result], list[float], bool]:
    """Make what is attacked, and run the trials: their results, the seconds of each sitting, and whether all were run."""
    began, scratch, keep = time.monotonic(), home / "trials", Path(options.keep) if options.keep else home
    home.chmod(0o755)
    scratch.mkdir()
    keep.mkdir(exist_ok=True)
    check_others_may_enter(keep)
    use_own_cache(keep / "cache")
    import_everything()
    world = build_world(keep / "world")
    world.right["base"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    Patience.factor = measure_patience(world, scratch)
    print(f"ready after {time.monotonic() - began:.0f} s; time limits × {Patience.factor:.1f}", file=sys.stderr, flush=True)
    journal = Journal(keep / "journal.jsonl" if options.keep else None, options.seed)
    plan = Plan(options.seed, options.jobs, journal, began + 60 * options.minutes)
    counts = [(each, max(1, round(each.count * options.share))) for each in chosen]
    numbers = [(each, range(count) if options.number is None else [options.number]) for each, count in counts]
    results, is_whole = run_trials(numbers, world, scratch, plan)
    journal.add(seconds=time.monotonic() - began, patience=Patience.factor)
    sittings = [facts["seconds"] for facts in journal.read() if "seconds" in facts]
    return results, sittings or [time.monotonic() - began], is_whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="this share of the trials of each attack, at least one")
    parser.add_argument("--only", nargs="*", help="attacks by name")
    parser.add_argument("--number", type=int, help="one trial of each attack")
    parser.add_argument("--keep", metavar="DIR", help="keep models and verdicts here; run again, it resumes")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no trial after so long")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report", default=str(ROOT / "docs" / "adversary.md"))
    options = parser.parse_args()
    chosen: list[Attack] = [each for module in MODULES for each in module.ATTACKS if not options.only or each.name in options.only]
    # No TemporaryDirectory: forks that end as Python ends would remove it.
    home = Path(tempfile.mkdtemp(prefix="undivided-adversary-"))
    try:
        results, sittings, is_whole = attack(chosen, home, options)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    text = describe(results, f"benchmarks/adversary.py --seed {options.seed}", sittings)
    print(text)
    if not is_whole:
        raise SystemExit("not all trials were run; run it again with the same --keep to resume")
    if options.share == 1 and not options.only and options.number is None:
        Path(options.report).write_text(text + "\n", encoding="utf-8")
    raise SystemExit(any(each.broken for each in results))


if __name__ == "__main__":
    main()
