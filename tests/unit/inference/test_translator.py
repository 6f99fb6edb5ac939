import random
import threading
import time

import pytest

from samples import sentences
from undivided import InputError, Translation
from undivided.config import SearchConfig
from undivided.data.subwords import to_one_line
from undivided.inference.chunks import chunk_lines
from undivided.inference.pieces import split_at_sentences, split_line
from undivided.inference.search_settings import SearchChanges, change_search
from undivided.inference.translation import decode_translation, encode_texts, search_texts

LINES = [source for source, _ in sentences(12, seed=9)]


def pieces_of(translator, text):
    tokens = len(translator.artifact.tokenizer.source.encode([text])[0])
    return split_line(text, tokens, translator.limits)


def test_each_step_of_translation_can_be_called_alone(translator):
    """Text → pieces → ids → hypotheses → text."""
    tokenizer, config, lines = translator.artifact.tokenizer, translator.search_config(), [LINES[0], " ".join(LINES[:6])]
    texts = encode_texts(lines, tokenizer.source, translator.limits)
    assert [len(each.pieces) for each in texts] == [len(each.ids) for each in texts] == [1, 6]
    found = dict(search_texts(translator.engine, texts, config, [[], []], [0, 0]))
    assert [len(found[index]) for index in range(2)] == [1, 6]
    results = [decode_translation(line, texts[n], found[n], tokenizer.target) for n, line in enumerate(lines)]
    assert results == list(translator.stream(lines))


def test_search_settings_that_may_be_changed_are_all_there_are():
    assert SearchChanges.__annotations__.keys() == SearchConfig.__dataclass_fields__.keys()
    with pytest.raises(InputError, match=r"beam_size: 0 is less than 1; top_p: 2 is more than 1"):
        change_search(SearchConfig(), beam_size=0, top_p=2)


def test_one_result_for_every_line_in_order(translator):
    lines = [LINES[0], "", *LINES[1:4], "   ", "\t", LINES[0], "\u3000", LINES[5]]
    results = list(translator.stream(iter(lines)))
    assert [result.source for result in results] == lines
    assert [bool(result.text) for result in results] == [bool(line.strip()) for line in lines]
    assert results[0].text == results[7].text
    assert [result.text for result in results] == [translator.translate(line) for line in lines]


class Spy:
    """An engine that keeps what it is asked for, and answers in another order."""

    def __init__(self, engine):
        self.engine, self.asked = engine, []
        self.is_parallel = False

    def search(self, sources, *more):
        self.asked += [tuple(source) for source in sources]
        yield from reversed(list(self.engine.search(sources, *more)))


@pytest.fixture
def spied(translator, monkeypatch):
    """A translator, and what its engine is asked for."""
    spy = Spy(translator.engine)
    monkeypatch.setattr(translator, "engine", spy)
    return translator, spy.asked


def test_a_line_that_occurs_again_is_translated_once(spied):
    translator, asked = spied
    lines = [LINES[0], LINES[1], LINES[0], "", LINES[0], LINES[1]]
    texts = [result.text for result in translator.stream(lines)]
    assert len(asked) == len(set(asked)) == 2
    assert texts == [texts[0], texts[1], texts[0], "", texts[0], texts[1]]
    assert texts[0] != texts[1]
    asked.clear()
    assert len(list(translator.stream(lines, sample=True, beam_size=1))) == len(lines)
    assert len(asked) == 5  # each is a draw of its own


def test_pieces_stay_in_order_whatever_is_found_first(spied):
    translator, asked = spied
    pieces = translator.translate(LINES[:6])
    asked.clear()
    assert translator.translate(" ".join(LINES[:6])) == " ".join(pieces)
    assert len(asked) == 6


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
    pieces = pieces_of(translator, text)
    assert "".join(piece + space for piece, space in pieces) == text
    lengths = [len(row) for row in translator.artifact.tokenizer.source.encode([piece for piece, _ in pieces])]
    assert max(lengths) <= translator.limits.longest
    result = next(translator.stream([text], beam_size=1))
    assert result.pieces == len(pieces) > 1
    assert "\n" not in result.text


def test_a_line_longer_than_usual_is_translated_sentence_by_sentence(translator):
    """Or its last sentences would be forgotten: training saw no line with several."""
    text, encode = " ".join(LINES[:6]), translator.artifact.tokenizer.source.encode
    seen = [len(row) for row in encode([source for source, _ in sentences(300)])]
    assert sum(seen) / len(seen) < translator.limits.usual <= max(seen) < len(encode([text])[0]) <= translator.limits.longest
    result = next(translator.stream([text]))
    assert result.pieces == 6
    assert result.text == " ".join(translator.translate(LINES[:6]))
    assert next(translator.stream([text], sentences=False)).pieces == 1


def test_space_between_sentences_is_no_piece(translator):
    text = f"{LINES[0]}{' ' * 3000}{LINES[1]}{chr(0x3000) * 500}"
    pieces = pieces_of(translator, text)
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


def test_split_at_sentences_loses_nothing():
    chance = random.Random(3)
    parts = ["a", "word", "Wort.", "Halt!", "。", " ", "  ", "\t", "\u2009", "\n", "x" * 30, ". ", "? "]
    for _ in range(3000):
        text = "".join(chance.choice(parts) for _ in range(chance.randrange(1, 40)))
        size = chance.randrange(1, 60)
        pieces = split_at_sentences(text, size, size)
        assert "".join(piece + space for piece, space in pieces) == text
        assert all(len(piece) <= size for piece, _ in pieces)
        assert all(not space.strip() for _, space in pieces)


def test_split_at_sentences_prefers_sentence_ends():
    text = "A dog runs. A cat sits there. It rains."
    assert split_at_sentences(text, 30, 30) == [("A dog runs. A cat sits there.", " "), ("It rains.", "")]
    assert split_at_sentences("one two three", 8, 8) == [("one two", " "), ("three", "")]
    assert split_at_sentences("abcdef", 4, 4) == [("abcd", ""), ("ef", "")]
    assert split_at_sentences("東京は大きい。大阪も大きい。", 8, 20) == [("東京は大きい。", ""), ("大阪も大きい。", "")]
    # What is longer than comfortable is no reason to cut a sentence.
    assert split_at_sentences(text, 4, 40) == [("A dog runs.", " "), ("A cat sits there.", " "), ("It rains.", "")]
    assert split_at_sentences("A. ", 2, 2) == [("A.", " ")]


def test_one_line():
    assert to_one_line("a\r\nb\nc") == "a b c"


def test_windows_of_sequences_and_of_quick_streams():
    lines = [str(n) for n in range(25)]
    assert [len(window) for window in chunk_lines(lines, 10)] == [10, 10, 5]
    assert [line for window in chunk_lines(iter(lines), 10) for line in window] == lines
    assert max(len(window) for window in chunk_lines(iter(lines), 10)) == 10
    assert list(chunk_lines(iter([]))) == []


def test_a_window_closes_when_the_next_line_does_not_come():
    go_on = threading.Event()

    def slow():
        yield "first"
        go_on.wait(10)
        yield "second"

    began = time.monotonic()
    stream = chunk_lines(slow())
    assert next(stream) == ["first"]
    assert time.monotonic() - began < 5
    go_on.set()
    assert list(stream) == [["second"]]


def test_an_error_of_the_input_comes_after_what_was_read():
    def broken():
        yield "first"
        raise InputError("bad line")

    stream = chunk_lines(broken())
    assert next(stream) == ["first"]
    with pytest.raises(InputError, match="bad line"):
        next(stream)
