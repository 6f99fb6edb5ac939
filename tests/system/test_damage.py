"""`make prove-damage` in small: what it counts is so, and it would notice if it were not."""

import importlib.util
from pathlib import Path

import pytest

from undivided.core import manifest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "damage.py"


@pytest.fixture(scope="module")
def damage():
    spec = importlib.util.spec_from_file_location("damage", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trained(damage, tmp_path_factory):
    return damage.make_run(tmp_path_factory.mktemp("damage"))


def test_every_harm_is_refused_with_its_part(damage, trained, tmp_path):
    refused, faults = damage.prove(trained, tmp_path, count=80, seed=3)
    assert faults == []
    assert refused.total() == 80
    parts = {part for _, part, _ in refused}
    assert parts >= {"config.json", "model.safetensors", "subwords.model", "manifest.json", "state.json", "optimizer.safetensors"}


def test_a_harmed_card_changes_nothing(damage, trained, tmp_path):
    assert damage.card_is_free(trained, damage.targets(trained, tmp_path)[0], 3, 1) == 3


def test_a_harm_that_is_not_refused_would_be_told(damage, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "sha256_of", lambda path: "0" * 64)
    monkeypatch.setattr(
        manifest, "_read", lambda path: {"config.json": "0" * 64, "model.safetensors": "0" * 64, "subwords.model": "0" * 64}
    )
    monkeypatch.setattr(damage, "targets", lambda run, scratch, real=damage.targets: real(run, scratch)[:1])
    refused, faults = damage.prove(trained, tmp_path, count=10, seed=3)
    # Without sums only what cannot be read at all is noticed.
    assert len(faults) >= 7
    assert len(faults) + refused.total() == 10
