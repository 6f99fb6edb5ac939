"""The C kernels with AddressSanitizer and UndefinedBehaviorSanitizer, while the tests of kernels, models and training run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from attacks.command import patient
from attacks.trial import Attack, Broken, Trial, Verdict

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = [
    "tests/unit/nn/test_kernels.py",
    "tests/unit/nn/test_backend.py",
    "tests/unit/nn/test_bfloat16_products.py",
    "tests/unit/models",
    "tests/reference/test_training_steps.py",
    "tests/reference/test_loss_curve.py",
    "tests/reference/test_search_laws.py",
    "tests/unit/inference/test_search.py",
    "tests/unit/inference/test_int8.py",
    "tests/unit/training/test_train.py",
    "tests/paper",
]
BUILDS = "compiler or cache or ratio"
"""Tests that compile the kernels again and again, or measure time."""

SECONDS = 400
"""That a file of tests may take."""

BUILD_SECONDS = 400
"""That the compiler may take, which is longer with sanitizers than the package waits for it."""

BUILD = "from undivided.nn import library; library.COMPILE_TIMEOUT = {}; print(library.why_no_kernels() or 'built')"

WRAPPER = '#!/bin/sh\nexec cc -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g "$@"\n'


def run_sanitized(trial: Trial) -> str:
    """One file of tests."""
    number = int(trial.folder.name.rpartition("-")[2])
    libraries = [find_library(name) for name in ("libasan.so", "libubsan.so")]
    if None in libraries:
        return "skipped: there is no cc with libasan and libubsan here"
    home = trial.folder.parent.parent / "sanitized"
    home.mkdir(exist_ok=True)
    compiler = home / "cc-sanitized"
    if not compiler.exists():
        fresh = trial.folder / compiler.name
        fresh.write_text(WRAPPER)
        fresh.chmod(0o755)
        fresh.replace(compiler)
    logs = trial.folder / "sanitizer"
    env = os.environ | {
        "CC": str(compiler),
        "LD_PRELOAD": " ".join(map(str, libraries)),
        "ASAN_OPTIONS": f"detect_leaks=0,exitcode=99,allocator_may_return_null=1,log_path={logs}",
        "UBSAN_OPTIONS": f"halt_on_error=1,print_stacktrace=1,log_path={logs}",
        "XDG_CACHE_HOME": str(home / "cache"),
    }
    env.pop("OMP_NUM_THREADS", None)
    build = [sys.executable, "-P", "-c", BUILD.format(patient(BUILD_SECONDS))]
    built = subprocess.run(build, cwd=home, env=env, capture_output=True, text=True, check=False)
    # Without them every test would pass, and prove nothing.
    trial.check(built.stdout == "built\n", f"the kernels were not built with sanitizers: {built.stdout}{built.stderr[-500:]}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", FILES[number], "-k", f"not ({BUILDS})"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=patient(SECONDS), check=False)
    reports = [path.read_text(errors="replace") for path in trial.folder.glob("sanitizer.*")]
    real = [text for text in reports if "ERROR: " in text or "runtime error" in text]
    if real or done.returncode == 99 or done.returncode < 0:
        raise Broken(Verdict.ABORT, f"{FILES[number]}: exit code {done.returncode}: {(real or [done.stdout])[0][-1500:]}")
    trial.check(done.returncode == 0, f"{FILES[number]}: {done.stdout[-1500:]}")
    found = re.search(r"(\d+) passed", done.stdout)
    if found is None:
        return f"skipped: {FILES[number].removeprefix('tests/')} has no test that this processor can run"
    return f"{FILES[number].removeprefix('tests/')}: {found[1]} tests"


def find_library(name: str) -> Path | None:
    """Where the compiler has a library of its own."""
    if shutil.which("cc") is None:
        return None
    path = Path(subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip())
    return path if path.is_absolute() and path.exists() else None


ATTACKS = [
    Attack(
        "sanitized kernels", "24 asan",
        "the C kernels with AddressSanitizer and UndefinedBehaviorSanitizer in the tests of kernels, models, search and training: "
        "no report",
        len(FILES), run_sanitized, SECONDS + BUILD_SECONDS + 20,
    ),
]  # fmt: skip
