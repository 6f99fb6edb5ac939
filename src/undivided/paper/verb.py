"""`undivided paper …` on the command line. Importing this must not import torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undivided.config import CorpusFiles, Recipe, SearchConfig, build
from undivided.console import Console, InputError
from undivided.paper.variations import ROWS, chosen
from undivided.settings import Values, add_settings, fill, given, leaves, listed, merge, nested, read_yaml

ABOUT = """The tables of "Attention Is All You Need", reproduced on this machine and on any corpus:
table1 complexity of layers, table2 cost of training and WMT 2014, table3 variations of a recipe, table4 parsing,
race the Transformer beside what came before it, parse text into trees by a model of table4.
And faq: the questions learners ask, answered by running."""


def add_paper(verbs: Any) -> None:
    """`undivided paper`."""
    verb = verbs.add_parser("paper", help="the paper's tables, reproduced; parsing; questions", description=ABOUT)
    tables = verb.add_subparsers(metavar="TABLE", required=True, parser_class=type(verb))
    for add in (add_table1, add_table2, add_table3, add_table4, add_race, add_parse, add_faq):
        add(tables)


def add_common(table: argparse.ArgumentParser, report: str) -> None:
    """`--report` and `--quiet`."""
    table.add_argument(
        "--report", type=report_path, default="", metavar="FILE.md", help=f"where the report goes (default: {report})"
    )
    table.add_argument("-q", "--quiet", action="store_true", help="say nothing but warnings and errors on stderr")


def report_path(text: str) -> str:
    """Where a report can be written, known before hours are spent on it."""
    if text and (not Path(text).name or Path(text).is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a file; name one such as report.md")
    return text


def settings_of(options: argparse.Namespace) -> Values:
    """The settings of a recipe that were written as flags."""
    return nested(given(options, Recipe))


def numbers(text: str) -> list[int]:
    """`64,128` as numbers."""
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers with commas between, got {text!r}") from None


def at_least_0(text: str) -> int:
    """A count."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number that is not below 0, got {text!r}")
    return int(text)


def add_table1(tables: Any) -> None:
    """`undivided paper table1`."""
    table = tables.add_parser(
        "table1",
        help="complexity, sequential operations and path length of layers, derived and measured",
        description="Self-attention, recurrent, convolutional (also separable) and restricted self-attention layers over n and d "
        "on this machine: times with fitted exponents, where self-attention and recurrence are equal, how far gradients reach; "
        "additive beside dot-product attention. About three minutes, 2 GB of memory. Needs no data.",
    )
    sizes = [64, 128, 256, 512, 1024]
    shown = ",".join(map(str, sizes))
    table.add_argument("--n", type=numbers, default=sizes, metavar="N,…", help=f"lengths of sequences (default: {shown})")
    table.add_argument("--d", type=numbers, default=sizes, metavar="N,…", help=f"widths (default: {shown})")
    table.add_argument("--fit-from", type=int, default=256, metavar="N", help="least n and d of the fit (default: 256)")
    table.add_argument("--kernel", type=int, default=3, metavar="K", help="width of the convolution's kernel, odd (default: 3)")
    table.add_argument("--neighbourhood", type=int, default=64, metavar="R", help="r of restricted self-attention (default: 64)")
    table.add_argument("--paths", type=numbers, default=[8, 16, 32, 64, 128], metavar="N,…", help="lengths for paths")
    table.add_argument("--batch", type=int, default=4, metavar="N", help="sequences in a batch (default: 4)")
    table.add_argument("--repetitions", type=int, default=7, metavar="N", help="of which the median is taken (default: 7)")
    table.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads (default: 1)")
    add_common(table, "table1.md")
    table.set_defaults(run=run_table1)


def run_table1(options: argparse.Namespace) -> None:
    """Complexity of layers."""
    from undivided.paper.table1 import Setup, table1
    from undivided.paper.table1_report import write_report

    setup = Setup(
        options.n,
        options.d,
        options.fit_from,
        options.kernel,
        options.neighbourhood,
        options.batch,
        options.repetitions,
        options.paths,
    )
    console, path = Console(options.quiet), Path(options.report or "table1.md")
    found = table1(setup, options.threads, console)
    print(write_report(setup, found, options.threads, path, options.arguments))
    console.say(f"the report is in {path}")


