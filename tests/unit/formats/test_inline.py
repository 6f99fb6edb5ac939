"""Codes and breaks within a sentence, and files as translators really have them."""

import re
from typing import NamedTuple

import pytest
from office_files import OFFICE, W, pack, unpack

from undivided.formats import DocumentOptions, Marked, open_document
from undivided.formats.contract import Tag
from undivided.formats.inline import lift, put_back
from undivided.formats.markup import Link, find_words
from undivided.formats.walk import WalkOptions, choose_segments, save_document, translate_segments


class Answer(NamedTuple):
    text: str


def in_order(pairs):
    return [[Link(a, b) for a, b in zip(find_words(source), find_words(target))] for source, target in pairs]


def upper(text: str) -> str:
    """As a model answers: in capitals, white space as one space."""
    return " ".join(text.upper().split())


def translated(data: bytes, format: str, answer=upper, codes=True, align=in_order) -> bytes:
    document = open_document(data, format, DocumentOptions("en", "de"))
    assert document.save({}) == data
    options = WalkOptions(codes=codes)
    results = translate_segments(
        choose_segments(document, True), lambda texts: [Answer(answer(text)) for text in texts], options, align, format
    )
    return save_document(document, results, approve=True)


HTML = '<p>Loose <b>text <img src=a.png> after<br>next</b> line, <code>f()</code> and [<a href="x"><code>g</code></a>].</p>'


@pytest.mark.parametrize("codes", [True, False])
def test_codes_and_breaks_stay_between_their_words(codes):
    after = '<p>LOOSE <b>TEXT <img src=a.png> AFTER<br>NEXT</b> LINE, <code>f()</code> AND [<a href="x"><code>g</code></a>].</p>'
    assert translated(HTML.encode(), "html", codes=codes).decode() == after


def test_codes_go_where_the_model_puts_them():
    def turn(text: str) -> str:
        return " ".join(reversed(text.split()))

    found = translated(b"Run `make` in <https://a.org> now.\n", "markdown", turn, align=None)
    assert found == b"now. <https://a.org> in `make` Run\n"


def test_a_lost_code_is_put_back_and_one_that_came_twice_is_there_once():
    lost = translated(b"<p>Press <kbd>x</kbd> or <code>Enter</code> now</p>", "html", lambda text: "Jetzt gleich").decode()
    assert lost.count("<code>Enter</code>") == 1
    assert re.sub(r"<[^>]*>|Enter|x|\s", "", lost) == "Jetztgleich"
    twice = translated(b"<p>Press <code>Enter</code> now</p>", "html", lambda text: f"{text} {text}").decode()
    assert twice.count("Enter") == 1
    assert "\U000f5000" not in twice


def test_what_the_model_is_asked():
    asked = []

    def answer(text):
        asked.append(text)
        return text

    for codes in (True, False):
        translated(b"<p>One <code>f</code> two<br>three</p>", "html", answer, codes=codes)
    assert asked == ["One \U000f5000 two", "three", "One two", "three"]


def test_letters_of_the_text_itself_are_no_codes():
    source = Marked("a \U000f5000 b", (Tag(1, "<x/>", "alone", role="word"),))
    lifted = lift(source)
    assert lifted.letters == {}
    assert put_back(lifted.marked, lifted, {}) == source


@pytest.mark.parametrize(("format", "tag"), [("docx", "<w:tab/>"), ("pptx", "<a:br/>"), ("odt", "<text:line-break/>")])
def test_breaks_of_office_files(format, tag):
    data, member, _ = OFFICE[format]
    text = unpack(translated(data, format), member)
    assert text.count(tag) == unpack(data, member).count(tag) == 1
    words = re.sub(r"<(?!w:tab|a:br|text:line-break)[^>]*>", "", text)
    expected = {"docx": "A BOLD WORD &amp; A LINK<w:tab/>END.", "pptx": "SLIDE<a:br/>TWO LINES", "odt": "HERE.<text:line-break/>"}
    assert expected[format] in words


BODY = (
    '<w:p><w:r><w:t xml:space="preserve">Kept </w:t></w:r><w:del w:id="1"><w:r><w:delText>gone</w:delText></w:r></w:del>'
    '<w:ins w:id="2"><w:r><w:t xml:space="preserve">added </w:t></w:r></w:ins>'
    '<w:moveFrom w:id="3"><w:r><w:t>was</w:t></w:r></w:moveFrom>'
    '<w:moveTo w:id="4"><w:r><w:t>moved</w:t></w:r></w:moveTo></w:p>'
    '<w:tbl><w:tr><w:tc><w:p><w:r><w:t>A cell</w:t></w:r><w:r><w:footnoteReference w:id="1"/></w:r></w:p></w:tc></w:tr></w:tbl>'
    '<w:p><w:sdt><w:sdtPr><w:id w:val="7"/></w:sdtPr><w:sdtContent><w:r><w:t>a control</w:t></w:r></w:sdtContent></w:sdt>'
    "<w:r><w:t> follows</w:t></w:r></w:p>"
)
NOTES = (
    f'<w:footnotes {W}><w:footnote w:id="1"><w:p><w:r><w:footnoteRef/></w:r><w:r><w:t> A note</w:t></w:r></w:p></w:footnote>'
    "</w:footnotes>"
)


