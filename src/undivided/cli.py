"""The verbs. Importing this must not import torch: help answers at once."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import json
import os
import signal
import sys
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from undivided import __version__
from undivided.config import PRESETS, CorpusFiles, Recipe, SearchConfig
from undivided.console import Console, InputError, Progress, UndividedError, plural
from undivided.settings import Values, coerce, leaves, merge, nested, read_yaml


class Parser(argparse.ArgumentParser):
    """Errors in one line, with exit code 2 and a hint."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}\nFor help: {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    # Threads that spin at every barrier stand in each other's way by a factor of ten where another program shares the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        options = parser().parse_args(arguments)
        return int(options.run(options) or 0)
    except UndividedError as error:
        print(f"undivided: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # Whoever read our output has left; Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        kind = "the disk is full: " if error.errno == errno.ENOSPC else ""
        print(f"undivided: {where}{kind}{error.strerror or error}", file=sys.stderr)
        return 1


def parser() -> Parser:
    """The whole command line."""
    top = Parser(prog="undivided", description="Teach a Transformer a language pair from your own text, and translate with it.")
    top.add_argument("--version", action="version", version=f"undivided {__version__}")
    verbs = top.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    for add in (add_train, add_translate, add_score, add_look, add_average, add_demo):
        add(verbs)
    return top


def add_settings(verb: argparse.ArgumentParser, config_class: type, prefix: str = "") -> None:
    """A flag for every setting: `--section.key`, and the short names that people expect."""
    groups: dict[str, Any] = {}
    for name, item, kind in leaves(config_class, prefix):
        section = name.rpartition(".")[0]
        group = groups.get(section) or groups.setdefault(section, verb.add_argument_group(section or "preset"))
        names = [*item.metadata["flags"], f"--{name}"]
        default = item.default if item.default is not dataclasses.MISSING else ""
        shown = "" if default in ("", False) else f" (default: {default})"
        text = item.metadata["help"].replace("%", "%%") + shown
        common: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": text}
        if typing.get_origin(kind) is list:
            group.add_argument(*names, nargs="+", action="append", metavar="FILE", **common)
        elif kind is bool:
            group.add_argument(*names, nargs="?", const=True, metavar="true|false", **common)
        elif typing.get_origin(kind) is typing.Literal:
            group.add_argument(*names, metavar="|".join(typing.get_args(kind)), **common)
        else:
            group.add_argument(*names, metavar={int: "N", float: "X", str: "TEXT"}[kind], **common)


def given(options: argparse.Namespace, config_class: type, prefix: str = "") -> Values:
    """The settings that were written on the command line."""
    names = [name for name, _, _ in leaves(config_class, prefix)]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


def add_quiet(verb: argparse.ArgumentParser) -> None:
    """`--quiet`."""
    verb.add_argument("-q", "--quiet", action="store_true", help="say nothing but warnings and errors on stderr")


def add_compute(verb: argparse.ArgumentParser) -> None:
    """`--device` and `--threads`."""
    verb.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    verb.add_argument("--threads", type=int, default=0, metavar="N", help="CPU threads; 0 is all cores (default: 0)")


def add_train(verbs: Any) -> None:
    """`undivided train`."""
    verb = verbs.add_parser(
        "train",
        help="learn a model; on an existing directory, go on",
        description="Learn a model from parallel text. Settings come from a recipe, from flags, or from both (flags win). "
        f"Presets: {', '.join(PRESETS)}. Run again on the same --out to go on after a stop.",
    )
    verb.add_argument("recipe", nargs="?", help="a YAML file with the settings")
    add_settings(verb, Recipe)
    add_quiet(verb)
    verb.set_defaults(run=run_train)


def run_train(options: argparse.Namespace) -> None:
    """Learn a model."""
    values = read_yaml(options.recipe) if options.recipe else {}
    values = merge(values, nested(given(options, Recipe)))
    from undivided.train import train

    train(values, Console(options.quiet))


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
    add_settings(verb, SearchConfig)
    add_compute(verb)
    add_quiet(verb)
    verb.set_defaults(run=run_translate)


def search_options(options: argparse.Namespace) -> dict[str, Any]:
    """The search settings of the command line, in their types."""
    kinds = {name: kind for name, _, kind in leaves(SearchConfig)}
    result, faults = {}, []
    for name, value in given(options, SearchConfig).items():
        try:
            result[name] = coerce(value, kinds[name])
        except ValueError as error:
            faults.append(f"--{name.replace('_', '-')}: {error}")
    if faults:
        raise InputError("; ".join(faults))
    return result


def run_translate(options: argparse.Namespace) -> None:
    """Translate lines."""
    search = search_options(options)
    console = Console(options.quiet)
    if options.file != "-" and not Path(options.file).exists():
        raise InputError(f"{options.file}: no such file")
    from undivided.score import read_lines
    from undivided.translate import Translator

    translator = Translator(options.model, options.device, options.threads)
    prefixes = read_lines(options.prefix) if options.prefix else None
    progress = Progress(console, "translated lines", _count_lines(options.file))
    with _output(options.output) as out:
        lines = _input_lines(options.file, console)
        results = translator.stream(lines, prefixes, progress.advance, **search)
        for number, result in enumerate(results, 1):
            if result.pieces > 1:
                console.warn(
                    f"line {number}: more than the {translator.longest} subwords of training, translated in {result.pieces} pieces"
                )
            if not result.finished:
                console.warn(f"line {number}: the translation did not end by itself and was cut (--max-extra allows more)")
            _write_result(out, number, result, options.scores, search.get("n_best", 1))
    console.clear()


def _write_result(out: Any, number: int, result: Any, scores: bool, n_best: int) -> None:
    """One line; with `--n-best`, as many lines as asked, each behind its number: `3 ||| text ||| score`."""
    if n_best > 1:
        for text, score in result.alternatives or ((result.text, result.score),):
            out.write(f"{number} ||| {text} ||| {score:.4f}\n")
    else:
        out.write(f"{result.score:.4f}\t{result.text}\n" if scores else f"{result.text}\n")
    out.flush()


class _output:
    """Stdout, or a file that appears whole or not at all."""

    def __init__(self, name: str) -> None:
        self.path = None if name == "-" else Path(name)

    def __enter__(self) -> Any:
        if self.path is None:
            sys.stdout.reconfigure(encoding="utf-8", errors="strict", newline="\n")  # type: ignore[union-attr]
            return sys.stdout
        self.stream = self.path.with_name(self.path.name + ".part").open("w", encoding="utf-8", newline="\n")
        return self.stream

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self.path is not None:
            self.stream.close()
            if kind is None:
                Path(self.stream.name).replace(self.path)


def _count_lines(name: str) -> int | None:
    """How many lines a plain file has, for the time that is left."""
    path = Path(name)
    if name == "-" or path.suffix in (".gz", ".xz", ".zst") or not path.is_file():
        return None
    with path.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def _input_lines(name: str, console: Console) -> Iterator[str]:
    """Lines to translate; what is not UTF-8 is marked and said, so that no line is lost."""
    from undivided.corpus import byte_lines

    lines = byte_lines(name) if name != "-" else stdin_lines()
    for number, line in enumerate(lines, 1):
        if b"\0" in line:
            raise InputError(f"{name if name != '-' else 'stdin'}, line {number}: holds a NUL character; is this a text file?")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError:
            console.warn(f"line {number}: not valid UTF-8, the broken parts are read as \ufffd")
            yield line.decode("utf-8", errors="replace")


def stdin_lines() -> Iterator[bytes]:
    """The lines of stdin, through a reader of our own: Python aborts at exit if a thread still waits in `sys.stdin`."""
    with open(0, "rb", closefd=False) as stream:
        for line in stream:
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def add_score(verbs: Any) -> None:
    """`undivided score`."""
    verb = verbs.add_parser(
        "score",
        help="BLEU, chrF, TER of files, or of a model on a test set",
        description="Score translations against references, with signatures; or translate SOURCE with --model and score that.",
    )
    verb.add_argument("file", help="translations; with --model, the source text")
    verb.add_argument("reference", nargs="+", help="reference translations, one file or several")
    verb.add_argument("--model", help="translate FILE with this model folder first")
    verb.add_argument("--moses", metavar="LANG", help="also the lowercased Moses-tokenised BLEU of older papers")
    verb.add_argument("--json", action="store_true", help="write JSON")
    verb.add_argument("-o", "--output", metavar="OUT", help="with --model: also keep the translations")
    add_settings(verb, SearchConfig)
    add_compute(verb)
    add_quiet(verb)
    verb.set_defaults(run=run_score)


def run_score(options: argparse.Namespace) -> None:
    """Score files or a model."""
    search = search_options(options)
    from undivided.score import Score, moses_bleu, perplexity, read_lines, score

    lines = read_lines(options.file)
    references = [read_lines(path) for path in options.reference]
    for path, reference in zip(options.reference, references, strict=True):
        if len(reference) != len(lines):
            raise InputError(f"{options.file} has {plural(len(lines), 'line')}, but {path} has {len(reference):,}")
    extra: list[Score] = []
    lang = ""
    if options.model:
        from undivided.translate import Translator

        translator = Translator(options.model, options.device, options.threads)
        lang = translator.artifact.recipe.data.target_lang
        sources, progress = lines, Progress(Console(options.quiet), "translated lines", len(lines))
        lines = [result.text for result in translator.stream(sources, advance=progress.advance, **search)]
        progress.console.clear()
        config = translator.search_config(**search)
        extra.append(Score("perplexity", perplexity(translator, sources, references[0]), "tokens:subwords|end:counted"))
        if options.output:
            Path(options.output).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        if not options.quiet:
            print(f"beam {config.beam_size}, length penalty {config.length_penalty}", file=sys.stderr)
    results = score(lines, *references, target_lang=lang)
    if options.moses:
        results.append(moses_bleu(lines, references[0], options.moses))
    for figure in results + extra:
        print(json.dumps(dataclasses.asdict(figure)) if options.json else figure)


def add_look(verbs: Any) -> None:
    """`undivided look`."""
    verb = verbs.add_parser(
        "look",
        help="see inside: attention, candidates, beam tree; what each head does",
        description="See one sentence on its way through a model: on stdout in short, or as a page that needs no network (.html), "
        "as numbers (.json), as a picture (.png .svg .pdf). With --corpus: what each head does on it.",
    )
    verb.add_argument("model", help="a model folder")
    verb.add_argument("text", nargs="?", help="what to translate; - reads one line of stdin")
    verb.add_argument("--target", metavar="TEXT", help="look at this translation instead of the model's own")
    verb.add_argument("-o", "--output", metavar="OUT", help="a file that ends in .html, .json, .png, .svg or .pdf")
    verb.add_argument("--fast", action="store_true", help="leave out what if: heads turned off, other words")
    picture = verb.add_argument_group("pictures")
    picture.add_argument("--use", choices=("encoder", "decoder", "cross"), default="cross", help="which attention (default: cross)")
    picture.add_argument("--layer", type=int, default=0, metavar="N", help="from 1; 0 is the last (default: 0)")
    picture.add_argument("--head", type=int, default=0, metavar="N", help="from 1; 0 is the mean of all (default: 0)")
    picture.add_argument("--grid", action="store_true", help="all heads of all layers, small")
    corpus = verb.add_argument_group("heads of a corpus")
    corpus.add_argument("--corpus", nargs="+", metavar="FILE", help="SOURCE TARGET files, or one TSV")
    corpus.add_argument("--lines", type=int, default=200, metavar="N", help="look at so many lines; 0 is all (default: 200)")
    corpus.add_argument("--alignments", metavar="OUT", help="write word alignments in Pharaoh format, a line for each line")
    add_settings(verb, SearchConfig)
    add_compute(verb)
    add_quiet(verb)
    verb.set_defaults(run=run_look)


def run_look(options: argparse.Namespace) -> None:
    """See inside a model."""
    search, console = search_options(options), Console(options.quiet)
    if (options.text is None) == (options.corpus is None):
        raise InputError("say what to look at: a text, or --corpus with its files")
    if options.corpus:
        return run_look_corpus(options, console)
    from undivided.look import View, kind_of, questions, summary, what_if, write
    from undivided.translate import Translator

    kind = kind_of(options.output) if options.output else "text"
    text = next(_input_lines("-", console), "") if options.text == "-" else options.text
    translator = Translator(options.model, options.device, options.threads)
    view = View(options.use, options.layer, options.head, options.grid)
    seen = translator.look(text, options.target, **search)
    view.check(seen)
    if kind in ("html", "json") and not options.fast:
        progress = Progress(console, "questions answered", questions(seen))
        seen = what_if(translator.artifact, seen, translator.search_config(**search), progress.advance)
        console.clear()
    if not options.output:
        with _output("-") as out:
            out.write(f"{summary(seen)}\n")
        return None
    missing = write(seen, options.output, view)
    if missing:
        console.warn(f"no font of this machine has {' '.join(missing)}: the picture shows boxes there")
    return console.say(f"wrote {options.output}")


def run_look_corpus(options: argparse.Namespace, console: Console) -> None:
    """What each head does on a corpus."""
    suffix = Path(options.output).suffix if options.output else ".txt"
    faults = [f"{options.output}: the report of a corpus is written as .txt or .json"] if suffix not in (".txt", ".json") else []
    if options.lines < 0:
        faults.append(f"--lines: {options.lines} is less than 0")
    try:
        files = coerce([options.corpus], list[CorpusFiles])[0]
    except ValueError as error:
        faults.append(f"--corpus: {error}")
    if faults:
        raise InputError("; ".join(faults))
    from undivided.heads.report import as_json, report, table
    from undivided.translate import Translator

    result = report(Translator(options.model, options.device, options.threads), files, options.lines, console)
    with _output(options.output or "-") as out:
        out.write(as_json(result) if suffix == ".json" else table(result))
    if options.alignments:
        with _output(options.alignments) as out:
            out.write("".join(f"{line}\n" for line in result.alignments))


def add_average(verbs: Any) -> None:
    """`undivided average`."""
    verb = verbs.add_parser("average", help="averaged checkpoints", description="Average the last checkpoints of a training run.")
    verb.add_argument("model", help="the directory of a training run")
    verb.add_argument("--last", type=int, default=5, metavar="N", help="how many checkpoints (default: 5)")
    verb.add_argument("-o", "--output", required=True, metavar="DIR", help="the new model folder")
    verb.set_defaults(run=run_average)


def run_average(options: argparse.Namespace) -> None:
    """Average checkpoints."""
    from undivided.checkpoint import average

    average(options.model, options.last, options.output)


def add_demo(verbs: Any) -> None:
    """`undivided demo`."""
    verb = verbs.add_parser(
        "demo", help="what `make demo` runs", description="Get a real corpus, train on it for minutes, score, translate."
    )
    verb.add_argument("--pair", default="en-de", help="language pair: en-de, en-fr or en-ko (default: en-de)")
    verb.add_argument("--minutes", type=float, default=10.0, help="minutes of training (default: 10)")
    verb.add_argument("--out", default="demo", metavar="DIR", help="where corpus and model go (default: demo)")
    verb.set_defaults(run=run_demo)


def run_demo(options: argparse.Namespace) -> None:
    """The demo."""
    from undivided.demo import demo

    demo(options.pair, options.minutes, Path(options.out), Console())
