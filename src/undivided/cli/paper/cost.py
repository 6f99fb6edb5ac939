"""`undivided paper table1` and `table2`: what layers and trainings cost."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.cli.paper.options import add_common, numbers, report_of, settings_of
from undivided.config import Recipe
from undivided.config.flags import add_settings
from undivided.config.settings import merge
from undivided.config.yaml_file import read_yaml
from undivided.core.console import Console
from undivided.core.errors import InputError


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
    from undivided.paper.table1.report import write_report
    from undivided.paper.table1.table import Setup, table1

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
    from undivided.paper.table2.table import commands, in_one_process, prepare, train_and_score, write_report

    out, console = Path(options.out), Console(options.quiet)
    checksums = Path(options.checksums) if options.checksums else None
    in_one_process(options.arguments, out)
    if options.prepare_only:
        prepare(values, Path(options.data), out, checksums, console)
        console.say("prepared; now train on all GPUs of this machine, then score:")
        print("\n".join(commands(options.arguments, out)[1:]))
        return
    run = train_and_score(values, Path(options.data), out, checksums, console) if options.recipe else None
    path = report_of(options, out)
    print(write_report(run, path, options.arguments))
    for score in run.scores if run is not None else ():
        print(score)
    console.say(f"the report is in {path}")