def add_table2(tables: Any) -> None:
    """`undivided paper table2`."""
    table = tables.add_parser(
        "table2",
        help="cost of training; WMT 2014 prepared, trained and scored",
        description="The cost of base and big by the paper's accounting and counted from their shapes. With a recipe and the files "
        "of WMT 2014: prepare them, train, average, translate newstest2014, score as the paper did and with sacreBLEU. For "
        "English–French the standard files hold about 40.8 million pairs, where the paper says 36 million; it does not say how it "
        "filtered.",
    )
    table.add_argument("recipe", nargs="?", help="a YAML file such as recipes/wmt14-en-de-base.yaml; without, only costs are told")
    table.add_argument("--data", default="", metavar="DIR", help="folder with the files of WMT 2014 as they are published")
    table.add_argument("--checksums", default="", metavar="FILE", help="what sha256sum wrote of these files; they must equal it")
    table.add_argument(
        "--prepare-only", action="store_true", help="write text and recipe to OUT, and say how several GPUs go on with torchrun"
    )
    table.add_argument("--out", default="models/table2", metavar="DIR", help="where text and model go (default: models/table2)")
    add_common(table, "OUT/report.md")
    add_settings(table, Recipe, without=("data.train", "data.valid", "train.out", "search.sentences"))
    table.set_defaults(run=run_table2)


def run_table2(options: argparse.Namespace) -> None:
    """Cost of training, and WMT 2014."""
    if bool(options.recipe) != bool(options.data):
        raise InputError("a recipe and --data DIR go together; without both, only costs are told")
    if options.prepare_only and not options.recipe:
        raise InputError("--prepare-only needs a recipe and --data DIR: what should be prepared?")
    values = merge(read_yaml(options.recipe), settings_of(options)) if options.recipe else {}
    from undivided.paper.table2 import commands, in_one_process, prepare, train_and_score, write_report

    out, console = Path(options.out), Console(options.quiet)
    checksums = Path(options.checksums) if options.checksums else None
    in_one_process(options.arguments, out)
    if options.prepare_only:
        prepare(values, Path(options.data), out, checksums, console)
        console.say("prepared; now train on all GPUs of this machine, then score:")
        print("\n".join(commands(options.arguments, out)[1:]))
        return
    run = train_and_score(values, Path(options.data), out, checksums, console) if options.recipe else None
    path = Path(options.report) if options.report else out / "report.md"
    print(write_report(run, path, options.arguments))
    for score in run.scores if run is not None else ():
        print(score)
    console.say(f"the report is in {path}")


def add_table3(tables: Any) -> None:
    """`undivided paper table3`."""
    table = tables.add_parser(
        "table3",
        help="variations of a recipe: rows A to E and big",
        description="Train the rows of Table 3 as variations of a recipe, each with the same budget (--minutes or --max-steps), "
        "score them, and report them beside the paper's. Run again after a stop, it goes on; finished rows are kept. The rows, "
        "as in the paper, each scaled to the recipe: " + ", ".join(f"{row.name} ({row.change})" for row in ROWS.values()) + ".",
    )
    table.add_argument("recipe", nargs="?", help="a YAML file with the settings that are varied")
    table.add_argument("--rows", default="all", metavar="A1,B,…", help="rows, or letters of rows, beside base (default: all)")
    table.add_argument("--seeds", type=int, default=3, metavar="N", help="trainings of the base row (default: 3)")
    table.add_argument("--other-seeds", type=int, default=1, metavar="N", help="trainings of each other row (default: 1)")
    table.add_argument("--test", nargs="+", metavar="FILE", help="SOURCE TARGET to measure on (default: the first --valid)")
    table.add_argument("--out", default="models/table3", metavar="DIR", help="where the trainings go (default: models/table3)")
    add_common(table, "OUT/report.md")
    add_settings(table, Recipe, without=("train.out", "train.seed"))
    table.set_defaults(run=run_table3)


def run_table3(options: argparse.Namespace) -> None:
    """Variations of a recipe."""

    faults: list[str] = []
    rows = []
    try:
        rows = chosen(options.rows)
    except InputError as error:
        faults.append(str(error))
    for flag, count in (("--seeds", options.seeds), ("--other-seeds", options.other_seeds)):
        if count < 1:
            faults.append(f"{flag}: {count} is less than 1")
    values = merge(read_yaml(options.recipe) if options.recipe else {}, settings_of(options))
    try:
        recipe = build(values)
    except InputError as error:
        faults.append(str(error))
    if faults:
        raise InputError("\n".join(faults))
    test = CorpusFiles(*options.test) if options.test else next(iter(recipe.data.valid), CorpusFiles())
    from undivided.paper.table3 import BUDGET, NO_AVERAGE, Plan, table3
    from undivided.paper.table3_report import write_report

    out, console = Path(options.out), Console(options.quiet)
    plan = Plan(merge(merge(BUDGET, values), NO_AVERAGE), rows, options.seeds, options.other_seeds, test, out)
    table = table3(plan, console)
    path = Path(options.report) if options.report else out / "report.md"
    print(write_report(plan, table, path, options.arguments))
    console.say(f"the report is in {path}")


