"""Random harm to documents of every format: each must be refused in a sentence, or read and written as it should.

Used by `benchmarks/formats.py` (`make prove-formats`) with many documents, and by the tests with some.
"""

from __future__ import annotations

import io
import random
import signal
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from undivided.core.errors import InputError
from undivided.formats import Document, DocumentOptions, open_document
from undivided.formats.walk import SegmentResult, WalkOptions, choose_segments, save_document, translate_segments
from undivided.formats.xml_file import FORBIDDEN

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "unit" / "formats"))
from catalogues import CATALOGUES
from office_files import OFFICE, pack
from test_pages import HTML, MARKDOWN

SECONDS, PATIENCE = 5, 120
"""A document of a few hundred bytes that takes more CPU time is a hang; and more time by the clock, on however busy a machine."""
PIECES = [b"<", b">", b"</", b"/>", b'"', b"'", b"\\", b"\n", b"\r\n", b"\0", b"\xff", b"&amp;", b"&x;", b"<!--",
          b"-->", b"<![CDATA[", b"]]>",
          b"{", b"}", b"[", b"]", b":", b",", b"%s", b"{name}", b"msgid", b"msgstr", b"#, fuzzy", b"|", b"- ", b"* ",
          b"_", b"`", b"```", b"--> ",
          "ä漢😀".encode(), b"\xef\xbb\xbf", b"\\u0041", b"\\ud800", b"<b>", b"</b>", b" ", b"\t", b"&", b"=", b"1",
          b"A. B"]  # fmt: skip
OPTIONS = DocumentOptions("en", "de")
SYMBOLS = [chr(0xE000 + number) for number in range(8)]


XML = {"xliff", "ts", "android"}
ONE_LANGUAGE = {"json", "strings", "yaml", "android"}
EXACT = {"po", "xliff", "ts", "jsonl", "csv"} | ONE_LANGUAGE
"""Formats that hold any text; of the others some is changed so that it fits, line breaks for example."""


class Answer(NamedTuple):
    text: str


def seeds() -> dict[str, list[bytes]]:
    """Whole documents of each format."""
    found: dict[str, list[bytes]] = {}
    for case in CATALOGUES.values():
        found.setdefault(case.format, []).append(case.before)
    for format, (data, _, _) in OFFICE.items():
        found[format] = [data]
    return found | {"html": [HTML.encode()], "markdown": [MARKDOWN.encode()]}


def harm(data: bytes, chance: random.Random) -> bytes:
    """One to four changes: bytes flipped, cut out, repeated, swapped or put in."""
    content = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place, size = chance.randrange(len(content) + 1), chance.choice((1, 1, 3, 10, 60))
        kind = chance.randrange(6)
        if kind == 0 and place < len(content):
            content[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del content[place : place + size]
        elif kind == 2:
            content[place:place] = content[place : place + size] * chance.choice((1, 2, 20))
        elif kind == 3:
            content[place:place] = chance.choice(PIECES)
        elif kind == 4:
            other = chance.randrange(len(content) + 1)
            content[place:place] = content[other : other + size]
        else:
            content = content[:place] if chance.random() < 0.2 else content
    return bytes(content)


def harm_document(format: str, data: bytes, chance: random.Random) -> bytes:
    """Harm to a document; of an archive more often to a member than to the archive itself."""
    if format not in OFFICE or chance.random() < 0.3:
        return harm(data, chance)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = chance.choice([each for each in members if each.endswith(("ml", "ncx"))])
    return pack(members | {name: harm(members[name], chance)})


def answer(texts: Sequence[str], chance: random.Random) -> list[Answer]:
    """Translations as a bad model makes them: with markup, line breaks and quotes in them, or empty."""
    odd = [
        "",
        "x",
        "a\nb",
        '"<b>&\\',
        "# - |",
        "-->",
        "漢字。",
        "  ",
        "'",
        "%s {x}",
        "{{",
        "1. a",
        "a: b #c",
        "\u2028",
        "]]>",
        "$\0",
    ]
    return [Answer(text.upper() if chance.random() < 0.5 else text + chance.choice(odd)) for text in texts]


@contextmanager
def time_limit() -> Iterator[None]:
    """TimeoutError where something takes too long, above all in CPU time, which other programs on the machine do not change."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {SECONDS} s of CPU time, or {PATIENCE} s")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, SECONDS), signal.SIGALRM: (signal.ITIMER_REAL, PATIENCE)}
    before = {number: signal.signal(number, stop) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def try_document(format: str, data: bytes, chance: random.Random) -> str:
    """What becomes of a document: `refused` or `translated`; AssertionError, or any other error, where something is wrong."""
    try:
        document = open_document(data, format, OPTIONS)
    except InputError as error:
        if "\n" in str(error):
            raise AssertionError(f"more than a line: {error}") from error
        return "refused"
    assert document.save({}) == data, "not byte-identical"
    segments = choose_segments(document, everything=True)
    results = translate_segments(segments, lambda texts: answer(texts, chance), WalkOptions(symbols=SYMBOLS), format=format)
    assert len(results) == len(segments), "a segment was lost"
    try:
        saved = save_document(document, results, approve=chance.random() < 0.5)
    except InputError as error:
        if "cannot be written as" not in str(error) and "damaged" not in str(error):
            raise AssertionError(str(error)) from error
        return "refused"
    again = open_document(saved, format, OPTIONS)
    assert again.save({}) == saved, "its translation is not byte-identical"
    if format in EXACT:
        check_texts(format, results, again)
    return "translated"


def check_texts(format: str, results: Sequence[SegmentResult], again: Document) -> None:
    """What was written is what is read: every translation, in order."""
    written = [FORBIDDEN.sub("\ufffd", each.target.text) if format in XML else each.target.text for each in results]
    read = [each.text if format in ONE_LANGUAGE else each.target for each in again.segments() if each.text.strip()]
    written = [each for each in written if each.strip() or format not in ONE_LANGUAGE]
    assert read == written, f"wrote {written}, read {read}"


class Fuzzed(NamedTuple):
    """What became of harmed documents of a format."""

    counts: Counter[str]
    """How many were `refused`, `translated` or `wrong`."""
    wrong: list[tuple[bytes, str]]
    slowest: float
    """Seconds of CPU time that the slowest took."""


def fuzz(format: str, count: int, seed: object = 1) -> Fuzzed:
    """Harm so many documents of a format, and try each."""
    chance, counts, wrong, slowest = random.Random(f"{format} {seed}"), Counter[str](), list[tuple[bytes, str]](), 0.0
    originals = seeds()[format]
    for _ in range(count):
        data = harm_document(format, chance.choice(originals), chance)
        start = time.process_time()
        try:
            with time_limit():
                counts[try_document(format, data, chance)] += 1
        except Exception as error:
            counts["wrong"] += 1
            wrong.append((data, f"{type(error).__name__}: {error}"))
        slowest = max(slowest, time.process_time() - start)
    return Fuzzed(counts, wrong, slowest)
