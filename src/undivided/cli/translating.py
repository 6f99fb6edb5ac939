"""The verbs that use models: translate, score."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undivided.cli.options import Output, add_compute, add_quiet, count_lines, input_lines, keep_apart, search_options
from undivided.config import SearchConfig
from undivided.config.flags import add_settings
from undivided.config.model import SINGLE_STACK
from undivided.core.console import Console, LimitedWarnings, Progress, plural, printable
from undivided.core.errors import InputError
from undivided.data.corpus import read_lines

if TYPE_CHECKING:
    from undivided.inference.score import Score
    from undivided.inference.translator import Translator


def add_translate(verbs: Any) -> None:
    """`undivided translate`."""
    verb = verbs.add_parser(
        "translate",
        help="one line out for every line in",
        description="Translate a file, or stdin, line by line: one line out for every line in, in order; empty stays empty.",
    )
    verb.add_argument("model", help="a model folder")
    verb.add_argument("file", nargs="?", default="-", help="text to translate, also .gz .xz .zst (default: stdin)")
    verb.add_argument("-o", "--output", default="-", metavar="OUT", help="where translations go (default: stdout)")
    verb.add_argument("--scores", action="store_true", help="write the score before each translation, with a tab between")
    verb.add_argument("--prefix", metavar="FILE", help="a line of target text for each line in, which its translation begins with")
    verb.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="share FILE out among N processes, each with --threads (default: 1); after a stop, go on",
    )
    verb.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="share FILE out in a Ray cluster; `local` starts one here (extra: ray); --workers: how many",
    )
    add_settings(verb, SearchConfig, default="the model's own")
    add_compute(verb, "auto")
    add_quiet(verb)
    verb.set_defaults(run=run_translate)


def run_translate(options: argparse.Namespace) -> None:
    """Translate lines."""
    search = search_options(options)
    console = Console(options.quiet)
    if options.file != "-" and not Path(options.file).exists():
        raise InputError(f"{options.file}: no such file")
    keep_apart(options.output, options.file, options.prefix)
    if options.workers is not None or options.ray is not None:
        _share_out(options, search, console)
        return
    from undivided.inference.lines import decoded, remarks, written
    from undivided.inference.translator import Translator

    translator = Translator(options.model, options.device, options.threads, options.engine, console)
    if search.get("shortlist") and not translator.engine.has_shortlist:
        who = "the PyTorch engine" if translator.engine.name.startswith("torch") else "this model"
        console.warn(f"--shortlist: {who} has none, so all subwords are weighed")
    prefixes = read_lines(options.prefix) if options.prefix else None
    console.say(_way(translator, search))
    progress = Progress(console, "translated lines", count_lines(options.file))
    told = LimitedWarnings(console)
    with Output(options.output) as out:
        lines = decoded(input_lines(options.file), options.file if options.file != "-" else "stdin", told.add)
        results = translator.stream(lines, prefixes, progress.advance, **search)
        for number, result in enumerate(results, 1):
            for remark in remarks(number, result, search.get("n_best", 1)):
                told.add(remark)
            text = written(number, result, options.scores, search.get("n_best", 1))
            # Data goes out as it is; only a terminal is not given what it would obey.
            out.write(printable(text) if out.isatty() else text)
            out.flush()
    told.close()
    console.clear()


def _way(translator: Translator, search: dict[str, Any]) -> str:
    """How translations are found, in words."""
    config = translator.search_config(**search)
    how = "sampling" if config.sample else f"beam {config.beam_size}, length penalty {config.length_penalty:g}"
    return f"engine {translator.engine.name}, {how}"


def _share_out(options: argparse.Namespace, search: dict[str, Any], console: Console) -> None:
    """Translate a file by several workers."""
    from undivided.inference.translator import Translator
    from undivided.inference.workers.leader import translate_file

    engine = options.engine
    if engine == "auto":
        # Once, here: all workers must take the same.
        found = Translator(options.model, options.device, options.threads, "auto", console).engine.name
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
    )


def add_score(verbs: Any) -> None:
    """`undivided score`."""
    verb = verbs.add_parser(
        "score",
        help="BLEU, chrF, TER of files, or of a model on a test set",
        description="Score translations against references, with signatures; or translate SOURCE with --model and score that. "
        "Of a decoder_only model the perplexity of a text; of one that knows classes its accuracy on texts or images with labels.",
    )
    verb.add_argument("file", help="translations; with --model, the source text, or what else that model reads")
    verb.add_argument("reference", nargs="*", help="reference translations, one file or several; or labels")
    verb.add_argument("--model", help="translate FILE with this model folder first")
    verb.add_argument("--moses", metavar="LANG", help="also the lowercased Moses-tokenised BLEU of older papers")
    verb.add_argument("--json", action="store_true", help="write JSON")
    verb.add_argument("-o", "--output", metavar="OUT", help="with --model: also keep the translations")
    add_settings(verb, SearchConfig, default="the model's own")
    add_compute(verb, "torch")
    add_quiet(verb)
    verb.set_defaults(run=run_score)


def run_score(options: argparse.Namespace) -> None:
    """Score files or a model."""
    search = search_options(options)
    keep_apart(options.output, options.file, *options.reference)
    from undivided.artifact.folder import kind_of
    from undivided.inference.score import Score, moses_bleu, perplexity, score, score_relative

    if options.model and kind_of(options.model) in SINGLE_STACK:
        _tell([score_relative(options.model, options.file, options.reference, options.device, options.threads)], options.json)
        return
    if not options.reference:
        raise InputError("against what? Name a file with the reference translations behind it")
    lines = read_lines(options.file)
    references = [read_lines(path) for path in options.reference]
    for path, reference in zip(options.reference, references, strict=True):
        if len(reference) != len(lines):
            raise InputError(f"{options.file} has {plural(len(lines), 'line')}, but {path} has {len(reference):,}")
    extra: list[Score] = []
    lang = ""
    if options.model:
        from undivided.inference.translator import Translator

        console = Console(options.quiet)
        translator = Translator(options.model, options.device, options.threads, options.engine, console)
        lang = translator.artifact.recipe.data.target_lang
        sources, progress = lines, Progress(console, "translated lines", len(lines))
        lines = [result.text for result in translator.stream(sources, advance=progress.advance, **search)]
        progress.console.clear()
        extra.append(Score("perplexity", perplexity(translator, sources, references[0]), "tokens:subwords|end:counted"))
        if options.output:
            Path(options.output).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        console.say(_way(translator, search))
    results = score(lines, *references, target_lang=lang)
    if options.moses:
        results.append(moses_bleu(lines, references[0], options.moses))
    _tell(results + extra, options.json)


def _tell(figures: Sequence[Score], as_json: bool) -> None:
    for figure in figures:
        print(json.dumps(dataclasses.asdict(figure)) if as_json else figure)
