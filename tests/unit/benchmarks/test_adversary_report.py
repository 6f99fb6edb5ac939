"""The report of the adversary names for each numbered fault tests that there are."""

import ast
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from attacks import report

TESTS = Path(__file__).parents[2]


def test_every_numbered_fault_has_tests():
    assert list(report.TESTS) == [key for key in report.SUBJECTS if key.isdigit()]
    assert all(report.TESTS.values())


def test_the_tests_that_the_report_names_exist():
    for name in {name for names in report.TESTS.values() for name in names}:
        file, _, test = name.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert test in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)], name
