"""Settings that would never end, or that the system refuses, are refused with their range; so are odd values in recipes."""

import os
import random
from contextlib import suppress

import numpy as np
import pytest

from undivided.config import BatchesConfig, CorpusFiles, Recipe, SearchConfig, build_recipe
from undivided.config.yaml_file import read_yaml
from undivided.core.errors import InputError
from undivided.data.batches import BatchStream


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: !!bool foo\n", "line 1: a recipe has no tags (!!bool)"),
        ("a: !!timestamp foo\n", "no tags (!!timestamp)"),
        ('a:\n  b: !!int ""\n', "line 2: a recipe has no tags (!!int)"),
        ('a: !!float ""\n', "no tags (!!float)"),
        ("a: !!set {x, y}\n", "no tags (!!set)"),
        ("a: !!binary aGk=\n", "no tags (!!binary)"),
        ("a: !!omap [x: 1]\n", "no tags (!!omap)"),
        ("!!map {a: 1}\n", "no tags (!!map)"),
        ("a: ! x\n", "no tags (!)"),
        ("a: !own x\n", "no tags (!own)"),
        ("!!str a: x\n", "no tags (!!str)"),
    ],
)
def test_tags_are_refused(tmp_path, text, said):
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_yaml(tmp_path / "r.yaml")
    assert said in str(caught.value)
    assert str(tmp_path / "r.yaml") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('data: {train: [{source: "a\\0b", target: x}]}', "NUL character"),
        ('train: {out: "a\\0b"}', "train.out: 'a\\x00b' holds a NUL"),
        ('train: {out: "a\\ud800b"}', "not valid Unicode"),
        ("data: {train: [{source: a, target: b, weight: .inf}]}", "expected a finite number, got inf"),
        ("data: {train: [{source: a, target: b, weight: .nan}]}", "expected a finite number, got nan"),
        ("data: {train: [{source: a, target: b, weight: 1e30}]}", "more than 10000"),
        (f"data: {{train: [{{source: a, target: b, weight: 1{'0' * 400}}}]}}", "expected a finite number"),
        ("train: {rate: .inf}", "train.rate: expected a finite number"),
        ("train: {threads: 100000}", "train.threads: 100000 is more than 1024"),
        ("search: {temperature: .inf}", "search.temperature: expected a finite number"),
        ("search: {temperature: 1e6}", "more than 1000"),
        ("search: {top_k: 99999999999}", "not below"),
        ("train: {validate_beam: 100000}", "not below 1001"),
    ],
)
def test_values_out_of_range_are_named(tmp_path, text, said):
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        build_recipe(read_yaml(tmp_path / "r.yaml"))
    assert said in str(caught.value)


def test_no_recipe_ends_in_a_traceback(tmp_path):
    """Recipes of random odd parts are read or refused with an `InputError`."""
    rng, path = random.Random(1), tmp_path / "r.yaml"
    odd = [
        *(
            "!!bool foo",
            "!!int ''",
            "2001-99-99",
            "0x_",
            "0b_",
            ".inf",
            "-.nan",
            "1:99:99",
            "=",
            "<<",
            "~",
            "''",
            '"\\0"',
            "[",
            "{",
        ),
        *("? [a]", "- x", "!!python/name:os", "&a x", "*a", "%YAML 9.9", "---", "...", "|", ">", "\t", "1e999", '"\\udfff"', "no"),
        *("{? {a: b} : c}", "<<: {rate: 1}", "9" * 5000, "2001-01-01 99:00:00", "0o8", "\ufeff", "_", "1__0", "-", ".", "[[], {}]"),
    ]
    keys = ["data", "train", "rate", "out", "model", "d_model", "source", "weight", "search", "tokens", "<<", "=", "?", "1", "~"]
    for _ in range(400):
        lines = [f"{'  ' * rng.randrange(3)}{rng.choice(keys)}: {rng.choice(odd)}" for _ in range(rng.randrange(1, 5))]
        path.write_text("\n".join(lines), encoding="utf-8")
        with suppress(InputError):
            assert isinstance(build_recipe(read_yaml(path)), Recipe)


class _Corpus:
    """Ten pairs that all have ten tokens."""

    corpora = (10,)
    draws = staticmethod(lambda places, epoch: places)
    lengths = staticmethod(lambda places: (np.full(len(places), 10), np.full(len(places), 10)))

    def __init__(self, weight):
        self.weights = [weight]


def test_the_largest_weight_is_quick():
    weight = next(item for item in CorpusFiles.__dataclass_fields__.values() if item.name == "weight").metadata["at_most"]
    stream = BatchStream(_Corpus(weight), BatchesConfig(pool=2000), seed=1)
    places = np.concatenate(stream.pool_plans(0, 0))
    assert len(places) == 2000
    assert set(places.tolist()) == set(range(10))


def test_search_flags_have_ranges(run, tmp_path):
    (tmp_path / "a").write_text("x\n")
    ran = run("translate", tmp_path, tmp_path / "a", "--sample", "--temperature", "inf")
    assert (ran.code, ran.out) == (2, "")
    assert "--temperature: expected a finite number, got 'inf'" in ran.err
    assert SearchConfig().temperature == 1.0


def test_threads_and_workers_have_ranges(run, model, tmp_path):
    (tmp_path / "a").write_text("x\n")
    for threads, said in (("100000", "threads: 100000 is more than 1024"), ("-1", "threads: -1 is less than 0")):
        for more in ([], ["--workers", "1", "-o", tmp_path / "o", "--engine", "torch"]):
            ran = run("translate", model, tmp_path / "a", "--threads", threads, *more)
            assert (ran.code, ran.out) == (2, "")
            assert said in ran.err
    most = max(16, 4 * (os.cpu_count() or 1))
    ran = run("translate", model, tmp_path / "a", "-o", tmp_path / "o", "--engine", "torch", "--workers", most + 1)
    assert ran.code == 2
    assert f"--workers: {most + 1} is more than {most}, for " in ran.err
    ran = run("translate", model, tmp_path / "a", "-o", tmp_path / "o", "--engine", "torch", "--workers", 99999, "--ray", "local")
    assert ran.code == 2
    assert "--workers: 99999 is more than 4096" in ran.err
