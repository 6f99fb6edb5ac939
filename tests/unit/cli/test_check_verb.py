"""`undivided check`: what it takes, prints, writes and refuses."""

import json
import re

import pytest

from undivided.data.check.rules import RULES

PAIRS = [
    ("The red house has a door.", "Das rote Haus hat eine Tür."),
    ("A tree stands in the garden.", "Ein Baum steht im Garten."),
    ("Nobody knows why it is so.", "Niemand weiß, warum das so ist."),
    ("The window is open today.", "Das Fenster ist heute offen."),
]


@pytest.fixture
def corpus(tmp_path):
    pairs = [*PAIRS, PAIRS[0], ("We go home now, all of us.", "")]
    for side, name in enumerate(("a.en", "a.de")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return tmp_path


def test_it_reports_with_line_numbers(run, corpus):
    ran = run("check", corpus / "a.en", corpus / "a.de")
    assert ran.code == 0
    assert "6 pairs, en → de; 2 with faults" in ran.out
    assert re.search(r"duplicate +1 +16.67%.* 5\n", ran.out)
    assert re.search(r"empty +1 .* 6\n", ran.out)


def test_strict_is_3_only_where_something_is_found(run, corpus):
    assert run("check", corpus / "a.en", corpus / "a.de", "--strict").code == 3
    assert run("check", corpus / "a.en", corpus / "a.de", "--strict", "--keep", "duplicate,empty").code == 0


def test_json_clean_report_and_leaks(run, corpus):
    for side, name in enumerate(("v.en", "v.de")):
        (corpus / name).write_text(f"{PAIRS[1][side]}\n", encoding="utf-8")
    given = ["--valid", corpus / "v.en", corpus / "v.de", "--json", "--clean", corpus / "out", "--report", corpus / "r.html"]
    ran = run("check", "--train", corpus / "a.en", corpus / "a.de", *given)
    train, valid = map(json.loads, ran.out.splitlines())
    assert train["rules"]["leak"]["first_lines"] == [2]
    assert train["rules"]["leak"]["removed"] == 1
    assert "leak" not in valid["rules"]
    assert (corpus / "out" / "a.de").read_text(encoding="utf-8") == f"{PAIRS[0][1]}\n{PAIRS[2][1]}\n{PAIRS[3][1]}\n"
    page = (corpus / "r.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "http" not in page
    assert page.count("<svg") >= 3


def test_it_takes_what_train_takes(run, tmp_path):
    (tmp_path / "de.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nLanguage: de\\n"\n\n'
        'msgid "The value %s is not valid"\nmsgstr "Der Wert ist nicht gültig"\n\n'
        'msgid "Open the file"\nmsgstr "Öffne die Datei"\n',
        encoding="utf-8",
    )
    found = json.loads(run("check", tmp_path / "de.po", "--json", "--clean", tmp_path / "out").out)
    assert (found["pairs"], found["target_lang"]) == (2, "de")
    assert found["rules"]["placeholders"]["first_lines"] == [1]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["de.po.de", "de.po.source"]
    (tmp_path / "a.tsv").write_text("The red house is here\tDas rote Haus ist hier\n", encoding="utf-8")
    assert json.loads(run("check", tmp_path / "a.tsv", "--json").out)["pairs"] == 1
    memory = '<?xml version="1.0"?><tmx version="1.4"><body>{}</body></tmx>'
    unit = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>'
    (tmp_path / "m.tmx").write_text(memory.format("".join(unit.format(*pair) for pair in PAIRS)), encoding="utf-8")
    assert json.loads(run("check", tmp_path / "m.tmx", "--json").out)["pairs"] == 4


def test_examples_are_shown_without_commands_to_the_page(run, tmp_path):
    (tmp_path / "a.en").write_text("<script>alert(1)</script> the red house has <b> it\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("\x1b[31mdas rote Haus hat es\n", encoding="utf-8")
    run("check", tmp_path / "a.en", tmp_path / "a.de", "--report", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "\x1b" not in page


def test_refusals_are_one_line(run, corpus):
    for arguments, said in (
        ([], "nothing to check"),
        (["no-such-file", corpus / "a.de"], "no such file"),
        ([corpus / "a.en"], "name both files"),
        ([corpus / "a.en", corpus / "a.de", "--remove", "duplicates"], "did you mean"),
        ([corpus / "a.en", corpus / "a.de", "--clean", corpus], "is an input"),
        ([corpus / "a.en", corpus / "a.de", "--clean", corpus / "a.en"], "is no folder"),
        ([corpus / "a.en", corpus / "a.de", "--report", "x.pdf"], ".html"),
        ([corpus / "a.en", corpus / "a.de", "--encoding", "nonsense"], "no encoding"),
        (["a", "b", "c"], "one or two files"),
    ):
        ran = run("check", *arguments)
        assert ran.code == 2, arguments
        assert said in ran.err
        assert len(ran.err.splitlines()) == 1
    assert (corpus / "a.en").read_text(encoding="utf-8").count("\n") == 6


def test_rules_are_listed(run):
    listed = run("check", "--rules").out
    assert [name for name in RULES if not re.search(rf"^{name} ", listed, re.M)] == []
