"""What several tests share: one tiny trained model, and ways to run the command."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from samples import environment, sentences, tiny_recipe, write_pairs
from undivided.cli import main

# A shell starts what it runs in the background deaf to Ctrl-C, and processes inherit that: the tests send it to theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Some virtual machines announce AMX and don't grant it: half-precision products of torch would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


def use_own_cache() -> None:
    """Converted models of tests stay out of the user's cache; kernels that are built are taken from it, since that takes long."""
    home = Path(tempfile.mkdtemp(prefix="undivided-tests-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    known = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "undivided"
    (home / "undivided").mkdir(mode=0o700)
    for path in known.glob("*-*"):
        if path.is_file():
            shutil.copy2(path, home / "undivided")
    os.environ["XDG_CACHE_HOME"] = str(home)


use_own_cache()


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run the command in this process: exit code, stdout, stderr."""

    def call(*arguments: str | Path) -> Ran:
        capfd.readouterr()
        code = main([str(each) for each in arguments])
        return Ran(code, *capfd.readouterr())

    return call


@pytest.fixture(scope="session")
def spawn() -> Callable[..., subprocess.Popen[bytes]]:
    """Start the command as a process of its own, with pipes."""

    def start(*arguments: str | Path, **more: Any) -> subprocess.Popen[bytes]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, "-m", "undivided", *map(str, arguments)]
        return subprocess.Popen(command, env=environment(), **(pipes | more))

    return start


@pytest.fixture(scope="session")
def python() -> Callable[..., str]:
    """Run some Python in a fresh process: what it prints."""

    def call(code: str, *arguments: str | Path, **env: str) -> str:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.run(command, env=environment(**env), check=True, capture_output=True, text=True).stdout

    return call


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A file system with little space, as a function of its size."""
    homes = []

    def mount(size: str) -> Path:
        home = tmp_path / f"disk-{size}"
        home.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", home], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"a small file system cannot be mounted here: {done.stderr.decode().strip()}")
        homes.append(home)
        return home

    yield mount
    for home in homes:
        subprocess.run(["umount", home], check=True)


@pytest.fixture
def read_only() -> Iterator[Callable[[Path], Path]]:
    """Make a folder read-only for everybody, root included, until the test ends."""
    homes: list[Path] = []

    def shut(home: Path) -> Path:
        if os.geteuid():
            home.chmod(0o555)
        else:
            for options in (["--bind", home, home], ["-o", "remount,ro,bind", home]):
                done = subprocess.run(["mount", *options], capture_output=True, check=False)
                if done.returncode:
                    pytest.skip(f"a read-only file system cannot be mounted here: {done.stderr.decode().strip()}")
        homes.append(home)
        return home

    yield shut
    for home in homes:
        if os.geteuid():
            home.chmod(0o755)
        else:
            subprocess.run(["umount", home], check=True)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one tiny trained model, with its training beside it. Read only: copy it to change it."""
    from undivided.core.console import Console
    from undivided.training.loop import train

    home = tmp_path_factory.mktemp("model")
    recipe = tiny_recipe(home / "m", write_pairs(home, "train", sentences(300)), write_pairs(home, "valid", sentences(20, seed=2)))
    recipe["train"]["max_steps"] = 400
    recipe["model"]["norm"] = "pre"
    return train(recipe, Console(quiet=True))


@pytest.fixture(scope="session")
def translator(model: Path) -> Any:
    from undivided import Translator

    return Translator(model, threads=1, engine="torch")
