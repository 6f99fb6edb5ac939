"""What the documents say is so: commands parse and run with the output shown, recipes load, links lead somewhere."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from samples import sentences
from undivided import __version__
from undivided.cli import make_parser
from undivided.config import Recipe, build_recipe
from undivided.config.flags import given_settings
from undivided.config.settings import merge, nest_values
from undivided.config.yaml_file import read_yaml

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
PICTURES = sorted(set(re.findall(r"!\[[^\]]*\]\((docs/pictures/[^)]+)\)", README)))
LINKED = ["README", "CONTRIBUTING", "SECURITY", "CHANGELOG", "docs/architecture", "docs/log", "docs/scale", "docs/paper"]

TINY = ["--vocab-size", "300", "--batch-tokens", "400", "--max-steps", "6", "--threads", "1"]
SIZES = {"d_model": 16, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
TINY += [f"--model.{name}={size}" for name, size in SIZES.items()]
"""What is added to the README's training, so that it ends in seconds."""


def blocks(kinds: str) -> list[str]:
    return re.findall(rf"```(?:{kinds})\n(.*?)```", README, re.DOTALL)


def sessions() -> list[tuple[str, list[str]]]:
    """The commands of the README's console blocks, each with the lines that it printed."""
    found = []
    for block in blocks("console"):
        for each in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            line, _, printed = each.partition("\n")
            found.append((line, printed.splitlines()))
    return found


def commands() -> list[list[str]]:
    """The README's `undivided` commands, in code blocks and inline, up to a redirection."""
    lines = [line for line, _ in sessions()] + "".join(blocks("sh|bash")).replace("\\\n", " ").splitlines()
    lines += re.findall(r"`(undivided [^`]*[^`…])`", re.sub(r"```.*?```", "", README, flags=re.DOTALL))
    found = []
    for line in lines:
        words = shlex.split(line, comments=True)
        if "undivided" in words and words[0] != "pip":
            words = words[words.index("undivided") + 1 :]
            end = next((at for at, word in enumerate(words) if word in ("<", ">", "|", "2>")), len(words))
            found.append(words[:end])
    return found


