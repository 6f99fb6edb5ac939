"""The verdicts of a run of trials on disk, so that it can be stopped and resumed: on a busy machine it takes several sittings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


class Journal:
    """One line of JSON for each trial and each sitting; those of another seed or of other code do not count."""

    def __init__(self, path: Path | None, seed: int) -> None:
        self.path, self.key = path, f"{seed}:{digest_code()}"

    def add(self, **facts: Any) -> None:
        """Write a line down, now."""
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"run": self.key} | facts) + "\n")

    def read(self) -> Iterator[dict[str, Any]]:
        """The lines of this run; one that a kill cut off is none."""
        if self.path is None or not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                facts = json.loads(line)
            except ValueError:
                continue
            if facts.get("run") == self.key:
                yield facts


def digest_code() -> str:
    """sha256 of the package and of the attacks."""
    found = hashlib.sha256()
    for folder in (ROOT / "src" / "undivided", ROOT / "benchmarks" / "attacks"):
        for path in sorted(folder.rglob("*.[pch]*")):
            if path.suffix in (".py", ".c", ".h") and path.name != "report.py":
                found.update(path.read_bytes())
    return found.hexdigest()[:16]
