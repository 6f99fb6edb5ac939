"""HTML, Markdown and office files: structure stays, text is translated."""

import io
import zipfile
from xml.dom import minidom

import pytest
from office_files import OFFICE, PICTURE, pack, unpack

from undivided.core.errors import InputError
from undivided.formats import DocumentOptions, Marked, open_document

HTML = """<!DOCTYPE html>
<html lang="en"><head><title>My page</title><style>p { color: red }</style><meta name="x" content="not this"></head>
<body>
  <h1 class="a">The  <em>big</em>
    title</h1>
  <p>See <a href="/x?a=1&b=2" title="t">this <b>link</b></a>, it&rsquo;s &lt;good&gt;.<br>Run <code>make all</code> now.</p>
  <pre>code here</pre><script>var a = "<p>no</p>";</script><!-- a comment -->
  <ul><li>One<li>Two <span translate="no">Fixed</span></ul>
  <p class="notranslate">stays</p> loose < text
</body></html>
"""
HTML_AFTER = """<!DOCTYPE html>
<html lang="de"><head><title>MY PAGE</title><style>p { color: red }</style><meta name="x" content="not this"></head>
<body>
  <h1 class="a">THE <em>BIG</em> TITLE</h1>
  <p>SEE <a href="/x?a=1&b=2" title="t">THIS <b>LINK</b></a>, IT’S &lt;GOOD&gt;.<br>RUN <code>make all</code> NOW.</p>
  <pre>code here</pre><script>var a = "<p>no</p>";</script><!-- a comment -->
  <ul><li>ONE<li>TWO <span translate="no">Fixed</span></ul>
  <p class="notranslate">stays</p> LOOSE &lt; TEXT
</body></html>
"""
MARKDOWN = """---
title: front matter
---
# A *big* heading

A paragraph with `code`, a [link](http://a.org "t") and
**bold** text.

- first item
- [x] second
  goes on

> quoted text

```py
print("stays")
```

    indented code

| Head | Two |
|------|----:|
| cell | `x` |

<div>
html stays
</div>

[ref]: http://a.org
1. one
   ![picture](a.png)
"""
MARKDOWN_AFTER = """---
title: front matter
---
# A *BIG* HEADING

A PARAGRAPH WITH `code`, A [LINK](http://a.org "t") AND
**BOLD** TEXT.

- FIRST ITEM
- [x] SECOND GOES ON

> QUOTED TEXT

```py
print("stays")
```

    indented code

| HEAD | TWO |
|------|----:|
| CELL | `x` |

<div>
html stays
</div>

[ref]: http://a.org
1. ONE
   ![picture](a.png)
"""


def shouted(document) -> bytes:
    return document.save({each.number: Marked(each.text.upper(), each.source.tags) for each in document.segments()})


@pytest.mark.parametrize(("format", "before", "after"), [("html", HTML, HTML_AFTER), ("markdown", MARKDOWN, MARKDOWN_AFTER)])
def test_pages(format, before, after):
    document = open_document(before.encode(), format, DocumentOptions(target_lang="de"))
    assert document.save({}) == before.encode()
    assert shouted(document).decode() == after


def test_markdown_text_is_never_taken_for_markup():
    document = open_document(b"some text\n", "markdown")
    result = document.save({0: "# 1 * a_b * [x] `y` <z>"})
    again = open_document(result, "markdown").segments()
    assert [each.text for each in again] == ["# 1 * a_b * [x] `y` <z>"]
    assert again[0].source.tags == ()


def test_html_that_is_broken_is_text():
    for data in (b"<", b"<a", b"a <b", b'<a href="x', b"<!--", b"</", b"<p>a</p></p><b>c", b"<a ='" * 50, b"a < b > c"):
        document = open_document(data, "html")
        assert document.save({}) == data
        shouted(document)


def test_long_hostile_html_takes_no_long_time():
    for piece in (b'<a "', b'<a ="', b"<!-", b"<b>", b"<", b"<pre>", b"&#"):
        open_document(piece * 20_000, "html")


@pytest.mark.parametrize("format", OFFICE)
def test_office_files(format):
    data, member, texts = OFFICE[format]
    document = open_document(data, format, DocumentOptions(target_lang="de"))
    assert document.save({}) == data
    assert [each.text for each in document.segments()] == texts
    result = shouted(document)
    minidom.parseString(unpack(result, member))
    assert [each.text for each in open_document(result, format).segments()] == [text.upper() for text in texts]
    assert [e.filename for e in zipfile.ZipFile(io.BytesIO(result)).infolist()] == [
        e.filename for e in zipfile.ZipFile(io.BytesIO(data)).infolist()
    ]


def test_runs_keep_their_style():
    data, member, _ = OFFICE["docx"]
    document = open_document(data, "docx")
    result = shouted(document)
    text = unpack(result, member)
    assert (
        '<w:r><w:t xml:space="preserve">A </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t xml:space="preserve">BOLD</w:t></w:r>' in text
    )
    assert '<w:rPr><w:u/></w:rPr><w:t xml:space="preserve">LINK</w:t></w:r></w:hyperlink>' in text
    assert '<w:tab/><w:t xml:space="preserve">END.</w:t>' in text
    assert "<w:instrText>PAGE</w:instrText>" in text
    assert zipfile.ZipFile(io.BytesIO(result)).read("word/media/a.png") == PICTURE


def test_styles_survive_when_words_move():
    data, member, _ = OFFICE["docx"]
    document = open_document(data, "docx")
    segment = document.segments()[1]
    opening, closing = (tag for tag in segment.source.tags if tag.pair == 1)
    others = [tag._replace(place=9) for tag in segment.source.tags if tag.pair != 1]
    moved = Marked("Ein Wort.", (opening._replace(place=4), closing._replace(place=8), *others))
    text = unpack(document.save({1: moved}), member)
    minidom.parseString(text)
    assert '<w:rPr><w:b/></w:rPr><w:t xml:space="preserve">Wort</w:t>' in text


def bomb() -> bytes:
    return pack({"word/document.xml": b" " * (80 << 20)})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"PK\x03\x04 nothing", "damaged, or no zip file"),
        (pack({"../word/document.xml": "<a/>"}), "outside of the archive"),
        (pack({"/etc/passwd": "<a/>"}), "outside of the archive"),
        (pack({"C:\\a": "<a/>"}), "outside of the archive"),
        (pack({"word/document.xml": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}), "entities, which is refused"),
        (pack({"word/document.xml": "<a>"}), "word/document.xml, line 1: not well-formed"),
        (pack({"other.xml": "<a/>"}), "none of the parts that hold text"),
    ],
)
def test_hostile_archives_are_refused(data, says):
    with pytest.raises(InputError, match=says):
        open_document(data, "docx")


def test_zip_bombs_are_refused():
    with pytest.raises(InputError, match="as zip bombs do"):
        open_document(bomb(), "docx")
    lying = bytearray(pack({"word/document.xml": "<a>" + "x" * 5000 + "</a>"}))
    place = lying.rindex(b"PK\x01\x02")
    lying[place + 24 : place + 28] = (100).to_bytes(4, "little")
    with pytest.raises(InputError, match=r"damaged|more than it announces"):
        open_document(bytes(lying), "docx")
