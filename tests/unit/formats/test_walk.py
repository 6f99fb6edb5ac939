"""Sentences, protection, inline markup, and the walk that joins them."""

import re
from typing import NamedTuple

import pytest
from catalogues import CATALOGUES

from undivided.formats import DocumentOptions, Marked, open_document
from undivided.formats.markup import Link, find_words, place_tags
from undivided.formats.protection import check_protected, find_protected, has_words, mask, put_shortcut, take_shortcut, unmask
from undivided.formats.sentences import join_sentences, split_sentences
from undivided.formats.walk import WalkOptions, choose_segments, save_document, translate_segments
from undivided.formats.xml_file import InlineRules, read_marked, write_marked

SYMBOLS = [chr(0xE000 + number) for number in range(12)]


class Answer(NamedTuple):
    text: str


def shout(texts):
    return [Answer(re.sub(r"(?<!%)[a-z]", lambda found: found[0].upper(), text)) for text in texts]


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        (
            "en",
            "He met Dr. Smith at 3.5 km. It was late… Really? Yes.",
            ["He met Dr. Smith at 3.5 km.", "It was late…", "Really?", "Yes."],
        ),
        ("en", 'He said "Go." Then e.g. this.', ['He said "Go."', "Then e.g. this."]),
        ("en", "A. B. Miller left!  The U.S. Army came.", ["A. B. Miller left!", "The U.S. Army came."]),
        ("en", "Wait... what? Version 1.2 is out.", ["Wait... what?", "Version 1.2 is out."]),
        ("de", "Am 3. Oktober war es z.B. warm. Gut.", ["Am 3. Oktober war es z.B. warm.", "Gut."]),
        ("ja", "今日は。「元気ですか？」はい", ["今日は。", "「元気ですか？」", "はい"]),
        ("ko", "안녕하세요. 반갑습니다! 네", ["안녕하세요.", "반갑습니다!", "네"]),
        ("", "One line\n\n  Two. Three.\r\n", ["One line", "", "Two.", "Three."]),
        ("", "   ", [""]),
    ],
)
def test_sentences(language, text, sentences):
    found = split_sentences(text, language)
    assert [each.text for each in found] == sentences
    assert join_sentences(found) == text


@pytest.mark.parametrize(
    ("text", "protected"),
    [
        ("The %s of {name} is 12.5 cm, see https://example.org/a?b=1.", ["%s", "{name}", "12.5 cm", "https://example.org/a?b=1"]),
        ("%1$s %(x)s {{x}} ${x} :name %% %1 %n", ["%1$s", "%(x)s", "{{x}}", "${x}", ":name", "%%", "%1", "%n"]),
        ("a \\n b &amp; <b>c</b> &#8230;", ["\\n", "&amp;", "<b>", "</b>", "&#8230;"]),
        (
            "v1.2.3, XR-2000, a.b@c.org, /usr/bin/x, README.md, 2024-01-02",
            ["v1.2.3", "XR-2000", "a.b@c.org", "/usr/bin/x", "README.md", "2024-01-02"],
        ),
        ("{n, plural, one {# item} other {# items}} left", ["{n, plural, one {# item} other {# items}}"]),
        ("[%key:common::off%] 😀👍🏽", ["[%key:common::off%]", "😀", "👍🏽"]),
        ("Plain words, and/or 50 of them at 10:30: nothing.", []),
        ("it is 50% discounted", ["50%"]),
        ("on 3/12/2026, not 12.03.2026 or 1/2", ["3/12/2026", "12.03.2026"]),
    ],
)
def test_what_is_protected(text, protected):
    assert [each.text for each in find_protected(text)] == protected
    masked = mask(text, SYMBOLS)
    assert not any(item in masked.text for item in protected if len(item) > 2)
    assert unmask(masked.text, masked.items) == text


def test_loss_and_repetition_are_noticed():
    assert check_protected("a %s b %s", "%s und %s") == []
    assert [(fault.text, fault.wanted, fault.found) for fault in check_protected("a %s b %s {x}", "%s {x} {x}")] == [
        ("%s", 2, 1),
        ("{x}", 1, 2),
    ]


def test_text_that_has_the_symbols_is_not_masked():
    assert mask(f"a {SYMBOLS[0]} %s", SYMBOLS).items == ()


def test_nothing_but_protected_text_has_no_words():
    assert not has_words("%s: {x} – 12 kg, https://a.org")
    assert has_words("%s: x")


@pytest.mark.parametrize(
    ("label", "translation", "result"),
    [
        ("&Open", "Öffnen", "Ö&ffnen"),
        ("&File", "Datei", "&Datei"),
        ("S&ave as", "Speichern als", "Speichern &als"),
        ("a && b", "x", "x"),
    ],
)
def test_shortcuts(label, translation, result):
    plain, letter = take_shortcut(label)
    expected = result if label != "&Open" else "&Öffnen"
    assert put_shortcut(translation, letter) == expected
    assert "&" not in plain or letter == ""


