"""`undivided score`: BLEU and the like, of files or of a model."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undivided.cli.options import add_compute, add_quiet, search_options
from undivided.cli.streams import keep_apart
from undivided.cli.translate import describe_search
from undivided.config import SearchConfig
from undivided.config.flags import add_settings
from undivided.config.model import SINGLE_STACK
from undivided.core.console import Console, Progress, plural
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.data.text_files import read_lines

if TYPE_CHECKING:
    from undivided.inference.score import Score


def add_score(verbs: Any) -> None:
    """`undivided score`."""
    verb = verbs.add_parser(
        "score",
        help="BLEU, chrF and TER of files, or of a model on a test set",
        description="Score translations against references, with sacreBLEU signatures; or with --model, translate FILE first and "
        "score the result. For a decoder_only model: the perplexity of a text. For a classifier: its accuracy on labelled texts "
        "or images.",
    )
    verb.add_argument("file", help="translations; with --model, the input of that model (source text, text or images)")
    verb.add_argument("reference", nargs="*", help="one or more files of reference translations, or a file of labels")
    verb.add_argument("--model", help="translate FILE with this model folder first")
    verb.add_argument("--moses", metavar="LANG", help="also print the lowercased, Moses-tokenised BLEU of older papers")
    verb.add_argument("--json", action="store_true", help="print JSON, one object a line")
    verb.add_argument("-o", "--output", metavar="OUT", help="with --model: also write the translations to this file")
    add_settings(verb, SearchConfig, default="the model's own")
    add_compute(verb, "torch")
    add_quiet(verb)
    verb.set_defaults(run=run_score)


def run_score(options: argparse.Namespace) -> None:
    """Score files or a model."""
    search = search_options(options)
    keep_apart(options.output, options.file, *options.reference)
    from undivided.artifact import model_kind
    from undivided.inference.score import Score, moses_bleu, perplexity, score, score_single_stack

    if options.model and model_kind(options.model) in SINGLE_STACK:
        _print_scores(
            [score_single_stack(options.model, options.file, options.reference, options.device, options.threads, options.trust)],
            options.json,
        )
        return
    if not options.reference:
        raise InputError(f"{options.file}: no reference to score against; add a file of reference translations")
    lines = read_lines(options.file)
    references = [read_lines(path) for path in options.reference]
    for path, reference in zip(options.reference, references, strict=True):
        if len(reference) != len(lines):
            raise InputError(
                f"{options.file} has {plural(len(lines), 'line')}, but {path} has {len(reference):,}; they must match line by line"
            )
    extra: list[Score] = []
    lang = ""
    if options.model:
        from undivided.inference.translator import Translator

        console = Console(options.quiet)
        translator = Translator(options.model, options.device, options.threads, options.engine, console, options.trust)
        lang = translator.artifact.recipe.data.target_lang
        sources, progress = lines, Progress(console, "translated lines", len(lines))
        lines = [result.text for result in translator.stream(sources, advance=progress.advance, **search)]
        progress.console.clear()
        extra.append(Score("perplexity", perplexity(translator, sources, references[0]), "tokens:subwords|end:counted"))
        if options.output:
            write_atomic(Path(options.output), "".join(f"{line}\n" for line in lines))
        console.say(describe_search(translator, search))
    results = score(lines, *references, target_lang=lang)
    if options.moses:
        results.append(moses_bleu(lines, references[0], options.moses))
    _print_scores(results + extra, options.json)


def _print_scores(figures: Sequence[Score], as_json: bool) -> None:
    for figure in figures:
        print(json.dumps(dataclasses.asdict(figure)) if as_json else figure)
