"""A run is tied to its data by content: it resumes with files that were moved, and says in words what really changed."""

import io
import shutil
from pathlib import Path

import pytest

from samples import sentences, tiny_recipe, write_pairs
from undivided import InputError
from undivided.core.console import Console
from undivided.training.loop import train
from undivided.training.recipe import resolve_run


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A run that was started with relative paths, and where."""
    home = tmp_path_factory.mktemp("begun")
    for name, count in (("train", 60), ("valid", 5)):
        write_pairs(home / "data", name, sentences(count, seed=count))
    values = tiny_recipe(home / "m", ["data/train.src", "data/train.tgt"], ["data/valid.src", "data/valid.tgt"])
    values["train"]["max_steps"] = 2
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        train(values, Console(quiet=True))
    return home


@pytest.fixture
def home(begun, tmp_path):
    return Path(shutil.copytree(begun, tmp_path / "home"))


def resolve(home, **data):
    values = {"train": {"out": str(home / "m")}} | ({"data": data} if data else {})
    return resolve_run(values, Console(quiet=True))


def files(folder, name="train"):
    return [[str(folder / f"{name}.src"), str(folder / f"{name}.tgt")]]


def test_from_another_directory_without_naming_the_data(begun, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = resolve(begun)
    assert found.resumes
    assert found.recipe.data.train[0].source == str(begun / "data" / "train.src")


def test_moved_and_absolute(home, tmp_path, monkeypatch):
    (home / "data").rename(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    (pair,), (held,) = files(tmp_path / "elsewhere"), files(tmp_path / "elsewhere", "valid")
    found = resolve(home, train=[pair], valid=[held])
    assert found.resumes
    assert set(found.record.digests) == {*pair, *held}
    values = {"train": {"out": str(home / "m"), "max_steps": 4}, "data": {"train": files(tmp_path / "elsewhere")}}
    values["data"]["valid"] = files(tmp_path / "elsewhere", "valid")
    train(values, Console(quiet=True))
    assert (home / "m" / "training" / "checkpoints" / "step-000000004").is_dir()


def refused(home, **data):
    with pytest.raises(InputError, match="holds another training") as caught:
        resolve(home, **data)
    return str(caught.value)


def test_what_changed_is_said_in_words(home, tmp_path, monkeypatch):
    monkeypatch.chdir(home)
    other = [write_pairs(tmp_path / "other", "train", sentences(61, seed=3))]
    said = refused(home, train=other)
    assert f"{other[0][0]} (data/train.src, when training started) has changed since training started: it had " in said
    said = refused(home, train=[*files(Path("data")), *other])
    assert f"--train had data/train.src data/train.tgt, now data/train.src data/train.tgt; {' '.join(other[0])}" in said
    said = refused(home, train=[[*files(Path("data"))[0], 2]])
    assert "the weights of --train were 1, now 2" in said
    said = refused(home, max_chars=17, source_lang="")
    assert "data.max_chars was 5000, now 17" in said
    assert "data.source_lang was en, now not set" in said
    for python in ("{", "[", "'", "None", "True"):
        assert python not in said


def test_documents_move_with_the_folder_of_their_run(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    rows = [f'msgid "{one}"\nmsgstr "{two}"\n' for one, two in dict(sentences(30)).items()]
    Path("de.po").write_text("\n".join(rows), encoding="utf-8")
    values = tiny_recipe(Path("m"), ["de.po", ""])
    values["train"]["max_steps"] = 1
    train(values, Console(quiet=True))
    (tmp_path / "a").rename(tmp_path / "b")
    monkeypatch.chdir(tmp_path)
    found = resolve(tmp_path / "b")
    assert found.recipe.data.train[0].source.startswith(str(tmp_path / "b" / "m" / "training" / "corpora"))


@pytest.fixture(scope="module")
def tuned(begun):
    """A run that fine-tunes the other, started beside it with relative paths."""
    values = tiny_recipe(Path("tuned"), ["data/train.src", "data/train.tgt"], ["data/valid.src", "data/valid.tgt"])
    del values["model"], values["tokens"]
    values["train"] |= {"start": "m", "max_steps": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(begun)
        train(values, Console(quiet=True))
    return begun


def resume(home, **settings):
    said = io.StringIO()
    train({"train": {"out": str(home / "tuned"), "max_steps": 2, **settings}}, Console(stream=said))
    return said.getvalue()


def test_fine_tuning_resumes_from_another_directory_and_measures_what_was_forgotten(tuned, tmp_path, monkeypatch):
    home = Path(shutil.copytree(tuned, tmp_path / "home"))
    record = home / "tuned" / "training" / "recipe.json"
    record.write_text(record.read_text().replace(str(tuned), str(home)))
    monkeypatch.chdir(tmp_path)
    said = resume(home, start="home/m")
    assert "on the new data (5 pairs): BLEU " in said
    assert "on the old data (5 pairs): BLEU " in said
    with pytest.raises(InputError, match=r"train\.start was m, now home/tuned"):
        resume(home, start="home/tuned")


def test_without_the_model_before_what_was_trained_is_kept_and_it_is_said(tuned, tmp_path, monkeypatch):
    home = Path(shutil.copytree(tuned, tmp_path / "home"))
    record = home / "tuned" / "training" / "recipe.json"
    record.write_text(record.read_text().replace(str(tuned), str(home)))
    shutil.rmtree(home / "m")
    monkeypatch.chdir(tmp_path)
    assert "what it gained and forgot is not measured: m, the model before, is not here any more" in resume(home)


def test_missing_files_are_asked_for(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(home / "data")
    record = home / "m" / "training" / "recipe.json"
    record.write_text(record.read_text().replace('"place": "', '"place": "/gone'))
    said = refused(home)
    assert "data/train.src is missing; this training started with it. If it is elsewhere now, name it: --train FILE …" in said
    assert "--valid FILE …" in said
