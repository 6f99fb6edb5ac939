"""Corrections by clients, kept as a TMX file to train from."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from undivided.core.errors import InputError
from undivided.core.files import read_bounded, write_atomic
from undivided.core.locks import lock_folder
from undivided.serve.errors import Refusal

MOST_BYTES = 50_000_000
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
END = "  </body>\n</tmx>\n"
START = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n  <header creationtool="undivided" creationtoolversion="1" '
    'segtype="block" o-tmf="none" adminlang="en" srclang="*all*" datatype="plaintext"/>\n  <body>\n'
)


def add_suggestion(path: str, locks: Path, pair: Sequence[tuple[str, str]]) -> None:
    """Add a pair, each side a language and a text; the file is complete at any time. Workers take turns by a lock in `locks`."""
    deadline = time.monotonic() + 5
    while True:
        try:
            with lock_folder(locks / "suggestions", "held"):
                _append(Path(path), pair)
                return
        except InputError as error:
            if str(error) != "held" or time.monotonic() > deadline:
                raise Refusal(503, "Suggestions cannot be kept now", retry_after=1) from None
            time.sleep(0.02)


def _append(file: Path, pair: Sequence[tuple[str, str]]) -> None:
    before = read_bounded(file, MOST_BYTES).decode("utf-8") if file.exists() else START + END
    if not before.endswith(END) or len(before) > MOST_BYTES - 1_000_000:
        raise Refusal(503, "Suggestions cannot be kept: the file is full, or was changed by another program")
    sides = "".join(
        f"      <tuv xml:lang={quoteattr(code)}><seg>{escape(NOT_XML.sub(' ', text))}</seg></tuv>\n" for code, text in pair
    )
    write_atomic(file, f"{before.removesuffix(END)}    <tu>\n{sides}    </tu>\n{END}")
