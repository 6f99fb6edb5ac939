"""The walk of the live page in a real browser: every question has an answer that the page finds by running, in both languages."""

import pytest

from samples import sentences
from undivided.look import look
from undivided.look.live import render_live
from undivided.look.walk import read_walk

WALK = read_walk()
TEXT = sentences(3, seed=4)[0][0]


@pytest.fixture
def walk(show, translator):
    """Open the walk at its first station in a language; the sentence has been translated."""

    def start(language):
        tab = show(render_live(translator.artifact, TEXT, "float32"))
        tab.locator(f".top-line input[value={language}]").check()
        tab.wait_for_selector(".station fieldset")
        return tab

    return start


def check(tab, choice):
    """Choose an answer; what the page says of it, and whether it is right."""
    tab.locator(f".station fieldset input[value='{choice}']").check()
    tab.locator(".station fieldset ~ .buttons button").click()
    tab.wait_for_selector(".station .result[data-right]")
    result = tab.locator(".station .result")
    said, right = result.text_content(), result.get_attribute("data-right") == "true"
    tab.evaluate("delete document.querySelector('.station .result').dataset.right")
    return said, right


@pytest.mark.parametrize("language", ["en", "ko"])
def test_every_station_has_one_right_answer(walk, language):
    tab = walk(language)
    labels = WALK["labels"][language]
    for number, station in enumerate(WALK["stations"], 1):
        assert tab.locator(".station h3").text_content() == station[language]["title"]
        assert labels["station"].format(number=number, count=14) in tab.locator(".station").text_content()
        count = tab.locator(".station fieldset input").count()
        said, right = check(tab, 0)
        if not right:
            answer = said.removeprefix(labels["wrong"].partition("{answer}")[0])
            shown = [tab.locator(".station fieldset label").nth(at).text_content() for at in range(count)]
            choice = max((at for at in range(count) if answer.startswith(shown[at])), key=lambda at: len(shown[at]))
            said, right = check(tab, choice)
        assert right, said
        assert said.startswith(labels["right"])
        assert "{value}" not in said
        assert "undefined" not in said
        if number < 14:
            tab.locator(".station .buttons button", has_text=labels["next"]).click()


def test_answers_are_those_of_pytorch(walk, translator):
    tab, seen = walk("en"), look(translator, TEXT)
    names = [station["name"] for station in WALK["stations"]]

    def answer(name):
        for _ in range(names.index(name)):
            tab.locator(".station .buttons button", has_text="Next").click()
        rights = [check(tab, at)[1] for at in range(tab.locator(".station fieldset input").count())]
        said = check(tab, rights.index(True))[0]
        for _ in range(names.index(name)):
            tab.locator(".station .buttons button", has_text="Back").click()
        assert sum(rights) == 1
        return rights.index(True), said

    assert str(len(seen.source)) in answer("bottleneck")[1]
    assert answer("attention")[0] == int(seen.cross[-1].mean(axis=0)[0].argmax())
    assert answer("masks")[0] == 0
    greedy, beam = (translator.translate(TEXT, beam_size=size) for size in (1, 4))
    choice, said = answer("decoding")
    assert choice == (0 if greedy == beam else 1)
    assert greedy in said


def test_another_sentence_asks_anew(walk):
    tab = walk("en")
    for _ in range(2):
        tab.locator(".station .buttons button", has_text="Next").click()
    before = tab.locator(".station fieldset").text_content()
    tab.locator("#live-text").fill(sentences(9, seed=8)[5][0] + " and " + TEXT)
    for _ in range(100):
        if tab.locator(".station fieldset").text_content() != before:
            break
        tab.wait_for_timeout(100)
    assert tab.locator(".station fieldset").text_content() != before
    assert tab.locator(".station h3").text_content() == WALK["stations"][2]["en"]["title"]
