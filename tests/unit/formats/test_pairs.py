# ruff: noqa: E501  (documents are written as they are)
"""Documents to train from: memories, catalogues, trees of catalogues."""

import shutil
import subprocess
import tracemalloc

import pytest
from catalogues import CATALOGUES

from undivided.config import CorpusFiles
from undivided.core.errors import InputError
from undivided.formats import DocumentOptions
from undivided.formats.pairs import read_document_pairs, split_language

EN_DE = DocumentOptions("en", "de")


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
    return str(folder)


def memory(units: int) -> bytes:
    rows = [
        f'<tu><tuv xml:lang="en"><seg>dog {n}</seg></tuv><tuv xml:lang="de"><seg>Hund <ph>x</ph>{n}</seg></tuv></tu>\n'
        for n in range(units)
    ]
    return ("<tmx><header/><body>" + "".join(rows) + "</body></tmx>").encode()


def test_a_memory_says_its_languages(tmp_path):
    (tmp_path / "a.tmx").write_bytes(memory(3))
    found = read_document_pairs(str(tmp_path / "a.tmx"))
    assert (found.source_lang, found.target_lang) == ("en", "de")
    assert list(found.pairs) == [("dog 0", "Hund 0"), ("dog 1", "Hund 1"), ("dog 2", "Hund 2")]
    turned = read_document_pairs(str(tmp_path / "a.tmx"), options=DocumentOptions("de", "en"))
    assert next(turned.pairs) == ("Hund 0", "dog 0")
    with pytest.raises(InputError, match="has en, de; say which languages"):
        read_document_pairs(str(tmp_path / "a.tmx"), options=DocumentOptions("fr", "en"))


def test_memory_of_a_memory_does_not_grow(tmp_path):
    peaks = []
    for units in (1_000, 6_000):
        (tmp_path / "a.tmx").write_bytes(memory(units))
        tracemalloc.start()
        assert sum(1 for _ in read_document_pairs(str(tmp_path / "a.tmx")).pairs) == units
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


@pytest.mark.parametrize("name", ["PO", "XLIFF_1", "XLIFF_2", "TS", "TSV", "CSV", "JSONL"])
def test_only_what_is_translated_is_learned(tmp_path, name):
    path = tmp_path / f"a.{CATALOGUES[name].format}"
    path.write_bytes(CATALOGUES[name].before)
    assert len(list(read_document_pairs(str(path), options=EN_DE).pairs)) == 1


@pytest.mark.skipif(not shutil.which("msgfmt"), reason="msgfmt (gettext) is not installed")
def test_compiled_catalogues(tmp_path):
    po = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nLanguage: de\\nPlural-Forms: nplurals=2; plural=n != 1;\\n"\n\n'
    po += 'msgctxt "x"\nmsgid "dog"\nmsgstr "Hünd"\n\nmsgid "cat"\nmsgid_plural "cats"\nmsgstr[0] "Katze"\nmsgstr[1] "Katzen"\n'
    (tmp_path / "a.po").write_text(po, encoding="utf-8")
    subprocess.run(["msgfmt", "-o", tmp_path / "a.mo", tmp_path / "a.po"], check=True)
    found = read_document_pairs(str(tmp_path / "a.mo"))
    assert (found.target_lang, sorted(found.pairs)) == ("de", [("cat", "Katze"), ("cats", "Katzen"), ("dog", "Hünd")])
    (tmp_path / "b.mo").write_bytes((tmp_path / "a.mo").read_bytes()[:60])
    with pytest.raises(InputError, match="damaged"):
        list(read_document_pairs(str(tmp_path / "b.mo")).pairs)


@pytest.mark.parametrize(
    ("suffix", "ours", "theirs"),
    [
        ("json", '{"b": "cat", "a": "dog"}', '{"a": "Hund", "c": "Maus", "b": "Katze"}'),
        ("yaml", "en:\n  b: cat\n  a: dog\n", "de:\n  a: Hund\n  b: Katze\n"),
        ("strings", '"b" = "cat";\n"a" = "dog";', '"a" = "Hund";\n"b" = "Katze";'),
        ("srt", "1\n00:00:01,000 --> 00:00:02,000\ncat\n\n2\n00:00:03,000 --> 00:00:04,000\ndog\n", "1\n00:00:01,000 --> 00:00:02,100\nKatze\n\n2\n00:00:03,000 --> 00:00:04,000\nHund\n"),
        ("xml", '<resources><string name="b">cat</string><string name="a">dog</string></resources>', '<resources><string name="a">Hund</string><string name="b">Katze</string></resources>'),
    ],
)  # fmt: skip
def test_two_catalogues_are_aligned_by_key(tmp_path, suffix, ours, theirs):
    write(tmp_path, {f"x.{suffix}": ours, f"y.{suffix}": theirs})
    files = CorpusFiles(str(tmp_path / f"x.{suffix}"), str(tmp_path / f"y.{suffix}"))
    assert files.is_document
    assert list(read_document_pairs(files.source, files.target).pairs) == [("cat", "Katze"), ("dog", "Hund")]


def test_a_tree_of_catalogues(tmp_path):
    po = 'msgid ""\nmsgstr "Language: {0}\\n"\n\nmsgid "po"\nmsgstr "po {0}"\n'
    tree = {
        "locale/de/LC_MESSAGES/app.po": po.format("de"), "locale/fr/LC_MESSAGES/app.po": po.format("fr"),
        "web/en.json": '{"k": "json"}', "web/de.json": '{"k": "json de"}', "web/fr.json": '{"k": "json fr"}',
        "res/values/strings.xml": '<resources><string name="a">xml</string></resources>',
        "res/values-de/strings.xml": '<resources><string name="a">xml de</string></resources>',
        "en.lproj/L.strings": '"a" = "apple";', "de.lproj/L.strings": '"a" = "apple de";', "README.txt": "no catalogue",
    }  # fmt: skip
    folder = write(tmp_path, tree)
    assert sorted(read_document_pairs(folder, options=EN_DE).pairs) == [(x, f"{x} de") for x in ("apple", "json", "po", "xml")]
    with pytest.raises(InputError, match="has catalogues of de, en, fr; say which"):
        read_document_pairs(folder)
    assert CorpusFiles(folder).is_document


@pytest.mark.parametrize(
    ("path", "name", "language"),
    [("de.json", "*.json", "de"), ("app.pt-BR.yml", "app.*.yml", "pt-BR"), ("values-zh-rTW/strings.xml", "*/strings.xml", "zh-TW"),
     ("values/strings.xml", "*/strings.xml", ""), ("de/LC_MESSAGES/app.po", "*/LC_MESSAGES/app.po", "de"), ("misc/app.json", "misc/app.json", "")],
)  # fmt: skip
def test_languages_in_names(tmp_path, path, name, language):
    assert split_language((tmp_path / path).relative_to(tmp_path)) == (name, language)


def test_line_breaks_are_aligned_or_removed(tmp_path):
    rows = '{"source": "a\\nb", "target": "x\\ny"}\n{"source": "a\\nb", "target": "x y"}\n'
    (tmp_path / "a.jsonl").write_text(rows)
    assert list(read_document_pairs(str(tmp_path / "a.jsonl")).pairs) == [("a", "x"), ("b", "y"), ("a b", "x y")]
