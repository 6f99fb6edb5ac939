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
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Some virtual machines announce AMX and don't grant it: half-precision products of torch would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from attacks import engines, folders, places, sanitizer, streams, texts, trainings, verbs
from attacks.command import Patience
from attacks.pool import Result, run_trials
from attacks.report import describe
from attacks.trial import Attack
from attacks.world import build_world

ROOT = Path(__file__).resolve().parent.parent
QUIET_SECONDS = 40
"""That the models take on two cores with nothing else to do; where they take longer, all time limits of trials are longer too."""
MODULES = [folders, trainings, texts, streams, places, verbs, engines, sanitizer]


def import_everything() -> None:
    """What trials would import, so that each fork has it already."""
    import ctranslate2  # noqa: F401

    import undivided

    for module in pkgutil.walk_packages(undivided.__path__, "undivided."):
        if not module.name.endswith(("__main__", ".trial")):
            importlib.import_module(module.name)
    # Other users, whom some trials become, cannot read the cache.
    importlib.import_module("undivided.nn.backend.library").load_library()
    gc.freeze()


def use_own_cache(home: Path) -> None:
    """Keep out of the user's cache, but take compiled kernels from it."""
    known = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "undivided"
    (home / "undivided").mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in known.glob("kernels-*"):
        shutil.copy2(path, home / "undivided")
    os.environ["XDG_CACHE_HOME"] = str(home)


def attack(chosen: list[Attack], home: Path, options: argparse.Namespace) -> list[Result]:
    """Make what is attacked, and run the trials."""
    began, scratch = time.monotonic(), home / "trials"
    home.chmod(0o755)
    scratch.mkdir()
    use_own_cache(Path(options.world).parent / "cache" if options.world else home / "cache")
    import_everything()
    world = build_world(Path(options.world) if options.world else home / "world")
    world.right["base"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    took = time.monotonic() - began
    Patience.factor = 1.0 if options.world else max(1.0, took / QUIET_SECONDS)
    print(f"everything to attack was made in {took:.0f} s; limits × {Patience.factor:.1f}", file=sys.stderr, flush=True)
    counts = [(each, max(1, round(each.count * options.share))) for each in chosen]
    one = options.number
    return run_trials(
        [(each, range(count) if one is None else [one]) for each, count in counts], world, scratch, options.seed, options.jobs
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="this share of the trials of each attack, at least one")
    parser.add_argument("--only", nargs="*", help="attacks by name")
    parser.add_argument("--number", type=int, help="one trial of each attack")
    parser.add_argument("--world", help="a folder in which the models are kept between runs of a trial")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report", default=str(ROOT / "docs" / "adversary.md"))
    options = parser.parse_args()
    began = time.monotonic()
    chosen: list[Attack] = [each for module in MODULES for each in module.ATTACKS if not options.only or each.name in options.only]
    # No TemporaryDirectory: forks that end as Python ends would remove it.
    home = Path(tempfile.mkdtemp(prefix="undivided-adversary-"))
    try:
        results = attack(chosen, home, options)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    text = describe(results, f"benchmarks/adversary.py --seed {options.seed}", time.monotonic() - began)
    print(text)
    if options.share == 1 and not options.only and options.number is None:
        Path(options.report).write_text(text + "\n", encoding="utf-8")
    raise SystemExit(any(each.broken for each in results))


if __name__ == "__main__":
    main()