def add_race(tables: Any) -> None:
    """`undivided paper race`."""
    table = tables.add_parser(
        "race",
        help="RNN, LSTM, GRU, convolutional and Transformer with equal parameters, data and budget",
        description="Train what came before the Transformer beside it: the same text, subwords, batches, parameters and budget "
        "(--minutes or --max-steps, of each). Reports BLEU, also by sentence length, speed, and how far gradients reach. "
        "Run again after a stop, it goes on; finished trainings are kept.",
    )
    table.add_argument(
        "recipes",
        nargs="+",
        metavar="RECIPE",
        help="a YAML file for the Transformer, and where you have them others for recurrent and convolutional models",
    )
    table.add_argument("--models", default="all", metavar="NAME,…", help="who runs, such as lstm-attention (default: all)")
    table.add_argument("--seeds", type=int, default=1, metavar="N", help="trainings of each (default: 1)")
    table.add_argument("--test", nargs="+", metavar="FILE", help="SOURCE TARGET to measure on (default: the first --valid)")
    table.add_argument("--out", default="models/race", metavar="DIR", help="where the trainings go (default: models/race)")
    add_common(table, "OUT/report.md")
    budget = ("minutes", "max_steps", "threads", "device")
    others = [name for name, _, _ in leaves(Recipe) if name.partition(".")[0] == "train" and name.partition(".")[2] not in budget]
    add_settings(table, Recipe, without=[*others, *(name for name, _, _ in leaves(Recipe) if name.startswith("model."))])
    table.set_defaults(run=run_race)


def run_race(options: argparse.Namespace) -> None:
    """The race."""
    from undivided.paper.race import Plan, by_kind, chosen, race, settings_for
    from undivided.paper.race_report import write_report

    faults: list[str] = []
    names: list[str] = []
    recipes: dict[str, Values] = {}
    try:
        names = chosen(options.models)
    except InputError as error:
        faults.append(str(error))
    if options.seeds < 1:
        faults.append(f"--seeds: {options.seeds} is less than 1")
    try:
        recipes = by_kind([merge(read_yaml(path), settings_of(options)) for path in options.recipes])
        base = build(recipes["transformer"])
        if not (base.data.train and base.data.valid):
            faults.append("name pairs to learn from and held-out ones: --train SOURCE TARGET --valid SOURCE TARGET")
    except InputError as error:
        faults.append(str(error))
    if faults:
        raise InputError("\n".join(faults))
    test = CorpusFiles(*options.test) if options.test else base.data.valid[0]
    plan = Plan(recipes, names, options.seeds, test, Path(options.out))
    for name in names:
        build(settings_for(plan, name))
    console, path = Console(options.quiet), Path(options.report) if options.report else Path(options.out) / "report.md"
    print(write_report(plan, race(plan, console), path, options.arguments))
    console.say(f"the report is in {path}")


def add_table4(tables: Any) -> None:
    """`undivided paper table4`."""
    table = tables.add_parser(
        "table4",
        help="constituency parsing: teach, parse, score, beside a grammar",
        description="Teach recipes to parse from a folder of Penn-style trees, read a grammar off the same trees, parse dev and "
        "test with each, score by EVALB's conventions, report. Run again after a stop, it goes on.",
    )
    table.add_argument("recipes", nargs="*", metavar="RECIPE", help="YAML files with settings, such as recipes/craft-parsing.yaml")
    table.add_argument("--trees", required=True, metavar="DIR", help="folder with train.mrg, dev.mrg and test.mrg")
    table.add_argument("--out", default="models/table4", metavar="DIR", help="where the work goes (default: models/table4)")
    table.add_argument("--form", default="compact", choices=("compact", "vinyals"), help="how trees are written (default: compact)")
    table.add_argument("--tags", default="keep", choices=("keep", "xx"), help="tags in written trees: as they are, or all XX")
    table.add_argument(
        "--first", type=at_least_0, default=0, metavar="N", help="use only the first N trees of each part, for a trial; 0 is all"
    )
    table.add_argument(
        "--grafts", type=at_least_0, default=0, metavar="N",
        help="recipes learn from every tree up to N times more, each time with constituents of other trees in it (default: 0)",
    )  # fmt: skip
    table.add_argument("--no-grammar", action="store_true", help="leave out the grammar (PCFG)")
    add_common(table, "OUT/report.md")
    add_settings(table, Recipe, without=("data.train", "data.valid", "tokens.ready", "tokens.joint", "train.out"))
    table.set_defaults(run=run_table4)


