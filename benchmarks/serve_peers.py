"""LibreTranslate with the same weights, beside our server: its own program if it can be installed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def measure_peers(base: Path, texts: list[str], some: list[str], known: Any, options: argparse.Namespace) -> list[str]:
    """Nothing yet."""
    return []
