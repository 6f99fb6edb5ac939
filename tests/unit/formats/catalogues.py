# ruff: noqa: E501  (documents are written as they are)
"""A small file of each format, and what it is with its translations in capitals."""

from __future__ import annotations

from typing import NamedTuple


class Catalogue(NamedTuple):
    format: str
    before: bytes
    texts: list[str]
    after: bytes


PO = Catalogue(
    "po",
    b"""# Notes of the translator
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Language: \\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#. A button
#: a.c:1
#, c-format
msgctxt "menu"
msgid "Open %s\\n"
msgstr ""

msgid "Close"
msgstr "Schliessen"

#, fuzzy
msgid "Old"
msgstr "Alt"

msgid "one file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#~ msgid "Gone"
#~ msgstr "Weg"
""",
    ["Open %s\n", "one file", "%d files"],
    b"""# Notes of the translator
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Language: de\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#. A button
#: a.c:1
#, fuzzy, c-format
msgctxt "menu"
msgid "Open %s\\n"
msgstr "OPEN %s\\n"

msgid "Close"
msgstr "Schliessen"

#, fuzzy
msgid "Old"
msgstr "Alt"

#, fuzzy
msgid "one file"
msgid_plural "%d files"
msgstr[0] "ONE FILE"
msgstr[1] "%d FILES"

#~ msgid "Gone"
#~ msgstr "Weg"
""",
)
XLIFF_1 = Catalogue(
    "xliff",
    b"""<?xml version="1.0"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" source-language="en" datatype="plaintext"><body>
  <trans-unit id="1">
    <source>A <g id="1">red</g> &amp; big<x id="2"/></source>
    <note>colour</note>
  </trans-unit>
  <trans-unit id="2"><source>Done</source><target state="final">Fertig</target></trans-unit>
  <trans-unit id="3" translate="no"><source>No</source></trans-unit>
  <trans-unit id="4"><source>Empty</source><target/></trans-unit>
</body></file></xliff>
""",
    ["A red & big", "Empty"],
    b"""<?xml version="1.0"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" source-language="en" datatype="plaintext" target-language="de"><body>
  <trans-unit id="1">
    <source>A <g id="1">red</g> &amp; big<x id="2"/></source>
    <target state="needs-review-translation">A <g id="1">RED</g> &amp; BIG<x id="2"/></target>
    <note>colour</note>
  </trans-unit>
  <trans-unit id="2"><source>Done</source><target state="final">Fertig</target></trans-unit>
  <trans-unit id="3" translate="no"><source>No</source></trans-unit>
  <trans-unit id="4"><source>Empty</source><target state="needs-review-translation">EMPTY</target></trans-unit>
</body></file></xliff>
""",
)
XLIFF_2 = Catalogue(
    "xliff",
    b"""<xliff version="2.0" srcLang="en" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f"><unit id="u">
<segment><source>Hello <pc id="1">you</pc><ph id="2"/></source></segment>
<ignorable><source> </source></ignorable>
<segment state="final"><source>Bye</source><target>Tschuss</target></segment></unit></file></xliff>""",
    ["Hello you"],
    b"""<xliff version="2.0" srcLang="en" xmlns="urn:oasis:names:tc:xliff:document:2.0" trgLang="de"><file id="f"><unit id="u">
<segment state="translated"><source>Hello <pc id="1">you</pc><ph id="2"/></source><target>HELLO <pc id="1">YOU</pc><ph id="2"/></target></segment>
<ignorable><source> </source></ignorable>
<segment state="final"><source>Bye</source><target>Tschuss</target></segment></unit></file></xliff>""",
)
TS = Catalogue(
    "ts",
    b"""<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1">
<context>
    <name>Main</name>
    <message>
        <source>Don&apos;t &amp;save</source>
        <comment>button</comment>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <source>%n file(s)</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
        </translation>
    </message>
    <message><source>Old</source><translation type="vanished">Alt</translation></message>
    <message><source>Ok</source><translation>Gut</translation></message>
</context>
</TS>
""",
    ["Don't &save", "%n file(s)", "%n file(s)"],
    b"""<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de">
<context>
    <name>Main</name>
    <message>
        <source>Don&apos;t &amp;save</source>
        <comment>button</comment>
        <translation type="unfinished">DON&apos;T &amp;SAVE</translation>
    </message>
    <message numerus="yes">
        <source>%n file(s)</source>
        <translation type="unfinished">
            <numerusform>%n FILE(S)</numerusform>
            <numerusform>%n FILE(S)</numerusform>
        </translation>
    </message>
    <message><source>Old</source><translation type="vanished">Alt</translation></message>
    <message><source>Ok</source><translation>Gut</translation></message>
</context>
</TS>
""",
)
ANDROID = Catalogue(
    "android",
    b"""<?xml version="1.0" encoding="utf-8"?>
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">
    <!-- a comment -->
    <string name="a">It\\'s <b>new</b>\\n &amp; good</string>
    <string name="b" translatable="false">fixed</string>
    <string name="c">@string/a</string>
    <plurals name="p"><item quantity="one">One</item><item quantity="other"><xliff:g id="n">%d</xliff:g> many</item></plurals>
    <string-array name="l"><item>"  kept  "</item></string-array>
    <color name="x">#fff</color>
</resources>
""",
    ["It's new\n & good", "One", " many", "  kept  "],
    b"""<?xml version="1.0" encoding="utf-8"?>
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">
    <!-- a comment -->
    <string name="a">IT\\'S <b>NEW</b>\\n &amp; GOOD</string>
    <string name="b" translatable="false">fixed</string>
    <string name="c">@string/a</string>
    <plurals name="p"><item quantity="one">ONE</item><item quantity="other"><xliff:g id="n">%d</xliff:g> MANY</item></plurals>
    <string-array name="l"><item>\\u0020\\u0020KEPT \\u0020</item></string-array>
    <color name="x">#fff</color>
</resources>
""",
)
STRINGS = Catalogue(
    "strings",
    '/* The title */\n"title" = "My \\"app\\"";\n// none\nkey = "Two\\nlines";\n"empty" = "";\n'.encode("utf-16"),
    ['My "app"', "Two\nlines"],
    '/* The title */\n"title" = "MY \\"APP\\"";\n// none\nkey = "TWO\\nLINES";\n"empty" = "";\n'.encode("utf-16"),
)
SRT = Catalogue(
    "srt",
    b"1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>Hello there,</i>\r\nmy friend.\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\n- Yes.\r\n- No.\r\n",
    ["Hello there, my friend.", "- Yes.", "- No."],
    b"1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>HELLO THERE,</i>\r\nMY FRIEND.\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\n- YES.\r\n- NO.\r\n",
)
VTT = Catalogue(
    "vtt",
    b"WEBVTT\n\nNOTE a note\n\nSTYLE\n::cue { color: red }\n\nid-1\n00:01.000 --> 00:02.000 align:start\n<v Ann>Good day\n\n00:03.000 --> 00:04.000\nBye\n",
    ["Good day", "Bye"],
    b"WEBVTT\n\nNOTE a note\n\nSTYLE\n::cue { color: red }\n\nid-1\n00:01.000 --> 00:02.000 align:start\n<v Ann>GOOD DAY\n\n00:03.000 --> 00:04.000\nBYE\n",
)
JSON = Catalogue(
    "json",
    b'{\n  "a": {"title": "Hello \\"you\\"", "n": 3},\n  "list" : [ "one", true, "" ],\n  "@a": {"description": "note"}\n}\n',
    ['Hello "you"', "one"],
    b'{\n  "a": {"title": "HELLO \\"YOU\\"", "n": 3},\n  "list" : [ "ONE", true, "" ],\n  "@a": {"description": "note"}\n}\n',
)
YAML = Catalogue(
    "yaml",
    b"# top\nen:\n  plain: hello world  # note\n  single: 'it''s'\n  double: \"a\\tb\"\n  yes: true\n  n: 12\n  block: |\n    two\n    lines\n  list:\n    - one\n    - &x two\n    - *x\n",
    ["hello world", "it's", "a\tb", "two\nlines\n", "one", "two"],
    b"# top\nde:\n  plain: HELLO WORLD  # note\n  single: 'IT''S'\n  double: \"A\\tB\"\n  yes: true\n  n: 12\n  block: |\n    TWO\n    LINES\n  list:\n    - ONE\n    - &x TWO\n    - *x\n",
)
TMX = Catalogue(
    "tmx",
    b"""<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu tuid="1">
  <tuv xml:lang="en-US"><seg>A <bpt i="1">&lt;b></bpt>dog<ept i="1">&lt;/b></ept></seg></tuv>
</tu>
<tu><tuv xml:lang="en"><seg>Yes</seg></tuv><tuv xml:lang="de"><seg>Ja</seg></tuv></tu>
</body></tmx>
""",
    ["A dog"],
    b"""<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu tuid="1">
  <tuv xml:lang="en-US"><seg>A <bpt i="1">&lt;b></bpt>dog<ept i="1">&lt;/b></ept></seg></tuv>
  <tuv xml:lang="de"><seg>A <bpt i="1">&lt;b></bpt>DOG<ept i="1">&lt;/b></ept></seg></tuv>
</tu>
<tu><tuv xml:lang="en"><seg>Yes</seg></tuv><tuv xml:lang="de"><seg>Ja</seg></tuv></tu>
</body></tmx>
""",
)
TSV = Catalogue("tsv", b"one\teins\ntwo\t\nthree\n", ["two", "three"], b"one\teins\ntwo\tTWO\nthree\tTHREE\n")
CSV = Catalogue(
    "csv",
    b'id;source;target\r\n1;"a ""b""; c";\r\n2;two;zwei\r\n3;"x\r\ny";""\r\n',
    ['a "b"; c', "x\r\ny"],
    b'id;source;target\r\n1;"a ""b""; c";"A ""B""; C"\r\n2;two;zwei\r\n3;"x\r\ny";"X\r\nY"\r\n',
)
JSONL = Catalogue(
    "jsonl",
    b'{"source": "one"}\n{"source": "two", "target": "zwei"}\n\n{"translation": {"en": "three", "de": ""} }\n{"source": "four" }\n',
    ["one", "three", "four"],
    b'{"source": "one", "de": "ONE"}\n{"source": "two", "target": "zwei"}\n\n{"translation": {"en": "three", "de": "THREE"} }\n'
    b'{"source": "four", "de": "FOUR" }\n',
)
TEXT = Catalogue(
    "text", b"One line.\r\n\r\n  Another\nlast", ["One line.", "  Another", "last"], b"ONE LINE.\r\n\r\n  ANOTHER\nLAST"
)
CATALOGUES = {name: value for name, value in globals().items() if isinstance(value, Catalogue)}