def run_table4(options: argparse.Namespace) -> None:
    """Parsing."""
    recipes = {Path(path).stem: merge(read_yaml(path), settings_of(options)) for path in options.recipes}
    if len(recipes) < len(options.recipes):
        raise InputError("two recipes have the same name; the table could not tell them apart")
    from undivided.paper.parsing import Writing
    from undivided.paper.table4 import table4, write_report

    out, trees, writing = Path(options.out), Path(options.trees), Writing(options.form, options.tags)
    path = Path(options.report) if options.report else out / "report.md"
    console = Console(options.quiet)
    entries = table4(
        recipes, trees, writing, out, console, first=options.first, grafts=options.grafts, grammar=not options.no_grammar
    )
    write_report(entries, trees, writing, path, options.arguments)
    console.say(f"the report is in {path}")
    for entry in entries:
        print(f"{entry.name}: {entry.agreement}")


def stdin_lines() -> Iterator[str]:
    """Lines of text from stdin."""
    with open(0, "rb", closefd=False) as stream:
        for number, line in enumerate(stream, 1):
            try:
                text = line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise InputError(f"stdin, line {number}: not valid UTF-8") from None
            if "\0" in text:
                raise InputError(f"stdin, line {number}: holds a NUL character; is this text?")
            yield text


def add_parse(tables: Any) -> None:
    """`undivided paper parse`."""
    verb = tables.add_parser(
        "parse",
        help="parse text with a model that table4 taught",
        description="One tree for every line of text, over exactly its words; an empty line for an empty one.",
    )
    verb.add_argument("model", help="a model folder, such as models/table4/craft-parsing/model")
    verb.add_argument("file", nargs="?", default="-", help="sentences, one a line (default: stdin)")
    verb.add_argument("--tokenised", action="store_true", help="words have spaces between them already, as in a treebank")
    verb.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    verb.add_argument("--threads", type=int, default=0, metavar="N", help="CPU threads; 0 is all cores (default: 0)")
    verb.add_argument("-q", "--quiet", action="store_true", help="say nothing but warnings and errors on stderr")
    left_out = ("sentences", "n_best", "sample", "temperature", "top_k", "top_p", "seed")
    add_settings(verb, SearchConfig, without=left_out, default="the model's own")
    verb.set_defaults(run=run_parse)


def run_parse(options: argparse.Namespace) -> None:
    """Parse lines."""
    faults: list[str] = []
    wanted = given(options, SearchConfig)
    config = fill(SearchConfig, wanted, "", faults)
    if faults:
        raise InputError(listed("the settings have", faults))
    if options.file != "-" and not Path(options.file).is_file():
        raise InputError(f"{options.file}: no such file")
    from undivided.paper.parsing import parse_lines
    from undivided.paper.trees import written
    from undivided.score import read_lines

    lines = stdin_lines() if options.file == "-" else read_lines(options.file)
    search = {name: getattr(config, name) for name in wanted}
    trees = parse_lines(
        options.model, lines, search, ready=options.tokenised, device=options.device, threads=options.threads,
        console=Console(options.quiet),
    )  # fmt: skip
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    for tree in trees:
        print("" if tree is None else written(tree), flush=True)


def add_faq(tables: Any) -> None:
    """`undivided paper faq`."""
    verb = tables.add_parser(
        "faq",
        help="the questions learners ask, answered by running: pages with pictures",
        description="Compute, draw and write a page for each question, in English and Korean. Needs matplotlib (extra: look).",
    )
    verb.add_argument("--out", default="docs/faq", metavar="DIR", help="where the pages go (default: docs/faq)")
    verb.add_argument("--only", default="", metavar="NAME", help="one question by the name of its page, such as sqrt-dk")
    verb.add_argument("--quick", action="store_true", help="fewer draws, seeds and steps: a trial, not an answer")
    verb.add_argument("-q", "--quiet", action="store_true", help="say nothing but warnings and errors on stderr")
    verb.set_defaults(run=run_faq)


def run_faq(options: argparse.Namespace) -> None:
    """Answer the questions."""
    from undivided.paper.faq import faq

    for path in faq(Path(options.out), Console(options.quiet), options.only, options.quick):
        print(path)
