"""Harmed documents of every format: a sentence or a right result, never a traceback or a hang."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from format_fuzz import fuzz, seeds


@pytest.mark.parametrize("format", seeds())
def test_harmed_documents(format):
    found = fuzz(format, 400, seed=7)
    assert [message for _, message in found.wrong] == []
    assert found.counts["translated"] > 20
    assert found.slowest < 1
