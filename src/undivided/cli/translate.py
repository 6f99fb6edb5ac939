"""`undivided translate`: lines of a file or of stdin."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undivided.cli.aids import add_aids, open_translator, use_aids
from undivided.cli.documents import add_document_options, document_format, run_document
from undivided.cli.options import add_compute, add_quiet, search_options
from undivided.cli.running import Stop, describe_search, warn_of_unused
from undivided.cli.streams import count_lines, input_lines, keep_apart, open_output
from undivided.config import SearchConfig
from undivided.config.flags import add_settings
from undivided.core.console import Console, LimitedWarnings, Progress
from undivided.core.errors import InputError
from undivided.core.process import argument_text
from undivided.core.signals import Stopped, stop_in_time
from undivided.data.encodings import advise, check_encoding
from undivided.data.text_files import COMPRESSED, read_lines

if TYPE_CHECKING:
    from undivided.inference.search_settings import SearchChanges


MANY_DAMAGED = 0.05
"""The share of lines that are not UTF-8 above which a file is likely in another encoding."""


def add_translate(verbs: Any) -> None:
    """`undivided translate`."""
    verb = verbs.add_parser(
        "translate",
        help="translate text, one line out for every line in, or a whole document",
        description="Translate a file or stdin: text line by line, in order, an empty line stays empty; or a document (PO, XLIFF, "
        "HTML, DOCX, …, see docs/files.md), known by its name: what is untranslated is filled, everything else stays as it is.",
    )
    verb.add_argument("model", help="a model folder")
    verb.add_argument(
        "file",
        nargs="?",
        default="-",
        help=f"file to translate, may be compressed ({' '.join(COMPRESSED)}); or, where there is no such file, the text itself "
        "(default: stdin)",
    )
    verb.add_argument("-o", "--output", default="-", metavar="OUT", help="file for the translations (default: stdout)")
    verb.add_argument(
        "--scores", action="store_true", help="write each translation as NUMBER SCORE TEXT, with tabs, as --n-best does"
    )
    verb.add_argument(
        "--encoding", default="", metavar="NAME", help="encoding of FILE, such as cp1252 (default: UTF-8, or UTF-16 if it says so)"
    )
    verb.add_argument(
        "--prefix", metavar="FILE", help="for each input line, a line of target text that its translation must start with"
    )
    verb.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="split FILE among N processes, each with --threads (default: 1); after a stop, run again to resume",
    )
    verb.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="split FILE among --workers of a Ray cluster; `local` starts one here (extra: ray)",
    )
    verb.add_argument(
        "--report",
        metavar="FILE",
        help="write an account of every segment to a .jsonl, .csv or .html file: source, translation, score, verdict and reason",
    )
    verb.add_argument(
        "--strict", action="store_true", help="exit with code 3 if any translation is not sound (other verdicts than ok, copied, …)"
    )
    add_aids(verb)
    add_document_options(verb)
    add_settings(verb, SearchConfig, default="the model's own")
    add_compute(verb, "auto")
    add_quiet(verb)
    verb.set_defaults(run=run_translate)


def run_translate(options: argparse.Namespace) -> None:
    """Translate lines, in this process or by several workers."""
    search = search_options(options)
    console = Console(options.quiet)
    text = _given_text(options, console)
    keep_apart(options.output, options.file, options.prefix)
    check_encoding(options.encoding)
    if not text and (format := document_format(options)):
        run_document(options, search, console, format)
        return
    if options.workers is not None or options.ray is not None:
        if options.report or options.strict or options.glossary or options.memory or options.others:
            flags = "--report, --strict, --glossary, --memory and --with"
            raise InputError(f"{flags} need all lines in one process; leave out --workers and --ray")
        _translate_by_workers(options, search, console)
        return
    from undivided.data.text_files import decode_lines
    from undivided.inference.lines import describe_problems, format_line
    from undivided.inference.report import open_account

    translator = open_translator(options, console)
    use_aids(translator, options, console)
    warn_of_unused(translator, search, console)
    prefixes = read_lines(options.prefix) if options.prefix else None
    console.say(describe_search(translator, search))
    on_screen = options.output == "-" and sys.stdout.isatty()
    # A status line would be written into the translations: they come from another thread.
    silent = Console(quiet=True) if on_screen else console
    progress = Progress(silent, "translated lines", None if text else count_lines(options.file))
    warnings, damaged = LimitedWarnings(console), LimitedWarnings(console)
    refused = "" if options.output == "-" else f"stopped; {options.output} is not written, because it would be incomplete"
    stop, number = Stop(translator.engine.is_parallel, refused), 0
    with stop_in_time(stop.ask), open_account(options.report) as account, open_output(options.output) as out:
        name = "stdin" if options.file == "-" else options.file
        lines = text or decode_lines(input_lines(options.file, options.encoding), name, damaged.add)
        results = translator.stream(lines, prefixes, progress.advance, is_stopped=stop.is_asked, **search)
        with closing(results):
            for number, result in enumerate(results, 1):
                verdict = translator.judge(result)
                account.add(number, result.source, result.text, verdict, result, translator.memory)
                for remark in describe_problems(number, result, verdict):
                    warnings.add(remark)
                line = format_line(number, result, options.scores, search.get("n_best", 1))
                out.write(line)
                out.flush()
        if stop.is_asked():
            console.clear()
            raise Stopped(stop.number, refused)
    warnings.close()
    damaged.close()
    console.clear()
    _advise_on_encoding(options, damaged.shown + damaged.more, number, console)
    if translator.engine.drafts is not None and translator.engine.drafts.steps:
        console.say(f"with drafts the model wrote {translator.engine.drafts.per_step:.2f} tokens in a step")
    account.close(console, options.strict, bool(options.report))


def _advise_on_encoding(options: argparse.Namespace, damaged: int, lines: int, console: Console) -> None:
    """Where many lines of a file were not UTF-8, say what it looks like."""
    if (
        damaged > MANY_DAMAGED * lines
        and not options.encoding
        and Path(options.file).is_file()
        and (hint := advise([options.file]))
    ):
        console.warn(hint)


def _given_text(options: argparse.Namespace, console: Console) -> list[str]:
    """The lines of a text that was given in place of a file; none where there is a file. What looks like a file name is one."""
    if options.file == "-" or Path(options.file).exists():
        return []
    text = argument_text(options.file)
    is_name = text.startswith(("/", "./", "../", "~")) or (len(text.split()) == 1 and ("/" in text or "." in text.rstrip(".")))
    if is_name or options.prefix or options.workers is not None or options.ray is not None:
        raise InputError(f"{options.file}: no such file; a text is given in quotes, or piped: echo … | undivided translate MODEL")
    console.say("no file has this name, so it is translated as text")
    return text.split("\n")


def _translate_by_workers(options: argparse.Namespace, search: SearchChanges, console: Console) -> None:
    """Translate a file by several processes or a Ray cluster."""
    from undivided.inference.translator import Translator
    from undivided.inference.workers.coordinator import translate_file

    engine = options.engine
    if options.encoding:
        raise InputError("--workers reads UTF-8, so that each worker can find its own part; convert FILE, or leave --workers out")
    if engine == "auto":
        # Chosen once, here: all workers must use the same engine.
        translator = Translator(options.model, options.device, options.threads, "auto", console, options.trust)
        chosen = translator.engine.name
        engine = "ctranslate2" if chosen.startswith("ctranslate2") else chosen
        console.say(f"{describe_search(translator, search)}, in every worker")
    else:
        console.say(f"engine {engine}, in every worker")
    translate_file(
        options.model,
        options.file,
        options.output,
        options.workers if options.workers is not None else 0,
        console,
        search=search,
        prefix=options.prefix,
        scores=options.scores,
        device=options.device,
        threads=options.threads,
        engine=engine,
        ray=options.ray,
        trust=options.trust,
    )
