"""Datasets of Hugging Face to train from, made here: nothing is downloaded."""

import sys
from itertools import islice

import pytest

from samples import sentences, tiny_recipe, write_pairs
from undivided import Translator
from undivided.config import CorpusFiles
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.formats import DocumentOptions
from undivided.formats.datasets import parse_address
from undivided.formats.pairs import document_files, read_document_pairs
from undivided.training.loop import train

PAIRS = [("A dog.", "Ein Hund."), ("Two cats.", "Zwei Katzen."), ("", "Leer."), ("Line\none", "Zeile\neins")]
CLEAN = [("A dog.", "Ein Hund."), ("Two cats.", "Zwei Katzen."), ("Line", "Zeile"), ("one", "eins")]


@pytest.fixture
def datasets(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")


def nested(datasets):
    return datasets.Dataset.from_list([{"id": str(n), "translation": {"en": a, "de": b}} for n, (a, b) in enumerate(PAIRS)])


def test_saved_and_parquet_nested_and_flat(datasets, tmp_path):
    nested(datasets).save_to_disk(tmp_path / "saved")
    flat = datasets.Dataset.from_list([{"source": a, "target": b, "score": 1.0} for a, b in PAIRS])
    flat.to_parquet(tmp_path / "flat.parquet")
    datasets.DatasetDict(test=nested(datasets)).save_to_disk(tmp_path / "both")
    for name, languages in (("saved", ("en", "de")), ("flat.parquet", ("", "")), ("both:test", ("en", "de"))):
        found = read_document_pairs(f"dataset:{tmp_path / name}")
        assert (found.source_lang, found.target_lang) == languages
        assert list(found.pairs) == CLEAN
    turned = read_document_pairs(f"dataset:{tmp_path / 'saved'}", options=DocumentOptions("de", "en"))
    assert next(turned.pairs) == CLEAN[0][::-1]
    assert document_files(f"dataset:{tmp_path / 'flat.parquet'}") == [tmp_path / "flat.parquet"]


@pytest.mark.parametrize(
    ("rows", "name", "says"),
    [
        ([{"en": "a", "de": "b", "fr": "c"}], "saved", "has en, de, fr; say which languages"),
        ([{"translation": {"en": "a", "de": "b"}}], "saved:nowhere", "has no split 'nowhere'; there are: train"),
        ([{"score": 1}], "saved", "has no texts"),
    ],
)
def test_what_is_wrong_is_said(datasets, tmp_path, rows, name, says):
    datasets.DatasetDict(train=datasets.Dataset.from_list(rows)).save_to_disk(tmp_path / "saved")
    with pytest.raises(InputError, match=says):
        read_document_pairs(f"dataset:{tmp_path / name}")


def test_what_cannot_be_opened_is_one_line(datasets, tmp_path):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(InputError, match=r"broken.parquet: .*") as raised:
        list(islice(read_document_pairs(f"dataset:{tmp_path / 'broken.parquet'}").pairs, 1))
    assert "\n" not in str(raised.value)


def test_a_model_learns_from_a_dataset(datasets, tmp_path):
    pairs = sentences(200)
    rows = [{"translation": {"en": source, "de": target}} for source, target in pairs]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
    recipe = tiny_recipe(tmp_path / "model", write_pairs(tmp_path, "train", pairs))
    recipe["data"] = {"train": [[f"dataset:{tmp_path / 'saved'}"]]}
    recipe["train"]["max_steps"] = 3
    train(recipe, Console(quiet=True))
    data = Translator(tmp_path / "model", threads=1).artifact.recipe.data
    assert (data.source_lang, data.target_lang) == ("en", "de")


def test_without_the_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install 'undivided\[datasets\]'"):
        read_document_pairs("dataset:somebody/something")


def test_addresses():
    assert parse_address("dataset:a/b")[1:] == ("a/b", "", "train")
    assert parse_address("dataset:a/b:valid")[1:] == ("a/b", "", "valid")
    assert parse_address("dataset:a/b:de-en:test")[1:] == ("a/b", "de-en", "test")
    for wrong in ("dataset:", "dataset:a:b:c:d"):
        with pytest.raises(InputError, match="expected dataset:NAME"):
            parse_address(wrong)
    assert CorpusFiles("dataset:a/b").is_document
    assert CorpusFiles("dataset:a/b").pairing_faults() == []
