# ruff: noqa: E501  (documents are written as they are)
"""Every format: read, filled, and left alone byte for byte."""

import shutil
import subprocess

import pytest
from catalogues import CATALOGUES

from undivided.core.errors import InputError
from undivided.formats import DocumentOptions, Marked, format_of, open_document

OPTIONS = DocumentOptions(source_lang="en", target_lang="de")
ALL = pytest.mark.parametrize("case", CATALOGUES.values(), ids=CATALOGUES.keys())


def shout(text: str) -> str:
    """Capitals, but placeholders stay."""
    return text.upper().replace("%S", "%s").replace("%D", "%d").replace("%N", "%n")


def translated(document, everything=False, approve=False) -> bytes:
    chosen = [each for each in document.segments() if everything or each.state == "new"]
    return document.save({each.number: Marked(shout(each.text), each.source.tags) for each in chosen}, approve)


@ALL
def test_untranslated_is_byte_identical(case):
    assert open_document(case.before, case.format, OPTIONS).save({}) == case.before


@ALL
def test_what_is_untranslated_is_filled(case):
    document = open_document(case.before, case.format, OPTIONS)
    assert [each.text for each in document.segments() if each.state == "new"] == case.texts
    assert translated(document).decode("utf-8", "replace") == case.after.decode("utf-8", "replace")


@ALL
def test_a_filled_document_says_so_and_stays(case):
    document = open_document(case.after, case.format, OPTIONS)
    assert document.save({}) == case.after
    if case.format in ("po", "xliff", "ts", "tmx", "tsv", "csv"):
        assert [each for each in document.segments() if each.state == "new"] == []


@ALL
def test_everything_can_be_redone(case):
    document = open_document(case.before, case.format, OPTIONS)
    again = open_document(translated(document, everything=True, approve=True), case.format, OPTIONS)
    bilingual = case.format in ("po", "xliff", "ts", "tmx", "tsv", "csv", "jsonl")
    assert [each.target if bilingual else each.text for each in again.segments()] == [shout(e.text) for e in document.segments()]


@pytest.mark.parametrize("name", ["PO", "TS", "XLIFF_1", "XLIFF_2"])
def test_approved_translations_are_not_marked(name):
    case = CATALOGUES[name]
    result = open_document(translated(open_document(case.before, case.format, OPTIONS), True, True), case.format, OPTIONS)
    assert {each.state for each in result.segments()} == {"done"}


def test_states_of_po():
    states = [each.state for each in open_document(CATALOGUES["PO"].before, "po").segments()]
    assert states == ["new", "done", "draft", "new", "new"]


@ALL
@pytest.mark.parametrize("end", ["\r\n", "\n"], ids=["CRLF", "LF"])
def test_line_ends_are_kept(case, end):
    if case.format in ("strings", "csv", "yaml"):
        pytest.skip("UTF-16, line breaks within fields, or within blocks")
    before = case.before.replace(b"\r\n", b"\n").replace(b"\n", end.encode())
    document = open_document(before, case.format, OPTIONS)
    assert document.save({}) == before
    result = translated(document).replace(b"\r\n", b"")
    assert (b"\n" in result) == (end == "\n" and b"\n" in case.after)


def test_context_reaches_translators():
    assert open_document(CATALOGUES["PO"].before, "po").segments()[0].context == "menu; A button"
    assert open_document(CATALOGUES["TS"].before, "ts").segments()[0].context == "Main; button"
    assert open_document(CATALOGUES["STRINGS"].before, "strings").segments()[0].context == "title: The title"
    assert open_document(CATALOGUES["JSON"].before, "json").segments()[0].context == "a.title"


def test_lines_are_known():
    assert [each.line for each in open_document(CATALOGUES["PO"].before, "po").segments()] == [11, 15, 19, 22, 22]


