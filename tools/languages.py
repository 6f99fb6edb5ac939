"""Count the table of languages that `undivided check` ships, on catalogues of free software.

    python tools/languages.py WHEEL… [--output src/undivided/data/check/languages.table]

Wheels: those of Django, Home Assistant and its frontend, Wagtail, Django REST framework and Sphinx (BSD, Apache), by pip
download. Only counts of hashed words and of their first and last letters are kept, never text.
"""

from __future__ import annotations

import argparse
import json
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from undivided.data.check.block import Block
from undivided.data.check.languages import BUCKETS, SCALE, plain_code, word_buckets
from undivided.formats import open_document

ROOT = Path(__file__).resolve().parent.parent
LATIN = "en de fr es it pt nl sv da no is fi et hu pl cs sk sl hr ro tr ca gl eu lt lv id vi ga cy sq af az"
OTHERS = "ru uk bg mk sr be mn kk ar fa ur ug hi ne mr"
LANGUAGES = [*LATIN.split(), *OTHERS.split()]
UNSEEN = 0.1
"""Share of probability that comes from all languages together, so that no word is impossible in one."""

FEW = 4
"""What occurred more seldom says nothing."""


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for each in value.values():
            yield from texts_of(each)
    elif isinstance(value, str) and "[%key" not in value:
        yield " ".join(value.split())


def read_wheel(path: Path) -> Iterator[tuple[str, str]]:
    """(language, text) of the catalogues of a wheel."""
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if found := re.search(r"translations/(?:.*/)?([A-Za-z]{2,3}(?:[-_][A-Za-z]+)?)(?:-[0-9a-f]{16,})?\.json$", name):
                for text in texts_of(json.loads(archive.read(name))):
                    yield column(found[1]), text
            elif found := re.search(r"locale/([A-Za-z_]+)/LC_MESSAGES/.*\.po$", name):
                for segment in open_document(archive.read(name), "po", name=name).segments():
                    if segment.state == "done":
                        yield column(found[1]), " ".join(segment.target.split())
                        yield "en", " ".join(segment.text.split())


def column(code: str) -> str:
    return "hr" if code.lower().replace("_", "-").startswith("sr-lat") else plain_code(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=ROOT / "src" / "undivided" / "data" / "check" / "languages.table")
    options = parser.parse_args()
    texts: dict[str, dict[str, None]] = defaultdict(dict)
    for wheel in options.wheels:
        for language, text in read_wheel(wheel):
            texts[language][text] = None
    counts = np.zeros((3, BUCKETS, len(LANGUAGES)))
    for number, language in enumerate(LANGUAGES):
        lines = [text for text in texts[language] if language == "en" or text not in texts["en"]]
        for kind, buckets in enumerate(word_buckets(Block(lines))):
            counts[kind, :, number] = np.bincount(buckets, minlength=BUCKETS)
        print(language, f"{len(lines):,} texts, {counts[0, :, number].sum():,.0f} words")
    anywhere = counts.sum(axis=2, keepdims=True) / counts.sum(axis=(1, 2), keepdims=True)
    chance = np.log((1 - UNSEEN) * counts / counts.sum(axis=1, keepdims=True) + UNSEEN * anywhere + 1e-7)
    weights = np.clip(np.round((chance - chance.mean(axis=2, keepdims=True)) * SCALE), -127, 127).astype(np.int8)
    weights[counts.sum(axis=2) < FEW] = 0
    head = json.dumps({"languages": LANGUAGES, "counted_on": sorted(path.name for path in options.wheels)})
    options.output.write_bytes(head.encode() + b"\n" + zlib.compress(weights.tobytes(), 9))
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
