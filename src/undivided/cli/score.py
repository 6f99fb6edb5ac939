"""`undivided score`: BLEU and the like, of files or of a model."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undivided.cli.options import add_compute, add_quiet, search_options
from undivided.cli.running import describe_search
from undivided.cli.streams import keep_apart
from undivided.config import SearchConfig
from undivided.config.flags import add_settings
from undivided.config.model import SINGLE_STACK
from undivided.core.console import Console, Progress, plural
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.data.encodings import advise, check_encoding, is_wide
from undivided.data.text_files import read_lines

if TYPE_CHECKING:
    from undivided.inference.score import Comparison, Score
    from undivided.inference.search_settings import SearchChanges


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
    verb.add_argument(
        "--versus",
        metavar="OTHER",
        help="compare with a second system, a file of translations or with --model also a model folder: paired bootstrap says "
        "whether the difference is real",
    )
    verb.add_argument(
        "--comet-python",
        metavar="PATH",
        help="also COMET, by the Python of an environment of its own: python3 -m venv comet-env && comet-env/bin/pip install "
        "unbabel-comet, then --comet-python comet-env/bin/python",
    )
    verb.add_argument("--source", metavar="FILE", help="for COMET without --model: the source text")
    verb.add_argument(
        "--encoding",
        default="",
        metavar="NAME",
        help="encoding of files that are not UTF-8, such as cp1252 (default: they are refused)",
    )
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
    check_encoding(options.encoding)
    from undivided.artifact import model_kind
    from undivided.inference.score import Score, compare, moses_bleu, perplexity, score, score_single_stack

    if options.model and model_kind(options.model) in SINGLE_STACK:
        _print_scores(
            [score_single_stack(options.model, options.file, options.reference, options.device, options.threads, options.trust)],
            options.json,
        )
        return
    if not options.reference:
        raise InputError(f"{options.file}: no reference to score against; add a file of reference translations")
    lines = _read_text(options.file, options.encoding)
    references = [_read_text(path, options.encoding) for path in options.reference]
    for path, reference in zip(options.reference, references, strict=True):
        if len(reference) != len(lines):
            raise InputError(
                f"{options.file} has {plural(len(lines), 'line')}, but {path} has {len(reference):,}; they must match line by line"
            )
    extra: list[Score] = []
    lang, sources = "", _read_text(options.source, options.encoding) if options.source else []
    _check_comparison(options, len(lines), sources)
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
    if options.comet_python:
        from undivided.inference.comet import comet_score

        extra.append(comet_score(options.comet_python, sources, lines, references[0]))
    compared = compare(lines, _second_system(options, sources, search), *references, target_lang=lang) if options.versus else []
    _print_scores([*results, *extra, *compared], options.json)


def _read_text(path: str, encoding: str) -> list[str]:
    """The lines of a file in UTF-8 or, where it is not that, in the encoding that is named; without one, a guess is told."""
    try:
        return read_lines(path, encoding if is_wide(encoding) else "")
    except InputError as error:
        if encoding and not is_wide(encoding):
            return read_lines(path, encoding)
        hint = "" if encoding else advise([path])
        raise InputError(f"{error}; {hint}" if hint else str(error)) from None


def _check_comparison(options: argparse.Namespace, count: int, sources: Sequence[str]) -> None:
    """Refuse what cannot be compared before anything is translated."""
    if options.comet_python and not options.model and len(sources) != count:
        raise InputError(f"--comet-python: COMET needs the source text too: --source FILE, with {plural(count, 'line')}")
    if options.versus and Path(options.versus).is_dir() and not options.model:
        raise InputError(f"{options.versus}: is a folder; a model is compared with another model: add --model")


def _second_system(options: argparse.Namespace, sources: Sequence[str], search: SearchChanges) -> list[str]:
    """The translations of the system that is compared with."""
    if not Path(options.versus).is_dir():
        return _read_text(options.versus, options.encoding)
    from undivided.inference.translator import Translator

    console = Console(options.quiet)
    other = Translator(options.versus, options.device, options.threads, options.engine, console, options.trust)
    progress = Progress(console, f"lines translated by {options.versus}", len(sources))
    lines = [result.text for result in other.stream(sources, advance=progress.advance, **search)]
    console.clear()
    return lines


def _print_scores(figures: Sequence[Score | Comparison], as_json: bool) -> None:
    for figure in figures:
        print(json.dumps(dataclasses.asdict(figure)) if as_json else figure)
