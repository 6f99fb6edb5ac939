"""The mutants of `make mutants` fit the code of today, and each says what must notice it. That they die, the target shows."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from mutants import Mutant, Outcome, apply, as_table, find_stale, join_rows  # noqa: E402
from mutations import MUTANTS  # noqa: E402


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_text_stands_in_the_code_exactly_once(mutant):
    assert find_stale([mutant]) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_tests_are_there(mutant):
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        text = (ROOT / "tests" / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"^def {re.escape(name.partition('[')[0])}\(", text, re.MULTILINE), test


@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each.file.endswith(".py")], ids=lambda mutant: mutant.name)
def test_it_is_still_python(mutant, tmp_path):
    source = (ROOT / "src" / "undivided" / mutant.file).read_text(encoding="utf-8")
    compile(source.replace(mutant.old, mutant.new), mutant.file, "exec")


def test_there_are_many_and_each_has_a_name_of_its_own():
    assert len(MUTANTS) >= 45
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)


def test_a_stale_mutant_is_told(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    faults = find_stale([Mutant("m", "p", "a.py", "x = 1", "x = 2", ()), Mutant("n", "p", "a.py", "y", "y", ())], tmp_path)
    assert faults == [
        "m: a.py holds 'x = 1' 2 times, not once",
        "n: a.py holds 'y' 0 times, not once",
        "n: changes nothing",
    ]


def test_a_mutant_changes_its_copy_alone(tmp_path):
    (tmp_path / "a.py").write_text("one\ntwo\n")
    apply(Mutant("m", "p", "a.py", "two", "2", ()), tmp_path)
    assert (tmp_path / "a.py").read_text() == "one\n2\n"


def test_the_report_lists_the_mutants_of_today():
    report = (Path(__file__).parents[2] / "docs" / "mutants.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z0-9-]+) \| `", report, re.MULTILINE)
    assert rows == [mutant.name for mutant in MUTANTS], "run make mutants"
    assert f"{len(rows)} of {len(rows)} are killed." in report


def test_a_run_by_name_renews_its_rows_alone():
    one, two, three = (Mutant(name, f"promise of {name}", "a.py", "x", "y", ()) for name in ("one", "two", "three"))
    before = as_table(join_rows("", [Outcome(one, "t::a", "", 1), Outcome(two, "", "SURVIVED: 1 passed", 2)], ["one", "two"]))
    assert "1 of 2 are killed" in before
    after = as_table(join_rows(before, [Outcome(two, "t::b", "", 3), Outcome(three, "t::c", "", 4)], ["three", "two", "one"]))
    assert "3 of 3 are killed" in after
    assert [row for row in after.splitlines() if "a.py" in row] == [
        "| three | `a.py` | promise of three | `t::c` | 4 |",
        "| two | `a.py` | promise of two | `t::b` | 3 |",
        "| one | `a.py` | promise of one | `t::a` | 1 |",
    ]
