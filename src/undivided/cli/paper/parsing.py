"""`undivided paper table4` and `parse`: text into trees."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undivided.cli.paper.options import add_common, at_least_0, report_of, settings_of
from undivided.config import Recipe, SearchConfig
from undivided.config.flags import add_settings, given_settings
from undivided.config.settings import build_config, list_faults, merge
from undivided.config.yaml_file import read_yaml
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.data.corpus import read_lines


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
    from undivided.paper.parsing.parser import Writing
    from undivided.paper.parsing.table4 import table4, write_report

    out, trees, writing = Path(options.out), Path(options.trees), Writing(options.form, options.tags)
    path = report_of(options, out)
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
    wanted = given_settings(options, SearchConfig)
    config = build_config(SearchConfig, wanted, "", faults)
    if faults:
        raise InputError(list_faults("the settings have", faults))
    if options.file != "-" and not Path(options.file).is_file():
        raise InputError(f"{options.file}: no such file")
    from undivided.paper.parsing.parser import parse_lines
    from undivided.paper.parsing.trees import written

    lines = stdin_lines() if options.file == "-" else read_lines(options.file)
    search = {name: getattr(config, name) for name in wanted}
    trees = parse_lines(
        options.model, lines, search, ready=options.tokenised, device=options.device, threads=options.threads,
        console=Console(options.quiet),
    )  # fmt: skip
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    for tree in trees:
        print("" if tree is None else written(tree), flush=True)
