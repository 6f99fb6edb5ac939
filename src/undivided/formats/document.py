"""Opening a document of any format: by its name, or as a person says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from undivided.core.errors import InputError
from undivided.core.files import read_bounded
from undivided.formats.android import parse_android
from undivided.formats.apple_strings import parse_strings
from undivided.formats.contract import Document, DocumentOptions, Marked, Segment, SplicedText, apply_edits, as_marked
from undivided.formats.html import parse_html, read_html
from undivided.formats.json_catalogue import parse_json_catalogue, parse_jsonl
from undivided.formats.markdown import parse_markdown
from undivided.formats.office import OFFICE_FORMATS, OfficeDocument
from undivided.formats.plain import parse_plain
from undivided.formats.po import parse_po, read_po
from undivided.formats.qt_ts import parse_ts
from undivided.formats.subtitles import parse_srt, parse_vtt
from undivided.formats.table import parse_csv, parse_tsv
from undivided.formats.text_file import TextFile, read_text
from undivided.formats.tmx import parse_tmx
from undivided.formats.xliff import parse_xliff
from undivided.formats.xml_file import read_xml
from undivided.formats.yaml_catalogue import parse_yaml

MAX_BYTES = 512 << 20
"""The largest document that is translated; a TMX to train from may be larger."""


class TextFormat(NamedTuple):
    """A format that is edited in place as text."""

    suffixes: tuple[str, ...]
    parse: Callable[[TextFile, DocumentOptions], SplicedText]
    read: Callable[[bytes, str], TextFile] = read_text
    is_bilingual: bool = True
    """Whether a file holds sources and their targets; else targets take the place of sources."""


TEXT_FORMATS: dict[str, TextFormat] = {
    "text": TextFormat((".txt",), parse_plain, is_bilingual=False),
    "tsv": TextFormat((".tsv",), parse_tsv),
    "csv": TextFormat((".csv",), parse_csv),
    "jsonl": TextFormat((".jsonl", ".ndjson"), parse_jsonl),
    "po": TextFormat((".po", ".pot"), parse_po, read_po),
    "xliff": TextFormat((".xlf", ".xliff"), parse_xliff, read_xml),
    "ts": TextFormat((".ts",), parse_ts, read_xml),
    "tmx": TextFormat((".tmx",), parse_tmx, read_xml),
    "android": TextFormat((".xml",), parse_android, read_xml, is_bilingual=False),
    "strings": TextFormat((".strings",), parse_strings, is_bilingual=False),
    "srt": TextFormat((".srt",), parse_srt, is_bilingual=False),
    "vtt": TextFormat((".vtt",), parse_vtt, is_bilingual=False),
    "json": TextFormat((".json", ".arb"), parse_json_catalogue, is_bilingual=False),
    "yaml": TextFormat((".yaml", ".yml"), parse_yaml, is_bilingual=False),
    "html": TextFormat((".html", ".htm", ".xhtml"), parse_html, read_html, is_bilingual=False),
    "markdown": TextFormat((".md", ".markdown"), parse_markdown, is_bilingual=False),
}


class TextDocument:
    """A document that is edited in place: what is not translated stays byte for byte."""

    def __init__(self, format: str, data: bytes, name: str, options: DocumentOptions) -> None:
        self.format = format
        self.file = TEXT_FORMATS[format].read(data, name)
        self.content = TEXT_FORMATS[format].parse(self.file, options)
        self.source_lang, self.target_lang = self.content.source_lang, self.content.target_lang

    def segments(self) -> Sequence[Segment]:
        """All texts that may be translated, in the order of the file."""
        return [segment for unit in self.content.units for segment in unit.segments]

    def save(self, translations: Mapping[int, Marked | str], approve: bool = False) -> bytes:
        """The file with these translations."""
        edits = self.content.edits(as_marked(translations), approve)
        return self.file.encode(apply_edits(self.file.text, edits))


def format_names() -> list[str]:
    """The names of all formats."""
    return [*TEXT_FORMATS, *OFFICE_FORMATS]


def format_of(name: str | Path) -> str:
    """The format that a file's name tells; empty where it tells none."""
    suffix = Path(name).suffix.lower()
    if suffix.removeprefix(".") in OFFICE_FORMATS:
        return suffix[1:]
    return next((format for format, each in TEXT_FORMATS.items() if suffix in each.suffixes), "")


def open_document(
    source: str | Path | bytes, format: str = "", options: DocumentOptions | None = None, name: str = "document"
) -> Document:
    """A document, from a file or from bytes; `InputError` with file and line where it cannot be read."""
    options = options or DocumentOptions()
    if isinstance(source, bytes):
        data = source
    else:
        name, format = str(source), format or format_of(source)
        data = read_file(Path(source))
    if not format:
        raise InputError(f"{name}: its name tells no format; say it with --format: {', '.join(format_names())}")
    if format not in format_names():
        raise InputError(f"--format {format}: no such format; there are: {', '.join(format_names())}")
    return (OfficeDocument if format in OFFICE_FORMATS else TextDocument)(format, data, name, options)


def read_file(path: Path) -> bytes:
    """The bytes of a document, within bounds."""
    try:
        return read_bounded(path, MAX_BYTES)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
