"""Glossaries and translation memories."""

import pytest

from undivided.core.errors import InputError
from undivided.formats.memory import Memory, read_memory
from undivided.formats.terms import Glossary, Term, read_glossary

TBX = """<?xml version="1.0"?>
<martif type="TBX"><text><body>
<termEntry id="1"><langSet xml:lang="en-US"><tig><term>style sheet</term></tig><tig><term>stylesheet</term></tig></langSet>
<langSet xml:lang="de"><ntig><termGrp><term>Formatvorlage &amp; Co</term></termGrp></ntig></langSet></termEntry>
<conceptEntry><langSec xml:lang="en"><termSec><term>cell</term></termSec></langSec>
<langSec xml:lang="fr"><termSec><term>cellule</term></termSec></langSec></conceptEntry>
</body></text></martif>"""

TMX = """<?xml version="1.0"?><tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>Open the  file.</seg></tuv><tuv xml:lang="de"><seg>Öffnen Sie die Datei.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Close the big red window now.</seg></tuv><tuv xml:lang="de"><seg>Zu!</seg></tuv></tu>
</body></tmx>"""


def test_terms_are_whole_words_of_any_case_and_the_longest_wins():
    glossary = Glossary([Term("table", "Tisch"), Term("Pivot table", "Pivot-Tabelle"), Term("file", "Datei")])
    text = "A pivot TABLE, tables and a Table; files."
    found = glossary.find(text)
    assert [(text[span.start : span.end], span.text) for span, _ in found] == [("pivot TABLE", "Pivot-Tabelle"), ("Table", "Tisch")]
    assert glossary.find_missed("the file", "die dateien") == []
    assert glossary.find_missed("the file", "die Akte") == [Term("file", "Datei")]


def test_glossaries_of_every_kind(tmp_path):
    (tmp_path / "a.tsv").write_text("# ours\nfile\tDatei\tnote\n\npivot table\tPivot-Tabelle\n", encoding="utf-8")
    (tmp_path / "a.csv").write_text('"a, b",c\n', encoding="utf-8")
    (tmp_path / "a.tbx").write_text(TBX, encoding="utf-8")
    assert len(read_glossary(tmp_path / "a.tsv")) == 2
    assert read_glossary(tmp_path / "a.csv").find_missed("A, B!", "x") == [Term("a, b", "c")]
    terms = read_glossary(tmp_path / "a.tbx", "en", "de").terms.values()
    assert sorted(terms) == [Term("style sheet", "Formatvorlage & Co"), Term("stylesheet", "Formatvorlage & Co")]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.tsv", "file\n", "line 1: a term and its translation are needed, with a tab"),
        ("a.tsv", "# nothing\n", "holds no term"),
        ("a.txt", "a\tb\n", "a glossary is a .tsv, .csv or .tbx file"),
        ("a.tbx", TBX.replace('"de"', '"ko"'), "holds no term"),
        ("a.tbx", '<!DOCTYPE m [<!ENTITY a "b">]><martif>&a;</martif>', "a.tbx|declar"),
        ("missing.tsv", None, "cannot be read"),
    ],
)
def test_bad_glossaries_end_in_a_sentence(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_glossary(tmp_path / name, "en", "de")


def test_a_memory_finds_equal_and_similar_sources(tmp_path):
    (tmp_path / "m.tmx").write_text(TMX, encoding="utf-8")
    memory = read_memory(tmp_path / "m.tmx", "en", "de")
    assert memory.find_exact(" Open the file. ") == "Öffnen Sie die Datei."
    assert memory.find_exact("Open the File.") is None
    match = memory.find_fuzzy("Close the big blue window now.")
    assert match is not None
    assert match.target == "Zu!"
    assert 0.8 < match.similarity < 0.9
    assert memory.find_fuzzy("Something else entirely") is None
    assert len(Memory([("a", " "), (" ", "b")])) == 0
    with pytest.raises(InputError, match="no such file"):
        read_memory(tmp_path / "none.tmx")
