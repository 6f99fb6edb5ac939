"""The stations of the walk: what they name exists, both languages have the same, and the documents are those of the page."""

import importlib
import re
from pathlib import Path

import pytest

from undivided.look.html import read_part
from undivided.look.walk import LANGUAGES, read_walk, walk_page
from undivided.paper.faq import QUESTIONS

DOCS = Path(__file__).parents[3] / "docs"
WALK = read_walk()
STATIONS = {station["name"]: station for station in WALK["stations"]}


@pytest.mark.parametrize("name", STATIONS)
def test_what_a_station_names_exists(name):
    station = STATIONS[name]
    module, _, symbol = station["code"].rpartition(".")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:
        module, _, owner = module.rpartition(".")
        found = getattr(importlib.import_module(module), owner)
    assert hasattr(found, symbol)
    assert station["faq"] in {question.name for question in QUESTIONS}
    assert re.search(rf"^  {station['check']}: async", read_part("live/walk.js"), re.MULTILINE)
    assert re.search(rf"[|#].*\b{re.escape(station['paper'])}\b", (DOCS / "paper.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", STATIONS)
def test_both_languages_tell_the_same(name):
    english, korean = (STATIONS[name][language] for language in LANGUAGES)
    assert english.keys() == korean.keys() == {"title", "text", "question", "choices", "why"}
    assert "{value}" in english["why"]
    assert "{value}" in korean["why"]
    if isinstance(english["choices"], list):
        assert len(english["choices"]) == len(korean["choices"]) >= 2
        assert all(isinstance(choice, str) for choice in [*english["choices"], *korean["choices"]])
    else:
        assert english["choices"] == korean["choices"]
    assert sum("가" <= letter <= "힣" for letter in korean["text"]) > 60


def test_fourteen_stations_and_the_labels():
    assert len(STATIONS) == len(WALK["stations"]) == 14
    assert WALK["labels"]["en"].keys() == WALK["labels"]["ko"].keys()
    checks = re.findall(r"^  (\w+): async", read_part("live/walk.js"), re.MULTILINE)
    assert sorted(checks) == sorted(station["check"] for station in WALK["stations"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_document_is_that_of_the_stations(language):
    page = DOCS / "walk" / ("README.md" if language == "en" else f"README.{language}.md")
    assert page.read_text(encoding="utf-8") == walk_page(language), "run python tools/walk.py"
