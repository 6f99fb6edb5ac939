"""Our own API: places, verdicts, n-best, streams, looks, numbers."""

import json
import re

import pytest

from samples import sentences

FIRST, SECOND = (source for source, _ in sentences(2, seed=9))


def ask(server, **fields):
    return server.post("/v1/translate", json={"target": "de", "source": "en"} | fields)


def test_places_of_sentences_are_places_in_both_texts(server):
    text = f"  {FIRST} {SECOND}\n\n{SECOND}\n123"
    found = ask(server, q=text, n_best=2).json()["translations"][0]
    pieces = [(text[slice(*each["source"])], found["text"][slice(*each["target"])]) for each in found["segments"]]
    one, two = (server.translate(each)["translatedText"] for each in (FIRST, SECOND))
    assert pieces == [(FIRST, one), (SECOND, two), (SECOND, two)]
    assert found["text"] == f"  {one} {two}\n\n{two}\n123"
    assert found["verdict"]["is_sound"]
    assert len(found["alternatives"]) == 2
    assert found["alternatives"][0]["text"] == found["text"]
    assert found["alternatives"][0]["score"] >= found["alternatives"][1]["score"]


def test_a_verdict_names_what_is_wrong(server):
    found = ask(server, q="안녕하세요 여러분 반갑습니다").json()["translations"][0]
    assert found["verdict"]["name"] == "unknown-script"
    assert not found["verdict"]["is_sound"]
    assert found["segments"][0]["verdict"] == found["verdict"]


def test_alignments_are_links_between_words(server):
    found = ask(server, q=[f" {FIRST}", SECOND], alignments=True).json()["translations"]
    for text, each in zip((f" {FIRST}", SECOND), found):
        words = [each["text"][slice(*link["target"])] for link in each["alignments"]]
        assert len(words) >= 2
        assert set(words) <= set(re.findall(r"\w+|\W", each["text"]))
        assert {text[slice(*link["source"])] for link in each["alignments"]} <= set(re.findall(r"\w+|\W", text))
    assert ask(server, q=FIRST, target="fr", alignments=True).json()["translations"][0]["alignments"] is None


def test_a_prefix_is_what_the_translation_begins_with(server):
    assert ask(server, q=FIRST, prefix="mein").json()["translations"][0]["text"].startswith("mein")
    assert ask(server, q=[FIRST], prefix="mein").status_code == 400
    assert ask(server, q=FIRST).json()["translations"][0]["text"] == server.translate(FIRST)["translatedText"]


def test_a_glossary_of_a_request_is_kept_and_is_nobody_elses(server):
    text = "The dog sees the house today."
    assert "Haus" in ask(server, q=text).json()["translations"][0]["text"]
    found = ask(server, q=text, glossary={"house": "Zzz"}).json()["translations"][0]
    assert "Zzz" in found["text"] or not found["verdict"]["is_sound"]
    assert "Zzz" not in ask(server, q=text).json()["translations"][0]["text"]
    assert ask(server, q=text, glossary={"": "x"}).status_code == 400
    assert ask(server, q=text, glossary={"a": 1}).status_code == 400


def test_a_stream_has_each_sentence_and_then_everything(server):
    text = f"{FIRST}\n{SECOND} stream"
    got = ask(server, q=[text, "123"], stream=True)
    lines = [json.loads(line) for line in got.text.splitlines()]
    assert got.headers["content-type"].startswith("application/x-ndjson")
    assert sorted((each["index"], each["segment"]) for each in lines[:-1]) == [(0, 0), (0, 1)]
    whole = ask(server, q=[text, "123"]).json()
    assert lines[-1] == {"done": True} | whole
    assert {each["text"] for each in lines[:-1]} == set(whole["translations"][0]["text"].split("\n"))


