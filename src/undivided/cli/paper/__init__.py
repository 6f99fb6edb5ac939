"""`undivided paper …`: one module for each table. Importing this must not import torch."""

from __future__ import annotations

from typing import Any

from undivided.cli.paper.distance import add_distance
from undivided.cli.paper.faq import add_faq
from undivided.cli.paper.parse import add_parse
from undivided.cli.paper.race import add_race
from undivided.cli.paper.table1 import add_table1
from undivided.cli.paper.table2 import add_table2
from undivided.cli.paper.table3 import add_table3
from undivided.cli.paper.table4 import add_table4

ABOUT = """Reproduce the tables of "Attention Is All You Need" on this machine, on any corpus; compare the Transformer
with the models before it; parse text; answer learners' questions by experiments."""


def add_paper(verbs: Any) -> None:
    """`undivided paper`."""
    verb = verbs.add_parser("paper", help="reproduce the paper's tables; parsing; learners' questions", description=ABOUT)
    tables = verb.add_subparsers(metavar="WHAT", required=True, parser_class=type(verb))
    for add in (add_table1, add_table2, add_table3, add_table4, add_race, add_distance, add_parse, add_faq):
        add(tables)
