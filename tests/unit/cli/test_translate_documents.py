# ruff: noqa: E501  (documents are written as they are)
"""`undivided translate` with documents."""

import json

import pytest

PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "The dog sees a tree today."\nmsgstr ""\n\nmsgid "Done"\nmsgstr "Fertig"\n'


@pytest.fixture
def catalogue(tmp_path):
    path = tmp_path / "a.po"
    path.write_text(PO)
    return path


def test_a_catalogue_is_filled(run, model, catalogue, tmp_path):
    out = tmp_path / "b.po"
    ran = run("translate", model, catalogue, "-o", out)
    assert ran.code == 0, ran.err
    assert "2 segments: 1 translated, 1 left as they are" in ran.err
    text = out.read_text(encoding="utf-8")
    assert '#, fuzzy\nmsgid "The dog sees a tree today."\nmsgstr "der Hund' in text
    assert 'msgid "Done"\nmsgstr "Fertig"\n' in text
    approved = run("translate", model, catalogue, "--approve", "--all", "-q")
    assert "fuzzy" not in approved.out
    assert "Fertig" not in approved.out


def test_nothing_to_translate_is_byte_identical(run, model, tmp_path):
    data = b'msgid "Done"\r\nmsgstr "Fertig"\r\n'
    (tmp_path / "a.po").write_bytes(data)
    assert run("translate", model, tmp_path / "a.po", "-o", tmp_path / "b.po").code == 0
    assert (tmp_path / "b.po").read_bytes() == data


def test_placeholders_come_back_once_each(run, model, tmp_path):
    (tmp_path / "a.json").write_text('{"a": "The dog sees %(thing)s today."}')
    ran = run("translate", model, tmp_path / "a.json")
    assert ran.code == 0
    assert ran.out.count("%(thing)s") == 1
    assert "lost" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a.po", "--workers", "2"], "--workers is for lines of text, not for a document (po)"),
        (["a.po", "--format", "nothing"], "--format nothing: no such format"),
        (["a.en", "--all"], "--all is for documents"),
        (["bad.json"], "bad.json, line 1: not valid JSON"),
        (["a.po", "-o", "a.po"], "it is an input"),
    ],
)
def test_wrong_usage_is_said_in_a_line(run, model, catalogue, monkeypatch, arguments, says):
    monkeypatch.chdir(catalogue.parent)
    (catalogue.parent / "a.en").write_text("The dog.\n")
    (catalogue.parent / "bad.json").write_text("{")
    ran = run("translate", model, *arguments)
    assert ran.code == 2
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_a_document_can_be_read_as_lines(run, model, catalogue):
    ran = run("translate", model, catalogue, "--format", "lines", "-q")
    assert ran.out.count("\n") == PO.count("\n")


def test_a_segment_is_as_sure_as_its_least_sure_sentence(run, model, translator, tmp_path):
    texts = ["The dog sees a tree today.", "Xylophones quickly jump.", "My bird likes the house."]
    (tmp_path / "a.md").write_text(" ".join(texts))
    report = tmp_path / "a.jsonl"
    assert run("translate", model, tmp_path / "a.md", "-q", "--report", report, "--engine", "torch").code == 0
    least, first, _ = sorted(each.confidence for each in translator.stream(texts))
    assert json.loads(report.read_text(encoding="utf-8"))["confidence"] == pytest.approx(least, abs=1e-3)
    assert first - least > 0.01
