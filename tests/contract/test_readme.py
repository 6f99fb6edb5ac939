"""What the documents say is so: commands parse, recipes load, links lead somewhere."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from undivided import __version__
from undivided.cli import make_parser
from undivided.config import Recipe, build_recipe
from undivided.config.flags import given_settings
from undivided.config.settings import merge, nest_values
from undivided.config.yaml_file import read_yaml

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))


def commands() -> list[list[str]]:
    """The README's `undivided` commands, up to a redirection."""
    blocks = re.findall(r"```(?:sh|bash|console)\n(.*?)```", README, re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    found = []
    for line in lines:
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words and words[0] == "undivided":
            end = next((at for at, word in enumerate(words) if word in ("<", ">", "|", "2>")), len(words))
            found.append(words[1:end])
    return found


def test_the_readme_has_one_screen_and_commands():
    assert len(README.splitlines()) <= 150
    assert {words[0] for words in commands()} >= {"train", "translate", "score"}


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_parse_and_their_settings_are_right(words):
    options = make_parser().parse_args(words)
    if words[0] == "train":
        values = read_yaml(ROOT / options.recipe) if options.recipe else {}
        assert build_recipe(merge(values, nest_values(given_settings(options, Recipe)))).data.train


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_load(path):
    build_recipe(read_yaml(path))


def test_there_are_recipes():
    assert RECIPES


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(target):
    assert target.startswith("http") or (ROOT / target).exists()


def test_one_licence():
    licence = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    first = " ".join((ROOT / "LICENSE").read_text().split()[:4])
    assert licence.split("-")[0].lower() in first.lower()
    assert f"{licence.split('-')[0]} licen" in README or licence in README


def test_the_changelog_knows_this_version():
    assert __version__ in (ROOT / "CHANGELOG.md").read_text()
