"""Every translation gets a verdict; loops are noticed and decoded again."""

import csv
import io
import json
import random
import subprocess
import sys
from itertools import pairwise

import pytest

from samples import environment, sentences, write_lines
from undivided import Translator
from undivided.artifact import Artifact
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.inference import translator as translator_room
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.loops import is_looped, is_looped_text, longest_loop
from undivided.inference.report import NotSound, open_account
from undivided.inference.translation import Translation
from undivided.inference.verdicts import LEAST_CHARACTERS, SOUND, Usual, Verdict, calibrate, judge

SOURCE = "The dog sees the house in the rain."
TARGET = "Der Hund sieht das Haus im Regen."


def result(text=TARGET, source=SOURCE, **fields):
    return Translation(source, text, -1.0, **({"finished": True, "confidence": -0.3} | fields))


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (result(), "ok"),
        (result("", ""), "empty"),
        (result(" ", "\t"), "empty"),
        (result("12.5", "12.5"), "kept"),
        (result("13.5", "12.5"), "placeholder-lost"),
        (result(SOURCE), "copied"),
        (result(finished=False), "truncated"),
        (result(looped=True, finished=False), "looped"),
        (result("Der."), "length-ratio"),
        (result(TARGET * 9), "length-ratio"),
        (result(short=True), "length-ratio"),
        (result("Ja.", "Yes."), "ok"),
        (result(unknown=0.9), "unknown-script"),
        (result("x", "é", unknown=1.0), "ok"),
        (result(source="Press %s to see {name}, please.", text="Drücken Sie %s, um zu sehen, bitte."), "placeholder-lost"),
        (result(source="Press %s to see {name}, please.", text="Drücken Sie bitte %s, um {name} zu sehen."), "ok"),
        (result(confidence=-3.0), "low-confidence"),
    ],
)
def test_a_verdict_for_every_case(found, name):
    verdict = judge(found, Usual(confidence=-2.0))
    assert verdict.name == name
    assert verdict.is_sound == (name in SOUND)
    assert bool(verdict.reason) == (not verdict.is_sound)


def test_without_calibration_confidence_is_not_judged():
    assert judge(result(confidence=-30.0), Usual.of({})).name == "ok"
    assert Usual.of({"usual": {"confidence": "high", "shortest": 0.5}}) == Usual(shortest=0.5)
    assert Usual.of({"usual": 7}) == Usual()


def test_calibration_leaves_one_alarm_in_two_hundred():
    results = [result(confidence=-n / 1000) for n in range(1000)]
    usual = Usual.of({"usual": calibrate(results)})
    alarms = sum(not judge(each, usual).is_sound for each in results)
    assert alarms == 5
    assert calibrate(results[:50]) == {}, "too few to tell"


def ordinary(count, seed, weak=0.0):
    """Translations as a model makes them of ordinary text; a `weak` share of them is far too short."""
    chance, found = random.Random(seed), []
    for _ in range(count):
        source = "w" * int(chance.lognormvariate(4.2, 0.5)) + " " * LEAST_CHARACTERS + "x"
        is_weak = chance.random() < weak
        size = len(source) * (chance.uniform(0.1, 0.38) if is_weak else chance.lognormvariate(0.12, 0.18))
        found.append(result("v" * max(1, int(size)), source, confidence=-chance.lognormvariate(-0.9, 0.5), short=is_weak))
    return found


@pytest.mark.parametrize("weak", [0.0, 0.001, 0.04])
@pytest.mark.parametrize("held_out", [500, 3000])
def test_ordinary_text_raises_few_alarms_whatever_the_model(weak, held_out):
    usual = Usual.of({"usual": calibrate(ordinary(held_out, 1, weak))})
    found = ordinary(20_000, 2, weak)
    alarms = sum(not judge(each, usual).is_sound for each in found)
    assert alarms <= 0.02 * len(found)
    # What is not ordinary is found all the same.
    assert judge(result(looped=True), usual).name == "looped"
    assert judge(result(finished=False), usual).name == "truncated"
    assert judge(result("v" * 9, "w " * 200, short=True), usual).name == "length-ratio"
    assert judge(result("v" * 9000, "w " * 200), usual).name == "length-ratio"


def test_a_model_that_is_seldom_short_says_so_of_every_short_translation():
    usual = Usual.of({"usual": calibrate(ordinary(1000, 3))})
    short = [each for each in ordinary(2000, 4, 0.2) if each.short]
    assert all(judge(each, usual).name == "length-ratio" for each in short)


@pytest.mark.parametrize(
    ("tokens", "longest"),
    [
        ([1, 2, 3, 4], 0),
        ([7] * 7, 0),
        ([7] * 8, 8),
        ([1, 2] * 3, 0),
        ([5, 1, 2, 1, 2, 1, 2, 1, 2, 9], 8),
        ([*range(10), *range(10), *range(10), *range(10)], 40),
        ([*range(50)] * 3, 0),
        ([*range(50)] * 4 + [99], 200),
        ([], 0),
    ],
)
def test_loops(tokens, longest):
    assert longest_loop(tokens) == longest


