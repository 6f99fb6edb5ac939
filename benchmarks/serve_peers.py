"""LibreTranslate with the same weights, beside our server: its own program, in a venv of its own."""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
from measure import ROOT, table

VERSION = "1.9.6"

LAUNCH = """
import argostranslate.translate as t
class Whole:
    def __init__(self, package): pass
    def split_sentences(self, text): return [text]
t.MiniSBDSentencizer = Whole
from libretranslate.main import main
main()
"""
"""LibreTranslate downloads its sentence splitter; without it each text is one sentence, which is less work."""


def peer_python() -> Path | None:
    """The Python in which LibreTranslate is installed, or can be; None where it cannot."""
    home = ROOT / ".venv-peers" / "libretranslate"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"libretranslate=={VERSION}"]
    check = [python, "-c", "import libretranslate"]
    if subprocess.run(check, capture_output=True, check=False).returncode:
        subprocess.run(install, capture_output=True, check=False)
    return python if not subprocess.run(check, capture_output=True, check=False).returncode else None


def install_packages(model: Path, home: Path) -> None:
    """Our model as an Argos package, and once more under another pair: LibreTranslate wants two."""
    packages = home / ".local" / "share" / "argos-translate" / "packages"
    packages.mkdir(parents=True)
    measure.undivided("export", str(model), str(home / "m.argosmodel"), "--to", "argos", "--weights", "int8", "--quiet")
    with zipfile.ZipFile(home / "m.argosmodel") as archive:
        archive.extractall(packages)
    (there,) = packages.iterdir()
    back = shutil.copytree(there, packages / "translate-de_en-1_0")
    text = (back / "metadata.json").read_text()
    text = text.replace('"from_code": "en"', '"from_code": "?"').replace('"to_code": "de"', '"to_code": "en"')
    (back / "metadata.json").write_text(text.replace('"from_code": "?"', '"from_code": "de"'))


class LibreTranslate:
    """Its server as a process."""

    def __init__(self, python: Path, home: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [str(python), "-c", LAUNCH, "--host", "127.0.0.1", "--port", str(self.port), "--disable-web-ui"]
        environment = {**os.environ, "HOME": str(home)}
        environment.pop("PYTHONPATH", None)
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.time() + 300
        while time.time() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.5)
        raise SystemExit("LibreTranslate does not start")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def compare(tiny: Path, texts: list[str], rounds: int, start: Callable[..., Any], load: Callable[..., dict[str, Any]]) -> list[str]:
    """The same load on both servers, in turns."""
    python = peer_python()
    if python is None:
        return ["## LibreTranslate", "", f"LibreTranslate {VERSION} cannot be installed here.", ""]
    rates: dict[str, list[float]] = {"undivided serve": [], f"LibreTranslate {VERSION}": []}
    bad: dict[str, int] = dict.fromkeys(rates, 0)
    times: dict[str, list[float]] = {name: [] for name in rates}
    with tempfile.TemporaryDirectory(prefix="undivided-peer-") as folder, start() as ours:
        install_packages(tiny, Path(folder))
        theirs = LibreTranslate(python, Path(folder))
        try:
            for turn in range(rounds + 1):
                for name, port in zip(rates, (ours.port, theirs.port), strict=True):
                    done = load(port, texts, clients=64, count=len(texts))
                    if not turn:
                        continue  # The first loads their model.
                    rates[name].append(len(texts) / done["seconds"])
                    times[name] += [each[4] for each in done["answers"]]
                    bad[name] += sum(each[1] != 200 for each in done["answers"])
        finally:
            theirs.stop()
    ratio = statistics.median(a / b for a, b in zip(*rates.values(), strict=True))
    rows = [
        [name, f"{statistics.median(each):.1f}", f"{statistics.median(times[name]):.2f}", f"{max(times[name]):.2f}", str(bad[name])]
        for name, each in rates.items()
    ]
    return [
        "## LibreTranslate", "",
        f"{len(texts)} sentences by 64 clients, the same tiny model in int8, {rounds} rounds in turns. LibreTranslate itself, but "
        "that each text is one sentence: its splitter would have to be downloaded.", "",
        *table(["", "sentences/s", "median s", "worst s", "not 200"], rows), "", f"Ours is {ratio:.2f} times as fast.", "",
    ]  # fmt: skip