def test_tracked_changes_tables_notes_and_controls():
    document = f"<w:document {W}><w:body>{BODY}</w:body></w:document>"
    result = translated(pack({"word/document.xml": document, "word/footnotes.xml": NOTES}), "docx")
    text = unpack(result, "word/document.xml")
    for kept in ("<w:delText>gone</w:delText>", "<w:t>was</w:t>", '<w:footnoteReference w:id="1"/>', '<w:id w:val="7"/>'):
        assert text.count(kept) == 1
    assert re.search(r'<w:ins w:id="2">.*ADDED.*</w:ins>', text)
    assert re.search(r'<w:moveTo w:id="4">.*MOVED.*</w:moveTo>', text)
    assert re.search(r"<w:sdtContent>.*A CONTROL.*</w:sdtContent></w:sdt>.*FOLLOWS", text)
    assert "A CELL" in text
    assert "A NOTE" in unpack(result, "word/footnotes.xml")


MARKDOWN = """# Head *em* #

A cell | is no row
Hard break  
next \\
last[^1]

| a b | c |
|---|:-:|
| x \\| y | `z` |

[^1]: A footnote
[^b]: Another
"""  # noqa: W291


def test_markdown_of_real_life():
    after = translated(MARKDOWN.encode(), "markdown").decode()
    assert after.startswith("# HEAD *EM* #\n")
    assert "HARD BREAK  \nNEXT \\\nLAST[^1]\n" in after
    assert "| X \\| Y | `z` |" in after
    assert "[^1]: A FOOTNOTE\n[^b]: ANOTHER\n" in after


PLURALS = b"""\xef\xbb\xbfmsgid ""\r
msgstr ""\r
"Content-Type: text/plain; charset=UTF-8\\n"\r
"Plural-Forms: nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5);\\n"\r
\r
msgid "%d file"\r
msgid_plural "%d files"\r
msgstr[0] ""\r
msgstr[1] ""\r
msgstr[2] ""\r
msgstr[3] ""\r
msgstr[4] ""
msgstr[5] ""\r
"""


def test_six_plural_forms_a_mark_and_mixed_line_ends():
    after = translated(PLURALS, "po", lambda text: text.replace("file", "DATEI"))
    assert after.startswith(b"\xef\xbb\xbfmsgid")
    assert after.count(b"%d DATEIs") == 5
    assert b'msgstr[0] "%d DATEI"\r\n' in after
    assert after.count(b"\n") - after.count(b"\r\n") == 1


def test_cdata_stays_cdata():
    android = b'<resources><string name="d"><![CDATA[<b>Hi</b> you & I]]></string><string name="e">a]]&gt;b</string></resources>'
    assert b"<![CDATA[<b>hi</b> you & i]]>" in translated(android, "android", lambda text: text.lower())
    xliff = (
        b'<xliff version="1.2"><file source-language="en"><body><group><group><trans-unit id="1"><source><![CDATA[A ]]>'
        b"]]&gt;</source></trans-unit></group></group></body></file></xliff>"
    )
    assert b"A ]]&gt;</target>" in translated(xliff, "xliff")


SRT = b"""\xef\xbb\xbf1
00:00:01,000 --> 00:00:04,000 X1:10 X2:20
{\\an8}<font color="#fff">Hello <i>there</i></font>

2
00:00:02,000 --> 00:00:03,500
They overlap
in two lines
"""


def test_subtitles_with_markup_that_overlap():
    after = translated(SRT, "srt").decode("utf-8-sig")
    assert '{\\an8}<font color="#fff">HELLO <i>THERE</i></font>' in after
    assert "00:00:03,500\nTHEY OVERLAP\nIN TWO LINES\n" in after


YAML = b"""defaults: &d
  title: "A title"
  desc: >-
    Folded text
    goes here
other:
  <<: *d
  flow: {a: Hello, b: [x y, "z"]}
  date: 2020-01-01
"""


def test_yaml_with_anchors_and_flow():
    after = translated(YAML, "yaml").decode()
    assert after == YAML.decode().replace("A title", "A TITLE").replace(
        "Folded text\n    goes here", "FOLDED TEXT GOES HERE"
    ).replace('a: Hello, b: [x y, "z"]', 'a: HELLO, b: [X Y, "Z"]')


def test_strings_in_utf_16_with_everything():
    text = '\ufeff/* c */\n"k" = "Hello %@";\r\n"m\\"k" = "A \\"q\\" \\U00e9";"two" = "one\nline";'
    after = translated(text.encode("utf-16-le"), "strings", lambda text: text.replace("Hello", "Hallo")).decode("utf-16-le")
    assert after == text.replace("Hello", "Hallo").replace("\\U00e9", "é").replace("one\n", "one\\n")
