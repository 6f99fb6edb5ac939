"""`undivided look`: see inside a model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undivided.cli.options import add_compute, add_quiet, search_options
from undivided.cli.streams import input_lines, open_output
from undivided.config import CorpusFiles, SearchConfig
from undivided.config.flags import add_settings
from undivided.config.model import DRAWING, SINGLE_STACK
from undivided.config.settings import coerce
from undivided.core.console import Console, Progress, plural
from undivided.core.errors import InputError
from undivided.core.process import argument_text

if TYPE_CHECKING:
    from undivided.inference.search_settings import SearchChanges
    from undivided.inference.translator import Translator
    from undivided.look import Look


def add_look(verbs: Any) -> None:
    """`undivided look`."""
    verb = verbs.add_parser(
        "look",
        help="see inside a model: attention, candidates, beam search, heads",
        description="Follow one sentence through a model: a summary on stdout, or with -o an interactive page that works offline "
        "(.html), the numbers (.json) or a picture (.png .svg .pdf). With --live: a page with the model inside that translates as "
        "you type; also for GPT, BERT, ViT and recurrent models. With --training: a run that learns, step by step. With --corpus: "
        "what each attention head does on a corpus.",
    )
    verb.add_argument("model", help="a model folder")
    verb.add_argument("text", nargs="?", help="the sentence to translate; - reads one line of stdin")
    verb.add_argument("--target", metavar="TEXT", help="use this translation instead of the model's own")
    verb.add_argument("-o", "--output", metavar="OUT", help="a file that ends in .html, .json, .png, .svg or .pdf")
    verb.add_argument(
        "--piece",
        type=int,
        default=1,
        metavar="N",
        help="of a line that is translated in pieces, the one that OUT shows (default: 1)",
    )
    verb.add_argument("--fast", action="store_true", help="skip the what-if part: heads turned off, other words")
    live = verb.add_argument_group("a live page")
    live.add_argument(
        "--live", action="store_true", help="put the model itself into the page (-o page.html); the text may be left out"
    )
    live.add_argument(
        "--weights",
        choices=("int8", "float16", "float32"),
        default="int8",
        help="how the page stores the weights: int8 is smallest, float32 is exact (default: int8)",
    )
    learning = verb.add_argument_group("watching it learn")
    learning.add_argument(
        "--training",
        action="store_true",
        help="a page (-o page.html) with a slider over the checkpoints and snapshots of a run: MODEL is the folder that it trains",
    )
    learning.add_argument(
        "--frames", type=int, default=40, metavar="N", help="show at most N of them, the first and the last included (default: 40)"
    )
    picture = verb.add_argument_group("pictures")
    picture.add_argument("--use", choices=("encoder", "decoder", "cross"), default="cross", help="which attention (default: cross)")
    picture.add_argument("--layer", type=int, default=0, metavar="N", help="layer, from 1; 0 is the last (default: 0)")
    picture.add_argument("--head", type=int, default=0, metavar="N", help="head, from 1; 0 is the mean of all (default: 0)")
    picture.add_argument("--grid", action="store_true", help="all heads of all layers as small pictures")
    corpus = verb.add_argument_group("heads on a corpus")
    corpus.add_argument("--corpus", nargs="+", metavar="FILE", help="SOURCE TARGET files, or one TSV")
    corpus.add_argument("--lines", type=int, default=200, metavar="N", help="use the first N lines; 0 is all (default: 200)")
    corpus.add_argument(
        "--alignments", metavar="OUT", help="also write word alignments in Pharaoh format, one line for each of --lines"
    )
    add_settings(verb, SearchConfig, default="the model's own")
    add_compute(verb, None)
    add_quiet(verb)
    verb.set_defaults(run=run_look)


def run_look(options: argparse.Namespace) -> None:
    """See inside a model."""
    search, console = search_options(options), Console(options.quiet)
    if options.training:
        return run_look_training(options, search, console)
    if options.live:
        return run_look_live(options, console)
    if (options.text is None) == (options.corpus is None):
        raise InputError("nothing to look at, or too much: give either a text or --corpus FILE …")
    if options.corpus:
        return run_look_corpus(options, console)
    from undivided.data.text_files import decode_lines
    from undivided.inference.translator import Translator
    from undivided.look import View, count_what_if_runs, output_format, run_what_if, save_look, summarize

    kind = output_format(options.output) if options.output else "text"
    text = next(decode_lines(input_lines("-"), "stdin", console.warn), "") if options.text == "-" else argument_text(options.text)
    _check_kind(options.model)
    translator = Translator(options.model, options.device, options.threads, "torch", console, options.trust)
    view = View(options.use, options.layer, options.head, options.grid)
    looks = _look(translator, text, options, search, console)
    seen = looks[0] if len(looks) == 1 else looks[options.piece - 1]
    if kind in ("png", "svg", "pdf") or view != View():
        view.check(seen)
    if kind in ("html", "json") and not options.fast:
        progress = Progress(console, "what-if runs", count_what_if_runs(seen))
        seen = run_what_if(translator.artifact, seen, translator.search_config(**search), progress.advance)
        console.clear()
    if not options.output:
        with open_output("-") as out:
            out.write("\n".join(f"{summarize(each)}\n" for each in looks))
        return None
    missing = save_look(seen, options.output, view)
    if missing:
        console.warn(f"no font on this machine has {' '.join(missing)}; the picture shows boxes instead")
    return console.say(f"wrote {options.output}")


def run_look_live(options: argparse.Namespace, console: Console) -> None:
    """Write a page with the model inside."""
    faults = [
        f"{name}: cannot be used with --live"
        for name, given in (("--corpus", options.corpus), ("--target", options.target), ("--fast", options.fast))
        if given
    ]
    if not options.output or Path(options.output).suffix.lower() not in (".html", ".htm"):
        faults.append("--live writes a page; name it with -o, e.g. -o page.html")
    if faults:
        raise InputError("; ".join(faults))
    from undivided.artifact import load_any, model_kind
    from undivided.core.files import write_atomic
    from undivided.look import output_format
    from undivided.look.live import check_kind, measure_loss, render_live

    output_format(options.output)
    check_kind(model_kind(options.model))
    text = argument_text(options.text) if options.text else ""
    artifact = load_any(options.model)
    page = render_live(artifact, text, options.weights)
    write_atomic(Path(options.output), page)
    loss = measure_loss(artifact.model, options.weights)
    close = (
        f"; as {options.weights} its weights are {100 * loss:.2g} % (root mean square) from those that were trained" if loss else ""
    )
    console.say(f"wrote {options.output}, {len(page.encode()) / 1e6:.1f} MB with the model inside{close if loss else ''}")


def run_look_training(options: argparse.Namespace, search: SearchChanges, console: Console) -> None:
    """Write a page with a slider over the steps of a training."""
    faults = [
        f"{name}: cannot be used with --training"
        for name, given in (("--corpus", options.corpus), ("--live", options.live), ("--fast", options.fast))
        if given
    ]
    if not options.output or Path(options.output).suffix.lower() not in (".html", ".htm"):
        faults.append("--training writes a page; name it with -o, e.g. -o page.html")
    if options.text is None:
        faults.append('--training follows one sentence; name it: undivided look RUN "A dog runs." --training -o page.html')
    if options.frames < 2:
        faults.append(f"--frames: {options.frames} is less than 2")
    if faults:
        raise InputError("; ".join(faults))
    from undivided.core.files import write_atomic
    from undivided.look import output_format
    from undivided.look.training_page import render_training
    from undivided.nn.device import use_threads
    from undivided.training.watch import watch_training

    output_format(options.output)
    use_threads(options.threads)
    text, target = argument_text(options.text), options.target and argument_text(options.target)
    history = watch_training(options.model, text, target, search, options.frames, console)
    page = render_training(history)
    write_atomic(Path(options.output), page)
    console.say(f"wrote {options.output}, {len(page.encode()) / 1e6:.1f} MB with {plural(len(history.frames), 'frame')}")


def _check_kind(model: str) -> None:
    """Say what does, where `look` without --live does not."""
    from undivided.artifact import command_for, model_kind

    kind = model_kind(model)
    if kind in SINGLE_STACK:
        live = "" if kind in DRAWING else f"See inside it with: undivided look {model} -o page.html --live (docs/live.md). "
        raise InputError(
            f"{model}: a {kind} model, and look without --live follows translators alone. {live}Use it with: undivided "
            f"{command_for(kind)}; in Python, undivided.nn.attention.attention_hook records its attention (docs/relatives.md)"
        )


def _look(translator: Translator, text: str, options: argparse.Namespace, search: SearchChanges, console: Console) -> list[Look]:
    """One look, or one for each piece that `translate` would translate by itself."""
    from undivided.look import look, look_pieces

    if options.target is not None or not text.strip():
        return [look(translator, text, options.target, **search)]
    count = len(translator.split(text, **search))
    if not 1 <= options.piece <= count:
        raise InputError(f"--piece {options.piece}: this line is translated in {plural(count, 'piece')}")
    if count > 1:
        shown = f"; piece {options.piece} is shown (--piece N for another)" if options.output else ""
        console.say(f"this line is translated in {count} pieces{shown}")
    return look_pieces(translator, text, **search)


def run_look_corpus(options: argparse.Namespace, console: Console) -> None:
    """Report what each head does on a corpus."""
    suffix = Path(options.output).suffix if options.output else ".txt"
    faults = [f"{options.output}: a report on a corpus must end in .txt or .json"] if suffix not in (".txt", ".json") else []
    if options.lines < 0:
        faults.append(f"--lines: {options.lines} is less than 0")
    try:
        files = coerce([options.corpus], list[CorpusFiles])[0]
        faults += [f"--corpus: {fault}" for fault in files.pairing_faults()]
    except ValueError as error:
        faults.append(f"--corpus: {error}")
    if faults:
        raise InputError("; ".join(faults))
    from undivided.inference.translator import Translator
    from undivided.look.heads.report import format_table, report_heads, to_json

    result = report_heads(
        Translator(options.model, options.device, options.threads, "torch", trust=options.trust), files, options.lines, console
    )
    with open_output(options.output or "-") as out:
        out.write(to_json(result) if suffix == ".json" else format_table(result))
    if options.alignments:
        with open_output(options.alignments) as out:
            out.write("".join(f"{line}\n" for line in result.alignments))
        rest = "" if not options.lines else " (the first --lines of the corpus; --lines 0 is all)"
        console.say(f"wrote the alignments of {plural(len(result.alignments), 'line')} to {options.alignments}{rest}")