@pytest.mark.parametrize(
    ("format", "data", "says"),
    [
        ("po", b'msgid "a\nmsgstr ""', "line 1: a string does not end"),
        ("po", b'msgid "a"\nnonsense', "line 2: expected msgid"),
        ("po", b'"a"', "belongs to no msgid"),
        ("json", b'{"a": }', "line 1: not valid JSON"),
        ("json", b"[" * 100_000, "nested too deep"),
        ("jsonl", b'{"source": "a"}\n{"source"', "line 2: not valid JSON"),
        ("yaml", b"a: [1\nb: 2", "not valid YAML"),
        ("ts", b"<TS><a></TS>", "line 1: not well-formed XML"),
        ("xliff", b"<html/>", "not an XLIFF file"),
        ("android", b"<a/>", "not Android resources"),
        ("tmx", b"<x/>", "not a TMX file"),
        ("vtt", b"1\n", "begins with WEBVTT"),
        ("srt", b"hello", "no subtitles"),
        ("strings", b'"a" = b;', 'line 1: expected "key"'),
        ("csv", b'a,"b', "does not end"),
        ("xliff", b'<?xml version="1.0" encoding="klingon"?><xliff/>', "unknown encoding"),
        ("nothing", b"", "no such format"),
    ],
)
def test_bad_files_are_refused_in_a_sentence(format, data, says):
    with pytest.raises(InputError, match=says):
        open_document(data, format)


BOMB = b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'


@pytest.mark.parametrize("format", ["xliff", "ts", "tmx", "android"])
@pytest.mark.parametrize(
    "evil",
    [
        BOMB + b"<x>&b;</x>",
        b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>',
        b'<!DOCTYPE x SYSTEM "http://example.org/a.dtd"><x>&a;</x>',
        b'<!DOCTYPE x [<!ENTITY % p SYSTEM "http://example.org/a.dtd"> %p;]><x/>',
        b'<!DOCTYPE x [<!ATTLIST x a CDATA "b">]><x/>',
    ],
    ids=["billion laughs", "XXE", "external DTD", "parameter entity", "declarations without entities"],
)
def test_entities_are_refused(format, evil):
    with pytest.raises(InputError, match="entities, which is refused"):
        open_document(evil, format)


def test_deep_xml_is_refused():
    with pytest.raises(InputError, match="nested more than"):
        open_document(b"<a>" * 5000 + b"</a>" * 5000, "android")


def test_broken_bytes_are_carried_through():
    data = b'msgid "a \xff b"\nmsgstr ""\n\nmsgid "c"\nmsgstr ""\n'
    document = open_document(data, "po")
    assert document.save({1: "C"}, approve=True) == data.replace(b'msgid "c"\nmsgstr ""', b'msgid "c"\nmsgstr "C"')


def test_encoding_of_the_header():
    data = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n\nmsgid "ä"\nmsgstr ""\n'.encode("latin-1")
    document = open_document(data, "po")
    assert document.segments()[0].text == "ä"
    assert document.save({0: "ö"}, approve=True) == data[:-3] + '"ö"\n'.encode("latin-1")
    with pytest.raises(InputError, match="convert the file to UTF-8"):
        document.save({0: "漢"})


def test_xml_in_a_narrow_encoding_spells_letters_as_numbers():
    data = '<?xml version="1.0" encoding="ISO-8859-1"?><resources><string name="a">é</string></resources>'.encode("latin-1")
    assert b'<string name="a">&#28450;</string>' in open_document(data, "android").save({0: "漢"})


def test_long_messages_are_wrapped_as_gettext_does():
    text = "word " * 40 + "end"
    data = b'msgid "a"\nmsgstr ""\n'
    result = open_document(data, "po").save({0: text})
    assert max(map(len, result.splitlines())) <= 79
    assert open_document(result, "po").segments()[0].target == text


def test_columns_by_name():
    options = DocumentOptions(source_column="text", target_column="german")
    data = b"key,text,note\n1,dog,n\n"
    assert open_document(data, "csv", options).save({0: "Hund"}) == b"key,text,note,german\n1,dog,n,Hund\n"
    with pytest.raises(InputError, match="no column is named 'nothing'; there are: key, text, note"):
        open_document(data, "csv", DocumentOptions(source_column="nothing"))


