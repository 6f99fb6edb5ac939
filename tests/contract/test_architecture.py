"""docs/architecture.md: every symbol, file and verb that it names exists."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from undivided.cli import make_parser

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SYMBOLS = sorted(set(re.findall(r"`(undivided(?:\.\w+)+)`", PAGE)))
ADDED = ["attention", "file format", "setting", "kind of model", "task", "search", "engine", "kernel", "table", "question", "verb"]
FILES = sorted(set(re.findall(r"`((?:src|tests|docs|tools|benchmarks|recipes)/[\w./-]+)`", PAGE)))


def section(name):
    """The text under a heading, up to the next of its level."""
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def resolve(symbol):
    """Import as much of a dotted name as is a module, and look up the rest, attributes of instances by their annotation."""
    parts = symbol.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            value = getattr(value, "__dataclass_fields__", {}).get(part) or getattr(value, part)
        return value
    raise ModuleNotFoundError(symbol)


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_symbol_exists(symbol):
    resolve(symbol)


@pytest.mark.parametrize("path", FILES)
def test_file_exists(path):
    assert (ROOT / path).exists()


def test_a_symbol_that_is_gone_is_found():
    with pytest.raises(AttributeError):
        resolve("undivided.training.loop.begun")
    with pytest.raises(ModuleNotFoundError):
        resolve("nothing.like_this")


@pytest.mark.parametrize("walk", ["A sentence through training", "A sentence through translation"])
def test_the_walks_name_their_functions_step_by_step(walk):
    steps = [line for line in re.split(r"\n(?=\d+\. )", section(walk)) if re.match(r"\d+\. ", line)]
    assert len(steps) >= 6
    assert [step.split("\n")[0] for step in steps if not re.search(r"`undivided\.[\w.]+`", step)] == []


def test_everything_a_contributor_asks_for_has_its_files():
    rows = [line.split("|")[1:-1] for line in section("Where do I add …?").splitlines() if line.startswith("| ")][1:]
    asked = " ".join(row[0] for row in rows)
    for what in ADDED:
        assert what in asked
    assert [row[0] for row in rows if not re.search(r"`(src|tests|docs)/", "".join(row[1:]))] == []


def test_the_glossary_says_each_word_once():
    words = [line.split("|")[1].strip() for line in section("Glossary").splitlines() if line.startswith("| ")][1:]
    assert len(words) > 20
    assert len(set(words)) == len(words)
    assert words == sorted(words, key=str.casefold)


def test_every_verb_is_named():
    verbs = next(action for action in make_parser()._actions if action.choices).choices
    assert [verb for verb in verbs if f"`{verb}`" not in section("Packages")] == []


@pytest.mark.parametrize("module", ["undivided.cli", "undivided.config", "undivided.core", "undivided.inference.translator"])
def test_torch_is_not_imported_by(module, python):
    assert python(f"import sys, {module}; print('torch' in sys.modules)") == "False\n"


def test_names_with_an_underscore_stay_in_their_file():
    borrowed = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("undivided"):
                borrowed += [f"{path.name}: {alias.name}" for alias in node.names if re.match(r"_(?!_)", alias.name)]
    assert borrowed == []
