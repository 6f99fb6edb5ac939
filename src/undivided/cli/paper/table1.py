"""`undivided paper table1`: what layers cost."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.cli.paper.options import add_common, choose_report, numbers
from undivided.core.console import Console


def add_table1(tables: Any) -> None:
    """`undivided paper table1`."""
    table = tables.add_parser(
        "table1",
        help="complexity, sequential operations and path length of layers, derived and measured",
        description="Measure self-attention, recurrent, convolutional (also separable) and restricted self-attention layers over "
        "sequence length n and width d on this machine: times with fitted exponents, where self-attention and recurrence cost the "
        "same, path lengths; and additive against dot-product attention. About three minutes and 2 GB of memory; needs no data.",
    )
    sizes = [64, 128, 256, 512, 1024]
    shown = ",".join(map(str, sizes))
    table.add_argument("--n", type=numbers, default=sizes, metavar="N,…", help=f"sequence lengths (default: {shown})")
    table.add_argument("--d", type=numbers, default=sizes, metavar="N,…", help=f"widths (default: {shown})")
    table.add_argument(
        "--fit-from", type=int, default=256, metavar="N", help="fit exponents where n and d are at least N (default: 256)"
    )
    table.add_argument("--kernel", type=int, default=3, metavar="K", help="kernel width of the convolutions, odd (default: 3)")
    table.add_argument("--neighbourhood", type=int, default=64, metavar="R", help="r of restricted self-attention (default: 64)")
    table.add_argument(
        "--paths", type=numbers, default=[8, 16, 32, 64, 128], metavar="N,…", help="sequence lengths for path lengths"
    )
    table.add_argument("--batch", type=int, default=4, metavar="N", help="sequences per batch (default: 4)")
    table.add_argument("--repetitions", type=int, default=7, metavar="N", help="repetitions; the median counts (default: 7)")
    table.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads (default: 1)")
    add_common(table, "table1.md")
    table.set_defaults(run=run_table1)


def run_table1(options: argparse.Namespace) -> None:
    """Measure the layers and write the report."""
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
    console, path = Console(options.quiet), choose_report(options, Path("table1.md"))
    found = table1(setup, options.threads, console)
    print(write_report(setup, found, options.threads, path, options.arguments))
    console.say(f"the report is in {path}")
