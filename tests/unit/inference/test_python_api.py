"""What a person who types Python sees."""

from samples import sentences
from undivided import Translator
from undivided.look import look

LINES = [source for source, _ in sentences(3, seed=9)]


def test_n_best_gives_as_many(translator):
    found = translator.translate(LINES[0], n_best=3)
    assert len(found) == len(set(found)) == 3
    assert found[0] == translator.translate(LINES[0])
    several = translator.translate(LINES, n_best=2)
    assert [len(each) for each in several] == [2, 2, 2]
    assert [each[0] for each in several] == translator.translate(LINES)
    assert translator.translate(LINES[0], n_best=1) == [found[0]]


def test_n_best_of_a_text_of_several_lines(translator):
    parts = [translator.translate(line, n_best=2) for line in LINES[:2]]
    found = translator.translate(f"{LINES[0]}\n\n{LINES[1]}", n_best=2)
    assert found == ["\n".join((parts[0][rank], "", parts[1][rank])) for rank in (0, 1)]


def test_a_translator_shows_itself_in_one_line(model):
    shown = repr(Translator(model, engine="torch"))
    assert shown == f"<Translator {model}: transformer en → de, 0.0 M parameters, engine torch>"


def test_a_look_shows_itself_in_one_line(translator):
    seen = look(translator, LINES[0])
    assert repr(seen).startswith(f"<Look {LINES[0]!r} → {seen.translation!r}, score ")
    assert len(repr(seen)) < 300
