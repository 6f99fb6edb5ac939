import random
import threading
import time

import pytest

from samples import sentences
from undivided import InputError, Translation
from undivided.inference.translator import split_long, to_one_line, windows

LINES = [source for source, _ in sentences(12, seed=9)]


def test_one_result_for_every_line_in_order(translator):
    lines = [LINES[0], "", *LINES[1:4], "   ", "\t", LINES[0], "\u3000", LINES[5]]
    results = list(translator.stream(iter(lines)))
    assert [result.source for result in results] == lines
    assert [bool(result.text) for result in results] == [bool(line.strip()) for line in lines]
    assert results[0].text == results[7].text
    assert [result.text for result in results] == [translator.translate(line) for line in lines]


def test_it_has_learned_something(translator):
    pairs = sentences(30, seed=11)
    outputs = translator.translate([source for source, _ in pairs])
    assert sum(output == target for output, (_, target) in zip(outputs, pairs)) >= 20


def test_python_types(translator):
    assert isinstance(translator.translate(LINES[0]), str)
    assert translator.translate([]) == []
    assert translator.translate("") == ""
    assert translator.translate(LINES[:3]) == [translator.translate(line) for line in LINES[:3]]
    assert isinstance(next(translator.stream(LINES)), Translation)


def test_newlines_in_a_text_stay(translator):
    text = f"{LINES[0]}\n\n{LINES[1]}\n"
    assert translator.translate(text) == f"{translator.translate(LINES[0])}\n\n{translator.translate(LINES[1])}\n"


def test_windows_change_nothing(translator, monkeypatch):
    whole = [result.text for result in translator.stream(LINES)]
    monkeypatch.setattr("undivided.inference.engines.contract.BATCH_TOKENS", 1)
    assert [result.text for result in translator.stream(LINES)] == whole
    assert [next(translator.stream([line])).text for line in LINES] == whole


@pytest.mark.parametrize("text", [" ".join(LINES * 40), "x" * 3000, "東京は大きい。" * 200, "  " + "a b " * 900, "." * 2000])
def test_long_text_is_translated_in_pieces_that_fit(translator, text):
    pieces = translator._pieces(text, len(translator.artifact.tokenizer.source.encode([text])[0]), sentences=True)
    assert "".join(piece + space for piece, space in pieces) == text
    lengths = [len(row) for row in translator.artifact.tokenizer.source.encode([piece for piece, _ in pieces])]
    assert max(lengths) <= translator.longest
    result = next(translator.stream([text], beam_size=1))
    assert result.pieces == len(pieces) > 1
    assert "\n" not in result.text


def test_a_line_longer_than_usual_is_translated_sentence_by_sentence(translator):
    """Or its last sentences would be forgotten: training saw no line with several."""
    text, encode = " ".join(LINES[:6]), translator.artifact.tokenizer.source.encode
    seen = [len(row) for row in encode([source for source, _ in sentences(300)])]
    assert sum(seen) / len(seen) < translator.usual <= max(seen) < len(encode([text])[0]) <= translator.longest
    result = next(translator.stream([text]))
    assert result.pieces == 6
    assert result.text == " ".join(translator.translate(LINES[:6]))
    assert next(translator.stream([text], sentences=False)).pieces == 1


def test_space_between_sentences_is_no_piece(translator):
    text = f"{LINES[0]}{' ' * 3000}{LINES[1]}{chr(0x3000) * 500}"
    pieces = translator._pieces(text, len(translator.artifact.tokenizer.source.encode([text])[0]), sentences=True)
    assert [piece for piece, _ in pieces] == LINES[:2]
    assert "".join(piece + space for piece, space in pieces) == text


def test_a_prefix_begins_the_first_piece_alone(translator):
    result = next(translator.stream([" ".join(LINES[:6])], prefixes=["Ein Hund "]))
    assert result.pieces == 6
    assert result.text.startswith("Ein Hund ")
    assert result.text.endswith(" ".join(translator.translate(LINES[1:6])))