def marked(xml: str) -> Marked:
    return read_marked(xml, 0, len(xml), InlineRules())


def links(source: str, target: str, pairs: str) -> list[Link]:
    ours, theirs = find_words(source), find_words(target)
    return [Link(ours[int(a)], theirs[int(b)]) for a, b in (pair.split("-") for pair in pairs.split())]


@pytest.mark.parametrize(
    ("xml", "target", "pairs", "result"),
    [
        ("The <b>red</b> house", "Das Haus rot", "0-0 1-2 2-1", "Das Haus <b>rot</b>"),
        ("<i>very <b>big</b></i> dog", "Hund groß sehr", "0-2 1-1 2-0", "Hund <i><b>groß</b> sehr</i>"),
        ("a <b>b</b> <i>c</i>", "C B A", "0-2 1-1 2-0", "<i>C</i> <b>B</b> A"),
        ("a <x/>b c", "C B A", "0-2 1-1 2-0", "C <x/>B A"),
        ("a <b>b</b> <i>b</i> c", "B A", "1-0 2-0 0-1", None),
        ("<b>all</b>", "alles davon", "", "<b>alles davon</b>"),
        ("<x/>all<y/>", "alles", "", "<x/>alles<y/>"),
        ("a <b>b</b> c", "A B", "", "<b>A B</b>"),
        ("a <b>b</b> <i>c</i> d", "A B", "", "<b><i>A B</i></b>"),
        ("a <b></b> b <a><x/></a>", "", "", None),
    ],
)
def test_tags_are_carried_to_the_words(xml, target, pairs, result):
    source = marked(xml)
    placed = place_tags(source, target, links(source.text, target, pairs))
    written = write_marked(placed.marked)
    if result:
        assert written == result
    again = marked(written)
    assert sorted(re.findall("<[^>]*>", written)) == sorted(re.findall("<[^>]*>", xml))
    assert sorted(tag.kind for tag in again.tags) == sorted(tag.kind for tag in source.tags), "well nested"
    assert again.text == target


def test_guesses_are_said():
    source = marked("a <b>b</b> c")
    assert not place_tags(source, "A B C").is_certain
    assert place_tags(source, "A B C", links("a b c", "A B C", "0-0 1-1 2-2")).is_certain
    assert place_tags(marked("<b>a b</b>"), "A").is_certain


def test_tags_stay_with_their_sentence():
    data = b'<resources><string name="a">One two. <b>Three.</b> Four <i>five</i> six.</string></resources>'
    document = open_document(data, "android")
    result = save_document(document, translate_segments(document.segments(), shout))
    assert b"ONE TWO. <b>THREE.</b> <i>FOUR FIVE SIX.</i>" in result


def test_alignment_is_asked_for_sentences_with_markup_alone():
    asked = []

    def align(pairs):
        asked.extend(pairs)
        return [[Link(a, b) for a, b in zip(find_words(source), find_words(target))] for source, target in pairs]

    data = b'<resources><string name="a">One. Two <b>three</b>.</string><string name="b">plain</string></resources>'
    document = open_document(data, "android")
    results = translate_segments(document.segments(), shout, align=align)
    assert asked == [("One.", "ONE."), ("Two three.", "TWO THREE.")]
    assert b"ONE. TWO <b>THREE</b>." in save_document(document, results)


@pytest.mark.parametrize("case", CATALOGUES.values(), ids=CATALOGUES.keys())
def test_every_format_through_the_walk(case):
    options = DocumentOptions(source_lang="en", target_lang="de")
    document = open_document(case.before, case.format, options)
    segments = choose_segments(document)
    results = translate_segments(segments, shout, WalkOptions(symbols=SYMBOLS), format=case.format)
    assert [each.segment for each in results] == segments
    assert not any(sentence.faults for each in results for sentence in each.sentences)
    again = open_document(save_document(document, results), case.format, options)
    assert len(again.segments()) == len(document.segments())


def test_lost_placeholders_are_found_and_nothing_to_translate_is_kept():
    document = open_document(b'{"a": "Open %s", "b": "{x} 12 kg", "c": "bad \xff byte"}', "json")
    results = translate_segments(document.segments(), lambda texts: [Answer("lost") for _ in texts])
    assert [[fault.text for s in each.sentences for fault in s.faults] for each in results] == [["%s"], [], []]
    assert [each.is_kept for each in results] == [False, True, False]
    assert [each.is_broken for each in results] == [False, False, True]
    assert results[1].target.text == "{x} 12 kg"


def test_white_space_around_texts_stays():
    document = open_document(b'msgid "\\n Two  sentences.  Here.\\n"\nmsgstr ""\n', "po")
    results = translate_segments(document.segments(), shout)
    assert results[0].target.text == "\n TWO  SENTENCES.  HERE.\n"
