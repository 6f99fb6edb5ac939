"""Sentences of a text: where they end in several languages, and that nothing is lost."""

import random

import pytest

from undivided.data.sentences import count_sentences, share_of_several, split_sentences

SPLIT = [
    ("en", ["Click OK.", "Click Cancel.", "Choose File - Open.", "Done!"]),
    ("en", ["Dr. Smith met J. R. Miller at 3.5 km, e.g. in St. Louis.", "He left."]),
    ("en", ["He said: “Go!”", "She went.", "(It rained.)", "Then it stopped."]),
    ("en", ["Wait... what?", "Nothing…", "Good."]),
    ("en", ["Yahoo! is a name.", "So am I.", "You too?!", "Yes."]),
    ("en", ["1. Open the file.", "2. Close it."]),
    ("en", ["See version 2.0.1 of undivided.data.", "It works."]),
    ("de", ["Am 3. Oktober kam z. B. Hr. Maier.", "Er sagte: „Gut.“", "Dann ging er."]),
    ("de", ["Das kostet ca. 3.000 Euro bzw. mehr.", "Wirklich?"]),
    ("fr", ["M. Dupont est là.", "« Oui ! »", "Il part."]),
    ("ru", ["Это г. Москва.", "Да и т.д. и т.п. тоже."]),
    ("el", ["Ναι.", "Όχι."]),
    ("ko", ["파일을 엽니다.", "네.", "취소를 누르세요.", "끝!"]),
    ("hi", ["यह एक वाक्य है।", "यह दूसरा है।"]),
]


@pytest.mark.parametrize(("language", "sentences"), SPLIT)
def test_sentences_end_where_they_do(language, sentences):
    assert [each.text for each in split_sentences(" ".join(sentences), language)] == sentences


def test_chinese_and_japanese_need_no_spaces():
    text = "他说：「走吧！」然后走了。真的吗？是。"
    assert [each.text for each in split_sentences(text, "zh")] == ["他说：「走吧！」", "然后走了。", "真的吗？", "是。"]
    assert [each.text for each in split_sentences("行く。 来る。", "ja")] == ["行く。", "来る。"]


def test_one_sentence_stays_whole():
    for text in ("", "   ", "no end", "A.", "…", "...", "3.5", "e.g. this", "www.example.org", ". . ."):
        assert len(split_sentences(text)) == 1
        assert "".join(split_sentences(text)[0]) == text
    assert count_sentences("  ") == 0
    assert count_sentences("One. Two.") == 2


def test_nothing_is_lost_whatever_the_text():
    rng = random.Random(1)
    for _ in range(2000):
        text = "".join(rng.choice(["a", "B", ".", "!", "…", "。", "”", "(", " ", "\u3000", "1", "z.b", "가"]) for _ in range(30))
        for language in ("", "de", "zh-CN"):
            found = split_sentences(text, language)
            assert "".join(each.text + each.space for each in found) == text
            assert len(found) == 1 or all(each.text.strip() for each in found)


def test_time_is_in_line_with_length():
    for text in ("a. " * 300_000, "." * 900_000, "x" * 900_000 + ".", " " * 900_000, "”" * 900_000):
        split_sentences(text)


def test_the_share_of_texts_with_several():
    assert share_of_several(["One.", "One. Two.", "", "x"]) == 0.25
    assert share_of_several([]) == 0.0