def test_n_best(translator):
    result = next(translator.stream([LINES[0]], n_best=3, beam_size=4))
    assert len(result.alternatives) == 3
    assert result.alternatives[0] == (result.text, result.score)
    scores = [score for _, score in result.alternatives]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"beam_size": 0}, "beam_size: 0 is less than 1"), ({"n_best": 9, "beam_size": 4}, "n_best"), ({"top_p": 0.0}, "top_p")],
)
def test_wrong_search_options(translator, options, said):
    with pytest.raises(InputError, match=said):
        translator.translate("a", **options)


def test_unknown_search_option(translator):
    with pytest.raises(TypeError, match="no search setting 'beam'; known: beam_size"):
        translator.translate("a", beam=3)


def test_sampling_is_repeatable_and_differs_by_line(translator):
    lines = [LINES[0]] * 6
    options = {"sample": True, "temperature": 3.0, "seed": 4}
    first = [result.text for result in translator.stream(lines, **options)]
    assert first == [result.text for result in translator.stream(lines, **options)]
    assert len(set(first)) > 1
    assert first != [result.text for result in translator.stream(lines, **(options | {"seed": 5}))]


def test_prefix_begins_the_translation(translator):
    results = list(translator.stream(LINES[:2], prefixes=["Ein Hund ", ""]))
    assert results[0].text.startswith("Ein Hund")
    assert results[1].text == translator.translate(LINES[1])


def test_too_few_prefixes_are_refused(translator):
    with pytest.raises(InputError):
        list(translator.stream(LINES[:2], prefixes=["Ein"]))


def test_characters_never_seen(translator):
    assert isinstance(translator.translate("東京 🏳️‍🌈 \x01 ▁"), str)


def test_lone_surrogate_is_refused(translator):
    with pytest.raises(InputError, match="surrogate"):
        translator.translate("half \ud83d")


def test_split_long_loses_nothing():
    chance = random.Random(3)
    parts = ["a", "word", "Wort.", "Halt!", "。", " ", "  ", "\t", "\u2009", "\n", "x" * 30, ". ", "? "]
    for _ in range(3000):
        text = "".join(chance.choice(parts) for _ in range(chance.randrange(1, 40)))
        size = chance.randrange(1, 60)
        pieces = split_long(text, size, size)
        assert "".join(piece + space for piece, space in pieces) == text
        assert all(len(piece) <= size for piece, _ in pieces)
        assert all(not space.strip() for _, space in pieces)


def test_split_long_prefers_sentence_ends():
    text = "A dog runs. A cat sits there. It rains."
    assert split_long(text, 30, 30) == [("A dog runs. A cat sits there.", " "), ("It rains.", "")]
    assert split_long("one two three", 8, 8) == [("one two", " "), ("three", "")]
    assert split_long("abcdef", 4, 4) == [("abcd", ""), ("ef", "")]
    assert split_long("東京は大きい。大阪も大きい。", 8, 20) == [("東京は大きい。", ""), ("大阪も大きい。", "")]
    # What is longer than comfortable is no reason to cut a sentence.
    assert split_long(text, 4, 40) == [("A dog runs.", " "), ("A cat sits there.", " "), ("It rains.", "")]
    assert split_long("A. ", 2, 2) == [("A.", " ")]


def test_one_line():
    assert to_one_line("a\r\nb\nc") == "a b c"


def test_windows_of_sequences_and_of_quick_streams():
    lines = [str(n) for n in range(25)]
    assert [len(window) for window in windows(lines, 10)] == [10, 10, 5]
    assert [line for window in windows(iter(lines), 10) for line in window] == lines
    assert max(len(window) for window in windows(iter(lines), 10)) == 10
    assert list(windows(iter([]))) == []


def test_a_window_closes_when_the_next_line_does_not_come():
    go_on = threading.Event()

    def slow():
        yield "first"
        go_on.wait(10)
        yield "second"

    began = time.monotonic()
    stream = windows(slow())
    assert next(stream) == ["first"]
    assert time.monotonic() - began < 5
    go_on.set()
    assert list(stream) == [["second"]]


def test_an_error_of_the_input_comes_after_what_was_read():
    def broken():
        yield "first"
        raise InputError("bad line")

    stream = windows(broken())
    assert next(stream) == ["first"]
    with pytest.raises(InputError, match="bad line"):
        next(stream)
