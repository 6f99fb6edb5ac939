"""`undivided paper …` on the command line. Importing this must not import torch."""

from __future__ import annotations

from typing import Any

from undivided.cli.paper.cost import add_table1, add_table2
from undivided.cli.paper.parsing import add_parse, add_table4
from undivided.cli.paper.questions import add_faq
from undivided.cli.paper.variations import add_race, add_table3

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
