"""docs/paper.md maps sections of the paper to symbols and tests: all of them exist, and no section of the code is missing."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "paper.md").read_text(encoding="utf-8").splitlines()
    if line.count("|") == 5 and not line.startswith(("| section", "|---"))
]
PLACE = r"(?:Table|Figure|Figures|Eq\.) ?\d+|\d+(?:\.\d+)*"


def places(text):
    """`3.1, 3.3–3.5` → 3.1, 3.3, 3.4, 3.5; `5.3, Eq. 3` → 5.3, Eq. 3."""
    for first, last in re.findall(r"(\d+\.\d+)–(\d+\.\d+)", text):
        chapter, begin, end = first.split(".")[0], int(first.split(".")[1]), int(last.split(".")[1])
        text = text.replace(f"{first}–{last}", ", ".join(f"{chapter}.{number}" for number in range(begin, end + 1)))
    return set(re.findall(PLACE, text))


def tags():
    """Every tag of a docstring in the package, with its file."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found += [(path.name, tag) for tag in re.findall(r"\[paper ([^\]:]+)", ast.get_docstring(node) or "")]
    return found


def known_places():
    return set().union(*(places(row[0]) for row in ROWS))


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def resolve(symbol):
    """Import as much of a dotted name as is a module, and look up the rest."""
    parts = symbol.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(symbol)


def test_ranges_and_lists_of_sections_are_understood():
    assert places("3.1, 3.3–3.5") == {"3.1", "3.3", "3.4", "3.5"}
    assert places("3.2.1, Eq. 1") == {"3.2.1", "Eq. 1"}
    assert places("Figure 1, 3.4") == {"Figure 1", "3.4"}


def test_every_section_named_in_the_code_is_on_the_page():
    missing = [(name, tag) for name, tag in tags() if not places(tag) or not places(tag) <= known_places()]
    assert missing == []
    assert len(tags()) > 20


def test_the_page_has_every_section_from_3_to_6():
    wanted = {"3.1", "3.2", "3.2.1", "3.2.2", "3.2.3", "3.3", "3.4", "3.5", "4", "5.1", "5.2", "5.3", "5.4", "6.1", "6.2", "6.3"}
    wanted |= {"Eq. 1", "Eq. 2", "Eq. 3", "Table 1", "Table 2", "Table 3", "Table 4", "Figure 1"}
    assert wanted <= known_places()


@pytest.mark.parametrize("symbol", sorted({symbol for row in ROWS for symbol in quoted(row[2])}))
def test_symbol_exists(symbol):
    assert symbol.startswith("undivided.")
    resolve(symbol)


QUESTIONS = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "faq").glob("*.md"))]


@pytest.mark.parametrize("symbol", sorted({each for page in QUESTIONS for each in re.findall(r"`(undivided\.[\w.]+)`", page)}))
def test_symbol_that_answers_a_question_exists(symbol):
    resolve(symbol)


@pytest.mark.parametrize("test", sorted({test for row in ROWS for test in quoted(row[3])}))
def test_test_exists(test):
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert not name or name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_row_names_symbol_and_test_or_says_not_yet():
    assert [row for row in ROWS for cell in row[2:] if not quoted(cell) and cell != "not yet"] == []
