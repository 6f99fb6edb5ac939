"""Documents as training data."""

import io
import json
from xml.sax.saxutils import escape

import pytest

from samples import sentences, tiny_recipe
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.training.loop import train
from undivided.training.recipe import preview_recipe, resolve_run

QUIET = Console(quiet=True, stream=io.StringIO())


def write_memory(path, pairs):
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{escape(a)}</seg></tuv><tuv xml:lang="de"><seg>{escape(b)}</seg></tuv></tu>' for a, b in pairs
    )
    path.write_text(f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>', encoding="utf-8")
    return str(path)


@pytest.fixture
def recipe(tmp_path):
    valid = tmp_path / "valid.po"
    rows = [f'msgid "{a}"\nmsgstr "{b}"\n' for a, b in dict(sentences(5, seed=3)).items()]
    valid.write_text("\n".join(rows), encoding="utf-8")
    values = tiny_recipe(tmp_path / "run", [write_memory(tmp_path / "memory.tmx", sentences(40))], [str(valid)])
    values["data"] |= {"source_lang": "", "target_lang": ""}
    values["train"] |= {"max_steps": 2, "save_every": 2, "average": 1}
    return values


def test_a_model_learns_from_a_memory_and_resumes(recipe, tmp_path):
    folder = train(recipe, QUIET)
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))["recipe"]["data"]
    assert (saved["source_lang"], saved["target_lang"]) == ("en", "de")
    texts = sorted((tmp_path / "run" / "training" / "corpora").iterdir())
    assert [path.read_bytes().count(b"\n") for path in texts] == [40, 40, 5, 5]
    again = recipe | {"train": recipe["train"] | {"max_steps": 4}}
    assert resolve_run(again, QUIET).resumes
    write_memory(tmp_path / "memory.tmx", sentences(41))
    with pytest.raises(InputError, match="holds another training"):
        resolve_run(again, QUIET)


def test_a_memory_without_pairs_is_refused(recipe, tmp_path):
    (tmp_path / "memory.tmx").write_text('<tmx><body><tu><tuv xml:lang="en"><seg>a</seg></tuv></tu></body></tmx>')
    with pytest.raises(InputError, match=r"memory\.tmx: has en; say which languages"):
        resolve_run(recipe, QUIET)


def test_a_plan_leaves_nothing_behind(recipe, tmp_path):
    assert preview_recipe(recipe, QUIET).data.target_lang == "de"
    assert not (tmp_path / "run").exists()
