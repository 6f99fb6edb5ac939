"""The verbs. Importing this must not import torch: help answers at once."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from undivided import __version__
from undivided.config import PRESETS, Recipe, SearchConfig, build
from undivided.console import Console, InputError, Progress, UndividedError, plural, told, visible
from undivided.files import fresh
from undivided.paper.verb import add_paper
from undivided.settings import Values, add_settings, coerce, given, leaves, merge, nested, read_yaml


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
        options.arguments = list(arguments if arguments is not None else sys.argv[1:])
        return int(options.run(options) or 0)
    except BrokenPipeError:
        # Whoever read our output has left; Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (UndividedError, OSError) as error:
        message, code = told(error) or ("", 1)
        print(f"undivided: {visible(message)}", file=sys.stderr)
        return code


def parser() -> Parser:
    """The whole command line."""
    top = Parser(prog="undivided", description="Teach a Transformer a language pair from your own text, and translate with it.")
    top.add_argument("--version", action="version", version=f"undivided {__version__}")
    verbs = top.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    for add in (add_train, add_translate, add_score, add_plan, add_distill, add_average, add_paper, add_demo):
        add(verbs)
    return top


def add_quiet(verb: argparse.ArgumentParser) -> None:
    """`--quiet`."""
    verb.add_argument("-q", "--quiet", action="store_true", help="say nothing but warnings and errors on stderr")


def add_compute(verb: argparse.ArgumentParser, engine: str) -> None:
    """`--engine`, `--device` and `--threads`."""
    verb.add_argument(
        "--engine",
        default=engine,
        choices=["auto", "torch", "ctranslate2"],
        help=f"torch is the reference; ctranslate2 is faster on a CPU (8 bits); auto takes it if it can serve (default: {engine})",
    )
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


def recipe_values(options: argparse.Namespace) -> Values:
    """What a recipe file and the flags say; flags win."""
    return merge(read_yaml(options.recipe) if options.recipe else {}, nested(given(options, Recipe)))


def run_train(options: argparse.Namespace) -> None:
    """Learn a model."""
    values = recipe_values(options)
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
    add_settings(verb, SearchConfig)
    add_compute(verb, "auto")
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
    if options.workers is not None or options.ray is not None:
        _share_out(options, search, console)
        return
    from undivided.score import read_lines
    from undivided.shards.work import decoded, remarks, written
    from undivided.translate import Translator

    translator = Translator(options.model, options.device, options.threads, options.engine, console)
    prefixes = read_lines(options.prefix) if options.prefix else None
    progress = Progress(console, "translated lines", _count_lines(options.file))
    with _output(options.output) as out:
        lines = decoded(_input_lines(options.file), options.file if options.file != "-" else "stdin", console.warn)
        results = translator.stream(lines, prefixes, progress.advance, **search)
        for number, result in enumerate(results, 1):
            for remark in remarks(number, result, translator.longest):
                console.warn(remark)
            text = written(number, result, options.scores, search.get("n_best", 1))
            # Data goes out as it is; only a terminal is not given what it would obey.
            out.write(visible(text) if out.isatty() else text)
            out.flush()
    console.clear()


def _share_out(options: argparse.Namespace, search: dict[str, Any], console: Console) -> None:
    """Translate a file by several workers."""
    from undivided.shards import translate_file
    from undivided.translate import Translator

    engine = options.engine
    if engine == "auto":
        # Once, here: all workers must take the same.
        found = Translator(options.model, options.device, options.threads, "auto", console).engine.name
        engine = "torch" if found == "torch" else "ctranslate2"
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


class _output:
    """Stdout, or a file that appears whole or not at all."""

    def __init__(self, name: str) -> None:
        self.path = None if name == "-" else Path(name)

    def __enter__(self) -> Any:
        if self.path is None:
            sys.stdout.reconfigure(encoding="utf-8", errors="strict", newline="\n")  # type: ignore[union-attr]
            return sys.stdout
        self.part = self.path.with_name(self.path.name + ".part")
        self.stream = io.TextIOWrapper(fresh(self.part), encoding="utf-8", newline="\n")
        return self.stream

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self.path is not None:
            self.stream.close()
            if kind is None:
                self.part.replace(self.path)


def _count_lines(name: str) -> int | None:
    """How many lines a plain file has, for the time that is left."""
    path = Path(name)
    if name == "-" or path.suffix in (".gz", ".xz", ".zst") or not path.is_file():
        return None
    with path.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def _input_lines(name: str) -> Iterator[bytes]:
    """The lines of a file, or of stdin; through a reader of our own: Python aborts at exit if a thread waits in `sys.stdin`."""
    from undivided.corpus import byte_lines, cut_lines

    if name != "-":
        yield from byte_lines(name)
        return
    with open(0, "rb", closefd=False) as stream:
        yield from cut_lines(stream)


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
    add_compute(verb, "torch")
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

        console = Console(options.quiet)
        translator = Translator(options.model, options.device, options.threads, options.engine, console)
        lang = translator.artifact.recipe.data.target_lang
        sources, progress = lines, Progress(console, "translated lines", len(lines))
        lines = [result.text for result in translator.stream(sources, advance=progress.advance, **search)]
        progress.console.clear()
        config = translator.search_config(**search)
        extra.append(Score("perplexity", perplexity(translator, sources, references[0]), "tokens:subwords|end:counted"))
        if options.output:
            Path(options.output).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        if not options.quiet:
            print(
                f"engine {translator.engine.name}, beam {config.beam_size}, length penalty {config.length_penalty}", file=sys.stderr
            )
    results = score(lines, *references, target_lang=lang)
    if options.moses:
        results.append(moses_bleu(lines, references[0], options.moses))
    for figure in results + extra:
        print(json.dumps(dataclasses.asdict(figure)) if options.json else figure)


def add_plan(verbs: Any) -> None:
    """`undivided plan`."""
    verb = verbs.add_parser(
        "plan",
        help="parameters, FLOPs, memory, time, before anything runs",
        description="What a training will cost: counted from the recipe, timed by some seconds of training on this machine. "
        "Times on GPUs are reckoned, not measured.",
    )
    verb.add_argument("recipe", nargs="?", help="a YAML file with the settings")
    verb.add_argument("--seconds", type=float, default=10.0, help="how long to measure this machine; 0 is not (default: 10)")
    verb.add_argument("--length", type=int, default=25, help="tokens of a sentence, for the cost of attention (default: 25)")
    add_settings(verb, Recipe)
    verb.set_defaults(run=run_plan)


def run_plan(options: argparse.Namespace) -> None:
    """Say what a training will cost."""
    values = recipe_values(options)
    if options.length < 1 or options.seconds < 0:
        raise InputError(f"--length {options.length}, --seconds {options.seconds:g}: expected positive numbers")
    recipe = build(values)
    from undivided.device import use_threads
    from undivided.plan import make_plan, measure, report

    use_threads(recipe.train.threads)
    plan = make_plan(recipe, options.length)
    print(report(plan, measure(plan, options.seconds) if options.seconds else None))


def add_distill(verbs: Any) -> None:
    """`undivided distill`."""
    verb = verbs.add_parser(
        "distill",
        help="a faster student of a trained model",
        description="Translate the training text with a teacher's beam and train a student on that: the teacher's own recipe with "
        "one decoder layer, or a preset and settings as given. Run again on the same --out to go on after a stop.",
    )
    verb.add_argument("teacher", help="a model folder")
    verb.add_argument("recipe", nargs="?", help="a YAML file with the student's settings")
    add_settings(verb, Recipe)
    add_quiet(verb)
    verb.set_defaults(run=run_distill)


def run_distill(options: argparse.Namespace) -> None:
    """Train a student."""
    values = recipe_values(options)
    from undivided.distill import distill

    distill(options.teacher, values, Console(options.quiet))


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
