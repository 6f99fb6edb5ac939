"""`undivided translate`: lines of a file or of stdin."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undivided.cli.options import add_compute, add_quiet, search_options
from undivided.cli.streams import count_lines, input_lines, keep_apart, open_output
from undivided.config import SearchConfig
from undivided.config.flags import add_settings
from undivided.core.console import Console, LimitedWarnings, Progress
from undivided.core.errors import InputError
from undivided.core.signals import Stopped, stop_in_time
from undivided.data.text_files import read_lines

if TYPE_CHECKING:
    from undivided.inference.search_settings import SearchChanges
    from undivided.inference.translator import Translator


def add_translate(verbs: Any) -> None:
    """`undivided translate`."""
    verb = verbs.add_parser(
        "translate",
        help="translate text, one line out for every line in",
        description="Translate a file or stdin line by line, in order. An empty line stays empty.",
    )
    verb.add_argument("model", help="a model folder")
    verb.add_argument(
        "file", nargs="?", default="-", help="text to translate; may be compressed as .gz, .xz or .zst (default: stdin)"
    )
    verb.add_argument("-o", "--output", default="-", metavar="OUT", help="file for the translations (default: stdout)")
    verb.add_argument("--scores", action="store_true", help="write the score and a tab before each translation")
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
    add_settings(verb, SearchConfig, default="the model's own")
    add_compute(verb, "auto")
    add_quiet(verb)
    verb.set_defaults(run=run_translate)


def run_translate(options: argparse.Namespace) -> None:
    """Translate lines, in this process or by several workers."""
    search = search_options(options)
    console = Console(options.quiet)
    if options.file != "-" and not Path(options.file).exists():
        raise InputError(f"{options.file}: no such file")
    keep_apart(options.output, options.file, options.prefix)
    if options.workers is not None or options.ray is not None:
        _translate_by_workers(options, search, console)
        return
    from undivided.data.text_files import decode_lines
    from undivided.inference.lines import describe_problems, format_line
    from undivided.inference.translator import Translator

    translator = Translator(options.model, options.device, options.threads, options.engine, console, options.trust)
    if search.get("shortlist") and not translator.engine.has_shortlist:
        who = "the PyTorch engine" if translator.engine.name.startswith("torch") else "this model"
        console.warn(f"--shortlist: {who} has none, so all target subwords are considered")
    prefixes = read_lines(options.prefix) if options.prefix else None
    console.say(describe_search(translator, search))
    progress = Progress(console, "translated lines", count_lines(options.file))
    warnings = LimitedWarnings(console)
    refused = "" if options.output == "-" else f"stopped; {options.output} is not written, because it would be incomplete"
    stop = _Stop(translator.engine.is_parallel, refused)
    with stop_in_time(stop.ask), open_output(options.output) as out:
        lines = decode_lines(input_lines(options.file), options.file if options.file != "-" else "stdin", warnings.add)
        results = translator.stream(lines, prefixes, progress.advance, is_stopped=stop.is_asked, **search)
        with closing(results):
            for number, result in enumerate(results, 1):
                for remark in describe_problems(number, result, search.get("n_best", 1)):
                    warnings.add(remark)
                text = format_line(number, result, options.scores, search.get("n_best", 1))
                if out.isatty():
                    console.clear()
                out.write(text)
                out.flush()
        if stop.is_asked():
            console.clear()
            raise Stopped(stop.number, refused)
    warnings.close()
    console.clear()


class _Stop:
    """What a stop signal does: a parallel engine finishes what is nearly done; any other is interrupted where it is."""

    def __init__(self, is_parallel: bool, message: str) -> None:
        self.is_parallel, self.message, self.number = is_parallel, message, 0

    def ask(self, number: int) -> None:
        """Stop because of this signal."""
        self.number = number
        if not self.is_parallel:
            raise Stopped(number, self.message)

    def is_asked(self) -> bool:
        """Whether a signal has come."""
        return self.number != 0


def describe_search(translator: Translator, search: SearchChanges) -> str:
    """The engine and the search, in words."""
    config = translator.search_config(**search)
    how = "sampling" if config.sample else f"beam {config.beam_size}, length penalty {config.length_penalty:g}"
    return f"engine {translator.engine.name}, {how}"


def _translate_by_workers(options: argparse.Namespace, search: SearchChanges, console: Console) -> None:
    """Translate a file by several processes or a Ray cluster."""
    from undivided.inference.translator import Translator
    from undivided.inference.workers.coordinator import translate_file

    engine = options.engine
    if engine == "auto":
        # Chosen once, here: all workers must use the same engine.
        found = Translator(options.model, options.device, options.threads, "auto", console, options.trust).engine.name
        engine = found if found.startswith("torch") else "ctranslate2"
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