def form(line: str) -> str:
    """A printed line without its numbers and times, singular or plural, on any CPU."""
    line = line.replace(", products in bfloat16", "")
    line = re.sub(r"\d[\d.,:e+-]*", "0", line)
    return re.sub(r"\b(lines?|pairs?)\b", "line", re.sub(r"0 (s|min|h)\b", "0 s", line))


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with the files that the README's commands read, small."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "recipes").symlink_to(ROOT / "recipes")
    for name, count, seed in (("train", 150, 1), ("val", 10, 2), ("test", 10, 3)):
        for side, lang in enumerate(("en", "de")):
            lines = [pair[side] for pair in sentences(count, seed=seed)]
            (folder / f"{name}.{lang}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def run(line: str, folder: Path) -> tuple[int, str]:
    """Run a line of shell with the `undivided` of this Python; its exit code and what it printed."""
    line = re.sub(r"\bundivided (train)\b(.*)", rf"undivided \1\2 {shlex.join(TINY)}", line)
    line = re.sub(r"(^|\| )undivided\b", lambda found: f"{found[1]}{shlex.quote(sys.executable)} -m undivided", line)
    place = os.environ | {"PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(["sh", "-c", line], cwd=folder, env=place, text=True, timeout=300, check=False, **pipes)
    return done.returncode, done.stdout


def test_the_readme_is_short_and_opens_with_a_picture_and_something_that_runs():
    assert len(README.splitlines()) <= 120
    assert README.index("](docs/pictures/") < README.index("make demo") < README.index("## ")
    assert {"make demo", "make test"} <= {line.split("  ")[0] for line in blocks("sh")[0].splitlines()}


def test_four_commands_are_shown_with_their_output():
    assert [re.search(r"undivided (\w+)", line)[1] for line, _ in sessions()] == ["train", "translate", "score", "look"]
    assert all(printed for _, printed in sessions())


def test_the_four_commands_run_one_after_the_other_and_print_what_is_shown(workplace):
    for line, shown in sessions():
        code, printed = run(line, workplace)
        assert code == 0, f"{line}\n{printed}"
        forms = [form(each) for each in printed.splitlines()]
        if "undivided translate" in line:
            # A model that learned for seconds says something else, and perhaps at length.
            engine, rest = shown[0].split(",", 1)
            assert engine.startswith("engine "), "which engine it is depends on the processor and on the model"
            assert any(each.startswith("engine ") and each.endswith(form(rest)) for each in forms), printed
            assert len(shown) == 2
            assert forms[-1]
            continue
        wanted = [form(each) for each in shown if each != "…"]
        assert [each for each in wanted if each not in forms] == [], printed
        assert all(forms.index(before) < forms.index(after) for before, after in pairwise(wanted))
    assert (workplace / "look.html").stat().st_size > 10_000


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_parse_and_their_settings_are_right(words):
    if words[-1] == "--help" or not words[1:]:
        assert words == ["--help"] or words[0] in make_parser().format_help()
        return
    options = make_parser().parse_args(words)
    if words[0] == "train":
        values = read_yaml(ROOT / options.recipe) if options.recipe else {}
        assert build_recipe(merge(values, nest_values(given_settings(options, Recipe)))).data.train


@pytest.mark.parametrize("name", re.findall(r"make ([\w-]+)", README))
def test_make_targets_exist(name):
    assert re.search(rf"^(?:[\w-]+ )*{name}(?: [\w-]+)*:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("path", PICTURES)
def test_pictures_are_small(path):
    assert 1_000 < (ROOT / path).stat().st_size < 300_000


def test_there_are_two_pictures():
    assert len(PICTURES) == 2


def test_numbers_of_the_table_are_those_of_the_reports():
    rows = [line.split("|")[1:-1] for line in README.splitlines() if line.startswith("| [")]
    assert len(rows) == 5
    for links, _, *cells in rows:
        reports = "".join((ROOT / path).read_text(encoding="utf-8") for path in re.findall(r"\]\(([^)]+)\)", links))
        reports += (ROOT / "docs" / "multi30k-en-de.md").read_text(encoding="utf-8")
        for number in re.findall(r"(?<![\w_])\d+(?:,\d{3})*(?:\.\d+)?", " ".join(cells)):
            assert number in reports, f"{number} is not in {links}"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_load(path):
    build_recipe(read_yaml(path))


def test_there_are_recipes():
    assert RECIPES


@pytest.mark.parametrize("name", LINKED)
def test_links_lead_somewhere(name):
    page = ROOT / f"{name}.md"
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [each for each in targets if not each.startswith("http") and not (page.parent / each).exists()] == []


def test_one_licence():
    licence = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    first = " ".join((ROOT / "LICENSE").read_text().split()[:4])
    assert licence.split("-")[0].lower() in first.lower()
    assert f"{licence.split('-')[0]} licen" in README or licence in README


def test_the_changelog_knows_this_version():
    assert __version__ in (ROOT / "CHANGELOG.md").read_text()


def test_on_a_terminal_translations_stand_alone_on_their_lines(model, tmp_path):
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "tools" / "pictures.py")
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    assert pictures.on_screen("\r\x1b[2Ktranslated lines: 1, 3/s\r\x1b[2KEin Hund.\r\n\x1b[33mso\x1b[0m\r\n") == ["Ein Hund.", "so"]
    (tmp_path / "in").write_text("".join(f"{source}\n" for source, _ in sentences(3, seed=4)), encoding="utf-8")
    line = f"{shlex.quote(sys.executable)} -m undivided translate {shlex.quote(str(model))} in --engine torch"
    shown = pictures.run_in_terminal(line, tmp_path)
    assert len(shown) == 4, shown
    assert shown[0].startswith("engine torch")
    assert not any("translated lines" in each for each in shown)
