"""Every regular expression of the package takes time in line with its input, whatever the input."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from undivided.data.byte_bpe import word_pattern
from undivided.formats.protection import PATTERN

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "undivided"
CALLS = {"compile", "search", "match", "fullmatch", "split", "sub", "subn", "findall", "finditer"}
MADE = {
    ("cli/demo/corpus.py", "TARGETS.get(target_lang, ANY_LETTER)"): ["[^\\W\\d_]", "[가-힣]"],
    ("paper/parsing/trees.py", "cut"): ["[-=|]", "\\|"],
    ("formats/protection.py", "'|'.join((f'(?P<{kind}>{pattern})' for kind, pattern in KINDS.items()))"): [PATTERN.pattern],
    ("data/byte_bpe.py", "f'{words}|[{SPACES}]+(?![^{SPACES}])|[{SPACES}]+'"): [word_pattern().pattern],
    ("formats/protection.py", "'|'.join(map(re.escape, known))"): ["｟0｠|｟11｠"],
    ("formats/table.py", "f'[^{re.escape(separator)}\\\\r\\\\n]*'"): ["[^,\\r\\n]*"],
    ("paper/parsing/pcfg.py", "pattern"): ["^[A-Z]", "^[^a-z]+$", "\\d", "[a-z]", "[^\\x00-\\x7f]"],
}
"""Patterns that are not written where they are used, with what they can be."""

TRIAL = """
import json, re, sys
pattern, length = json.load(sys.stdin)
found = re.compile(pattern)
seeds = ["a", " ", "\\t", "0", ".", "!", "-", "/", "a.", "a. ", ". ", "ab. ", "\\r", "\\n", "\\r\\n", "a/", "x/.", "_", "A",
         "aa.  ", "»] ", "ab.\\n", "1.", "é", "가", "\\u202e", "\\x1b", "translations/", "a-0", "<", "[", "0a", "value <= 1"]
for seed in seeds:
    for ending in ("", "X", "!", "\\0", " ", "\\n"):
        text = seed * (length // len(seed)) + ending
        found.fullmatch(text), found.search(text), found.sub("", text), found.split(text)
        found.search("ab. " + text), found.search("ab." + text)
"""


def patterns() -> list[tuple[str, str]]:
    """Each (file, pattern) of the package."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        where = str(path.relative_to(PACKAGE))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS):
                continue
            if not (isinstance(node.func.value, ast.Name) and node.func.value.id in ("re", "regex")):
                continue
            first = node.args[0]
            if isinstance(first, ast.Constant):
                found.append((where, first.value if isinstance(first.value, str) else first.value.decode("latin-1")))
            else:
                known = MADE.get((where, ast.unparse(first)))
                assert known, f"{where}: {ast.unparse(first)} is made at run time; say in MADE what it can be"
                found += [(where, each) for each in known]
    return found


def test_there_are_some():
    assert len(patterns()) > 8


@pytest.mark.parametrize("pattern", sorted({pattern for _, pattern in patterns()}))
def test_no_input_makes_it_slow(pattern):
    """20,000 characters of everything that makes backtracking regexes slow. In line with the length this is a moment; with its
    square it would be an hour, so that the limit says nothing about this machine."""
    given = json.dumps([pattern, 20_000])
    subprocess.run([sys.executable, "-c", TRIAL], input=given.encode(), check=True, timeout=300)


def test_the_trial_finds_a_slow_one():
    for slow in (r"(a+)+$", r"\s+$"):
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run([sys.executable, "-c", TRIAL], input=json.dumps([slow, 20_000]).encode(), check=True, timeout=3)


def test_re_is_imported_under_its_own_name():
    """So that no pattern hides from this test."""
    for path in PACKAGE.rglob("*.py"):
        assert not re.search(r"(?m)^\s*(from re import|import re as|import regex)", path.read_text(encoding="utf-8")), path
