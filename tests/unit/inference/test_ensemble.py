"""Several model folders that translate together."""

import shutil

import pytest

from samples import sentences, tiny_recipe, write_pairs
from undivided import InputError, Translator
from undivided.core.console import Console
from undivided.inference.ensemble import open_ensemble
from undivided.training.loop import train

LINES = [source for source, _ in sentences(6, seed=3)]


@pytest.fixture(scope="module")
def sibling(model, tmp_path_factory):
    """A model with the subwords of another, of another seed."""
    folder = tmp_path_factory.mktemp("sibling")
    values = tiny_recipe(folder / "m", write_pairs(folder, "train", sentences(60)))
    values["tokens"] = {"ready": str(model)}
    values["train"] |= {"seed": 7, "max_steps": 25}
    return train(values, Console(quiet=True))


def test_a_model_with_itself_translates_as_it_does(model, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(model, twin)
    together = Translator(open_ensemble([model, twin]), engine="torch")
    assert together.translate(LINES) == Translator(model, engine="torch").translate(LINES)


def test_two_models_from_the_command_line(run, model, sibling, tmp_path):
    (tmp_path / "in").write_text("\n".join(LINES) + "\n")
    alone, both = (run("translate", model, tmp_path / "in", "--scores", *more) for more in ([], ["--with", sibling]))
    assert both.code == 0, both.err
    assert "2 models together" in both.err
    assert both.out.count("\n") == len(LINES)
    assert both.out != alone.out


def test_other_subwords_and_other_engines_are_refused(run, model, tmp_path):
    values = tiny_recipe(tmp_path / "m", write_pairs(tmp_path, "train", sentences(40, seed=9)))
    values["train"]["max_steps"] = 1
    values["tokens"]["vocab_size"] = 300
    other = train(values, Console(quiet=True))
    with pytest.raises(InputError, match="its subwords are not those of"):
        open_ensemble([model, other])
    assert "not with --engine ctranslate2" in run("translate", model, "-", "--with", other, "--engine", "ctranslate2").err
    assert run("translate", model, __file__, "--with", model, "--workers", "2").code == 2
