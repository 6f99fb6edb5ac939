"""`undivided translate` for whole documents."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from undivided.cli.aids import open_translator, use_aids
from undivided.cli.running import Stop, describe_search
from undivided.core.console import Console, LimitedWarnings, Progress, plural
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.core.signals import Stopped, stop_in_time

if TYPE_CHECKING:
    from undivided.formats import DocumentOptions
    from undivided.inference.documents import DocumentResult
    from undivided.inference.search_settings import SearchChanges
    from undivided.inference.translator import Translator

LINES = "lines"
"""The format of text that is translated line by line, without being read as a document."""


def add_document_options(verb: argparse.ArgumentParser) -> None:
    """The options of documents."""
    verb.add_argument(
        "--format",
        metavar="NAME",
        help="read FILE as this format: lines, po, xliff, html, docx, … (default: by its name, else lines)",
    )
    verb.add_argument("--all", action="store_true", help="in a document, also redo what is translated already")
    verb.add_argument("--approve", action="store_true", help="do not mark new translations as fuzzy or in need of review")
    verb.add_argument(
        "--columns", metavar="SOURCE[,TARGET]", help="names of the columns of a CSV or TSV file, or of the keys of a JSONL file"
    )


def document_format(options: argparse.Namespace) -> str:
    """The format of a document; empty for text that is translated line by line."""
    from undivided.formats import format_names, format_of

    found = options.format or (format_of(options.file) if options.file != "-" else "")
    if options.format and found not in (LINES, *format_names()):
        raise InputError(f"--format {found}: no such format; there are: {', '.join([LINES, *format_names()])}")
    if not options.format and found == "text":
        found = LINES
    if found in ("", LINES):
        for name in ("all", "approve", "columns"):
            if getattr(options, name):
                raise InputError(f"--{name} is for documents, and {options.file} is text; name its format with --format")
        return ""
    for name in ("prefix", "scores", "workers", "ray", "n_best"):
        if getattr(options, name, None):
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} is for lines of text, not for a document ({found}); leave it out, or use --format {LINES}")
    return str(found)


def run_document(options: argparse.Namespace, search: SearchChanges, console: Console, format: str) -> None:
    """Translate a document; nothing is written unless all of it was translated."""
    from undivided.formats import open_document
    from undivided.inference.documents import judge_segment, translate_document
    from undivided.inference.report import open_account
    from undivided.inference.translator import Translation

    if options.output != "-" and not Path(options.output).parent.is_dir():
        raise InputError(f"{Path(options.output).parent}: no such directory")
    source = _read_stdin() if options.file == "-" else options.file
    translator = open_translator(options, console)
    use_aids(translator, options, console)
    document = open_document(source, format, _options(options, translator), "stdin")
    console.say(describe_search(translator, search))
    progress = Progress(console, "translated sentences", None)
    refused = "stopped; nothing is written, because it would be incomplete"
    stop = Stop(translator.engine.is_parallel, refused)
    with stop_in_time(stop.ask):
        result = translate_document(translator, document, options.all, options.approve, progress.advance, stop.is_asked, **search)
        if result is None:
            console.clear()
            raise Stopped(stop.number, refused)
        _write(options.output, result.data)
    console.clear()
    _report(result, translator, console)
    with open_account(options.report) as account:
        for each in result.results:
            # Of a segment of several sentences, what the model was least sure of.
            raws = [sentence.raw for sentence in each.sentences if isinstance(sentence.raw, Translation)]
            raw = min(raws, key=lambda found: found.confidence, default=None)
            verdict = judge_segment(each, translator.usual)
            account.add(each.segment.number + 1, each.segment.text, each.target.text, verdict, raw, translator.memory)
    account.close(console, options.strict, bool(options.report))


def _options(options: argparse.Namespace, translator: Translator) -> DocumentOptions:
    from undivided.formats import DocumentOptions

    data = translator.artifact.recipe.data
    source, _, target = (options.columns or "").partition(",")
    return DocumentOptions(data.source_lang, data.target_lang, source.strip(), target.strip())


def _read_stdin() -> bytes:
    from undivided.formats.document import MAX_BYTES

    with open(0, "rb", closefd=False) as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InputError(f"stdin: more than {MAX_BYTES:,} bytes")
    return data


def _write(name: str, data: bytes) -> None:
    if name != "-":
        write_atomic(Path(name), data)
        return
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _report(result: DocumentResult, translator: Translator, console: Console) -> None:
    """What a person should know of each segment, and a summary."""
    data, document = translator.artifact.recipe.data, result.document
    if document.source_lang and data.source_lang and document.source_lang[:2].lower() != data.source_lang[:2].lower():
        console.warn(f"the document says that its language is {document.source_lang}, but the model translates {data.source_lang}")
    warnings = LimitedWarnings(console)
    for remark in result.remarks():
        warnings.add(remark)
    warnings.close()
    console.say(
        f"{plural(len(document.segments()), 'segment')}: {len(result.results):,} translated, {result.left:,} left as they are"
    )
