"""docs/paper.md: each claim has a verdict, and its figures stand in the reports beside it."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
VERDICTS = ("confirmed", "contradicted", "not resolved", "beyond")
CLAIMS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (DOCS / "paper.md").read_text(encoding="utf-8").splitlines()
    if line.count("|") == 6 and not line.startswith(("| section", "|---"))
]


def reports(cell):
    """The texts of the reports that a cell links to."""
    return [(DOCS / path).read_text(encoding="utf-8") for path in re.findall(r"\]\(([^)#]+)\)", cell)]


def figures(cell):
    """`−1.11` → 1.11: numbers with a point, a comma or an exponent; signs are written in more than one way."""
    return re.findall(r"\d+\.\d+e[+-]\d+|\de-\d+|\d+(?:,\d{3})+|\d+\.\d+", cell)


def test_there_is_one_for_every_section():
    sections = {claim[0].split()[0] for claim in CLAIMS}
    assert {"4", "5.1", "5.2", "5.4", "6.1", "6.2", "6.3"} <= sections


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim[0]} {claim[1][:40]}")
def test_its_verdict_is_one_of_four_and_its_figures_are_those_of_the_reports(claim):
    _, _, verdict, shown, report = claim
    assert any(each in verdict for each in VERDICTS)
    texts = reports(report)
    assert texts or (report == "–" and verdict == "beyond"), "what was measured has a report"
    # A year or a setting of the paper is no figure of a report.
    missing = [number for number in figures(shown) if texts and not any(number in text for text in texts)]
    assert missing == []


def test_a_figure_that_no_report_has_is_found():
    assert figures("−1.11 BLEU (noise 3.18), 20,858,880, 3.28e+18 and 3e-21 at n = 70") == [
        "1.11", "3.18", "20,858,880", "3.28e+18", "3e-21",
    ]  # fmt: skip
