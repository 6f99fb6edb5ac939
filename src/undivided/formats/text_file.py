"""Bytes ↔ text, without loss: what was read as text is written as the same bytes."""

from __future__ import annotations

import codecs
from typing import NamedTuple

from undivided.core.errors import InputError

MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class TextFile(NamedTuple):
    """The text of a file, and how it was written."""

    name: str
    text: str
    codec: str
    mark: bytes
    """The byte-order mark, or nothing."""
    errors: str = "strict"

    def encode(self, text: str) -> bytes:
        """A text as the file writes it."""
        try:
            return self.mark + text.encode(self.codec, self.errors)
        except UnicodeEncodeError as error:
            letter = error.object[error.start]
            raise InputError(
                f"{self.name}: {letter!r} cannot be written as {self.codec}; convert the file to UTF-8 first"
            ) from None


def read_text(data: bytes, name: str, codec: str = "", errors: str = "strict") -> TextFile:
    """Decode a file: by its byte-order mark, else as `codec`, else as UTF-8, whose broken bytes are carried through.

    `errors` is what becomes of characters that the file's encoding does not have.
    """
    for mark, found in MARKS:
        if data.startswith(mark):
            return _decode(data[len(mark) :], name, found, mark, errors)
    return _decode(data, name, codec or "utf-8", b"", errors)


def _decode(data: bytes, name: str, codec: str, mark: bytes, errors: str) -> TextFile:
    carried = codec.lower().replace("_", "-") in ("utf-8", "utf8", "ascii", "us-ascii") and errors == "strict"
    try:
        text = data.decode(codec, "surrogateescape" if carried else "strict")
        result = TextFile(name, text, codec, mark, "surrogateescape" if carried else errors)
        if result.encode(text) != mark + data:
            raise InputError(f"{name}: its encoding, {codec}, cannot be read and written without loss; convert it to UTF-8 first")
        return result
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}, line {line:,}: not valid {codec}") from None
    except (LookupError, ValueError):
        raise InputError(f"{name}: unknown encoding {codec!r}; convert the file to UTF-8 first") from None


def has_broken_bytes(text: str) -> bool:
    """Whether bytes of this text were not valid UTF-8."""
    return any("\udc80" <= letter <= "\udcff" for letter in text) if not text.isascii() else False


def readable(text: str) -> str:
    """A text for a model: broken bytes and NUL are read as \\ufffd."""
    return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" or letter == "\0" else letter for letter in text)
