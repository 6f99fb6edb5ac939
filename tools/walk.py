"""Write docs/walk from the stations of the live page: python tools/walk.py"""

from __future__ import annotations

from pathlib import Path

from undivided.core.files import write_atomic
from undivided.look.walk import LANGUAGES, walk_page

DOCS = Path(__file__).resolve().parents[1] / "docs" / "walk"

if __name__ == "__main__":
    for language in LANGUAGES:
        name = "README.md" if language == "en" else f"README.{language}.md"
        write_atomic(DOCS / name, walk_page(language))
        print(DOCS / name)
