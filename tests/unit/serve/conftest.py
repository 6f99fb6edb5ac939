"""A server as a process of its own, and ways to talk to it."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from samples import environment


class Running:
    """A server that runs: its address, its process, what it wrote on stderr."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None, seconds: float = 600) -> None:
        command = [sys.executable, "-m", "undivided", "serve", *arguments, "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(**(env or {})))
        assert self.process.stderr is not None
        self.log: list[str] = []
        late = threading.Timer(seconds, self.process.kill)
        late.daemon = True
        late.start()
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"serving at (http://\S+?)/ ", line):
                self.url = found[1]
                break
        else:
            raise AssertionError("".join(self.log))
        late.cancel()
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr or ()), daemon=True)
        self.reader.start()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def post(self, path: str, **more: Any) -> requests.Response:
        return requests.post(self.url + path, timeout=60, **more)

    def get(self, path: str, **more: Any) -> requests.Response:
        return requests.get(self.url + path, timeout=60, **more)

    def translate(self, q: Any, **more: Any) -> Any:
        return self.post("/translate", json={"q": q, "source": "en", "target": "de"} | more).json()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextlib.contextmanager
def run_server(*arguments: str, env: dict[str, str] | None = None, seconds: float = 600) -> Iterator[Running]:
    running = Running(*arguments, env=env, seconds=seconds)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
        running.reader.join(10)
        assert running.process.stderr is not None
        running.process.stderr.close()


@pytest.fixture(scope="session")
def serve() -> Callable[..., Any]:
    return run_server


@pytest.fixture(scope="session")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """English → German and, by the same weights under another name, German → French. Without a rate limit."""
    suggestions = tmp_path_factory.mktemp("suggestions") / "suggestions.tmx"
    settings = ["--req-limit", "-1", "--suggestions", "--suggestions-file", str(suggestions), "--threads", "1"]
    with run_server(str(model), f"de-fr={model}", *settings) as running:
        running.suggestions = suggestions  # type: ignore[attr-defined]
        yield running
