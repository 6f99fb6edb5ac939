"""Documents ↔ segments: each format a file behind one contract, and what must not be translated protected."""

from __future__ import annotations

from undivided.formats.contract import Document, DocumentOptions, Marked, Segment, Tag
from undivided.formats.document import format_names, format_of, open_document

__all__ = ["Document", "DocumentOptions", "Marked", "Segment", "Tag", "format_names", "format_of", "open_document"]