@pytest.mark.parametrize(
    ("source", "output", "is_loop"),
    [
        ("color", "die die die die die Farbe", True),
        ("color", "die die die die Farbe", False),
        ("color", "in der " * 5, True),
        ("no no no no no", "nein nein nein nein nein", False),
        ("a table", "- - - - - - | | | | | | |", False),
        ("x" * 300, "der der der der der", True),
    ],
)
def test_words_that_repeat_whatever_their_tokens(source, output, is_loop):
    assert is_looped_text(source, output) == is_loop


def test_a_source_that_repeats_itself_may_be_translated_so():
    assert is_looped([1, 2, 3], [9, 8] * 6)
    assert not is_looped([3] * 8, [9] * 9)


class Looping:
    """An engine that repeats itself, until that is blocked."""

    name, is_parallel, has_shortlist = "looping", False, False

    def __init__(self, stays=False):
        self.asked, self.stays = [], stays

    def search(self, sources, config, prefixes, keys):
        self.asked.append((len(sources), config.no_repeat_ngram))
        for place, _ in enumerate(sources):
            looped = not config.no_repeat_ngram or self.stays
            tokens = [300, 301] * 20 if looped else [300, 301, 302]
            yield place, [Hypothesis(tokens, -1.0, -1.0, finished=not looped)]


@pytest.fixture
def looping(translator, monkeypatch):
    def make(stays=False):
        engine = Looping(stays)
        monkeypatch.setattr(translator, "engine", engine)
        return translator, engine

    return make


def test_a_loop_is_decoded_again_alone_with_repetition_blocked(looping):
    translator, engine = looping()
    (found,) = translator.stream([SOURCE])
    assert engine.asked[0][1] == 0
    assert engine.asked[-1] == (1, translator_room.BLOCKED)
    assert not found.looped
    assert found.finished


def test_a_loop_that_stays_is_flagged(looping):
    translator, _ = looping(stays=True)
    (found,) = translator.stream([SOURCE])
    assert found.looped
    assert translator.judge(found).name == "looped"


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_no_sequence_occurs_twice(model, engine):
    pytest.importorskip("ctranslate2")
    translator = Translator(model, threads=1, engine=engine)
    source = translator.artifact.tokenizer.source.encode([" ".join(source for source, _ in sentences(6))])

    def pairs(**changes):
        ((_, found),) = translator.engine.search(source, translator.search_config(**changes), [[]], [0])
        return list(pairwise(found[0].tokens))

    free, blocked = pairs(), pairs(no_repeat_ngram=2)
    assert len(set(free)) < len(free), "or it would prove nothing"
    assert len(set(blocked)) == len(blocked)


def test_letters_that_training_did_not_have_are_noticed(translator):
    korean, usual = translator.stream(["그 개는 집을 봅니다", sentences(1)[0][0]])
    assert korean.unknown > 0.8
    assert translator.judge(korean).name == "unknown-script"
    assert usual.unknown == 0


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.html"])
def test_the_account_has_a_row_for_every_segment(tmp_path, name):
    hostile = '<script>alert(1)</script>,"\n'
    with open_account(str(tmp_path / name)) as account:
        account.add(1, SOURCE, TARGET, Verdict("ok"), result())
        account.add(2, hostile, hostile, Verdict("looped", "again & again"), result(looped=True))
    text = (tmp_path / name).read_text(encoding="utf-8")
    if name.endswith(".jsonl"):
        rows = [json.loads(line) for line in text.splitlines()]
        assert rows[1]["source"] == hostile
    elif name.endswith(".csv"):
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        assert rows[1]["translation"] == hostile
    else:
        assert "<script>alert" not in text
        assert text.count("<tr data-verdict=") == 2
        return
    assert [row["verdict"] for row in rows] == ["ok", "looped"]


def test_an_account_says_what_it_found():
    said = io.StringIO()
    with open_account(None) as account:
        account.add(1, SOURCE, TARGET, Verdict("ok"))
    account.close(Console(stream=said), is_strict=True, is_asked=False)
    assert said.getvalue() == "1 segment: 1 ok\n"
    account.add(2, SOURCE, "", Verdict("looped", "…"))
    with pytest.raises(NotSound, match="1 segment to look at") as caught:
        account.close(Console(stream=said), is_strict=True, is_asked=False)
    assert caught.value.exit_code == 3
    with pytest.raises(InputError, match=r"\.jsonl, \.csv or \.html"), open_account("a.txt"):
        pass


def test_from_the_command_line(model, tmp_path):
    lines = write_lines(tmp_path / "in.txt", [sentences(1)[0][0], "", "그 개는 집을 봅니다 오늘"])
    command = [sys.executable, "-m", "undivided", "translate", str(model), str(lines), "--engine", "torch", "--threads", "1"]
    report = tmp_path / "account.jsonl"
    done = subprocess.run(
        [*command, "--report", str(report), "--strict"], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 3, done.stderr
    assert len(done.stdout.splitlines()) == 3
    assert "line 3: unknown-script" in done.stderr
    rows = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    assert [row["segment"] for row in rows] == [1, 2, 3]
    assert [row["verdict"] for row in rows][1:] == ["empty", "unknown-script"]


def test_training_says_what_is_usual(translator):
    """The model of these tests has too few validation pairs; with more it keeps what is usual in its folder."""
    assert translator.usual == Usual()
    artifact = translator.artifact
    known = Artifact(artifact.recipe, artifact.tokenizer, artifact.model, {"usual": {"confidence": -1.5}})
    assert Translator(known, engine="torch").usual.confidence == -1.5