def test_segments_of_xliff_units():
    data = (
        b'<xliff version="1.2"><file><body><trans-unit id="1"><source>One. Two.</source><seg-source><mrk mtype="seg" mid="0">One.</mrk> '
        b'<mrk mtype="seg" mid="1">Two.</mrk></seg-source></trans-unit></body></file></xliff>'
    )
    document = open_document(data, "xliff")
    assert [each.text for each in document.segments()] == ["One.", "Two."]
    result = document.save({0: "Eins.", 1: "Zwei."}).decode()
    assert '<mrk mtype="seg" mid="0">Eins.</mrk> <mrk mtype="seg" mid="1">Zwei.</mrk></target>' in result


def test_formats_by_name():
    assert [format_of(name) for name in ("a.PO", "b.pot", "c.xlf", "d.yml", "e.en", "f")] == ["po", "po", "xliff", "yaml", "", ""]
    with pytest.raises(InputError, match="no such file"):
        open_document("missing.po")


@pytest.mark.parametrize(
    ("format", "data", "text"),
    [
        ("yaml", 'a: "one"\n', "gut 😀\u2028"),
        ("yaml", "- &x:one\n", "zwei: drei"),
        ("android", '<resources><string name="a">"one"</string></resources>', "zwei\r\ndrei"),
        ("csv", "one;x,two\n", "eins;zwei"),
        ("csv", "one\ttwo;three\n", "eins\tzwei"),
        ("tmx", '<!DOCTYPE tmx SYSTEM "a</b>.dtd"><tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>one</seg></tuv>'
         '<tuv xml:lang="de"><seg></seg></tuv></tu></body></tmx>', "eins"),
    ],
)  # fmt: skip
def test_what_is_written_is_read_again(format, data, text):
    options = DocumentOptions("en", "de")
    document = open_document(data.encode(), format, options)
    assert document.save({}) == data.encode()
    again = open_document(document.save({0: text}), format, options).segments()[0]
    assert text in (again.text, again.target)


TEMPLATE = b"""#, fuzzy
msgid ""
msgstr ""
"Project-Id-Version: a 1.0\\n"
"Language: \\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=CHARSET\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"

#, c-format
msgid "one file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

msgid "Close"
msgstr ""
"""
"""What xgettext writes."""


@pytest.mark.parametrize(("language", "texts"), [
    ("de", ["one file", "%d files"]), ("ja", ["%d files"]), ("fr", ["%d files"] * 2), ("pl", ["%d files"] * 3),
    ("ar", ["%d files"] * 6), ("xx", ["%d files"] * 2),
])  # fmt: skip
def test_a_template_gets_the_plural_forms_of_its_language(tmp_path, language, texts):
    options = DocumentOptions("en", language)
    document = open_document(TEMPLATE, "po", options)
    assert [each.text for each in document.segments()] == [*texts, "Close"]
    assert document.save({}) == TEMPLATE
    result = document.save({each.number: f"<ü{each.number}> %d" for each in document.segments()}, approve=True)
    again = open_document(result, "po", options)
    assert [each.target for each in again.segments()] == [f"<ü{number}> %d" for number in range(len(texts) + 1)]
    assert result.count(b"msgstr[") == len(texts)
    assert b"charset=UTF-8" in result
    assert f"Language: {language}\\n".encode() in result
    assert (b"INTEGER" in result) == (language == "xx")
    if shutil.which("msgfmt") and language != "xx":
        (tmp_path / "a.po").write_bytes(result)
        said = subprocess.run(["msgfmt", "-c", "-o", "/dev/null", tmp_path / "a.po"], capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stderr


def test_plural_forms_that_have_no_translation_are_there_all_the_same():
    document = open_document(TEMPLATE, "po", DocumentOptions("en", "ru"))
    result = document.save({0: "%d a"}, approve=True)
    assert result.count(b'msgstr[0] "%d a"\nmsgstr[1] ""\nmsgstr[2] ""\n') == 1