@pytest.mark.parametrize(
    "fields",
    [
        {"q": "a", "extra": 1}, {"q": 1}, {"q": []}, {"q": "a", "n_best": 7}, {"q": "a", "n_best": 0}, {"q": "a", "n_best": "2"},
        {"q": "a", "n_best": 3, "beam_size": 2}, {"q": "a", "format": "x"}, {"q": "a", "target": "zz"},
        {"q": "a", "beam_size": 1000}, {"q": "a", "prefix": 5}, {"q": "a\nb", "prefix": "x"},
    ],
)  # fmt: skip
def test_wrong_requests(server, fields):
    got = ask(server, **fields)
    assert got.status_code == 400
    assert isinstance(got.json()["error"], str)


def look(server, **fields):
    return server.post("/v1/look", json={"q": FIRST, "source": "en", "target": "de"} | fields)


def test_a_look_tells_what_else_might_have_been_written(server):
    seen = look(server, step=0, choices=4).json()
    assert "".join(step["piece"] for step in seen["steps"][:-1]).replace("▁", " ").strip() == seen["translation"]
    assert all(len(row) == len(seen["tokens"]) and abs(sum(row) - 1) < 0.01 for row in seen["attention"])
    assert len(seen["attention"]) == len(seen["steps"])
    assert all(step["candidates"][step["rank"] - 1]["id"] == step["id"] for step in seen["steps"] if step["rank"] <= 10)
    assert [seen["translation"][slice(*span)] for span in seen["words"]["target"]] == seen["translation"].split()
    first, *others = seen["choices"]
    assert first["translation"] == seen["translation"]
    assert len({each["translation"] for each in seen["choices"]}) > 1
    for each in others:
        assert each["translation"].split()[0] == each["word"]


def test_going_on_from_another_word(server):
    other = next(each for each in look(server, step=0, choices=6).json()["choices"][1:])
    then = look(server, prefix=other["prefix"]).json()
    assert then["translation"] == other["translation"]
    assert [step["id"] for step in then["steps"]][: len(other["prefix"])] == other["prefix"]


def test_a_look_at_a_given_translation(server):
    """What somebody chose, not what the model would have written."""
    given = look(server, translation="der Hund mag das Haus.").json()
    assert given["translation"] == "der Hund mag das Haus." != look(server).json()["translation"]
    assert "".join(step["piece"] for step in given["steps"]).replace("▁", " ").strip() == "der Hund mag das Haus.</s>"


def test_a_look_at_one_of_several_sentences_and_at_all_heads(server):
    seen = look(server, q=f"{FIRST} {SECOND}", piece=1, heads=True).json()
    assert seen["pieces"] == [FIRST, SECOND]
    assert seen["text"] == SECOND
    layers, heads, rows, columns = 1, 2, len(seen["steps"]), len(seen["tokens"])
    cross = seen["heads"]["cross"]
    assert (len(cross), len(cross[0]), len(cross[0][0]), len(cross[0][0][0])) == (layers, heads, rows, columns)


@pytest.mark.parametrize(
    "fields",
    [
        {"piece": 1}, {"step": 900}, {"prefix": [0]}, {"prefix": [10**9]}, {"prefix": [3, 3]}, {"q": "a\nb"}, {"q": "  "},
        {"target": "fr"}, {"prefix": ["a"]}, {"choices": 11}, {"translation": ""},
        {"translation": "a\nb"}, {"translation": "a", "prefix": [9]},
    ],
)  # fmt: skip
def test_looks_that_cannot_be(server, fields):
    assert look(server, **fields).status_code == 400


def test_ready_and_numbers(server):
    assert server.get("/ready").json() == {"status": "ready", "models": ["en-de", "de-fr"]}
    server.translate("a secret word")
    numbers = server.get("/metrics").text
    assert 'undivided_requests_total{route="/translate",status="200"}' in numbers
    assert "secret" not in numbers
    for line in numbers.splitlines():
        assert line.startswith("#") or (len(line.rsplit(" ", 1)) == 2 and float(line.rsplit(" ", 1)[1]) >= 0)
