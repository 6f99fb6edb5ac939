"""`undivided corpus` without a network: what it writes, and what it refuses."""

import pytest

from undivided.cli.corpus import NAMES
from undivided.cli.demo import corpus as room

NAMED = "house tree window garden street river door table lamp roof wall bridge car boat hill"
WORDS = NAMED.split()
PAIRS = [
    (f"The {a} is near the {b} and the {c}.", f"La {a} está cerca de {b} y de {c}.")
    for a in WORDS
    for b in WORDS
    for c in WORDS
    if a != b != c
]


def test_names_are_those_of_the_origins():
    assert tuple(room.ORIGINS) == NAMES


def test_it_writes_parts_without_a_text_in_common_and_says_the_licence(run, tmp_path, monkeypatch):
    monkeypatch.setattr(room, "libreoffice_help", lambda target, scratch, console: iter(PAIRS))
    monkeypatch.setattr(room, "home_assistant", lambda *_: pytest.fail("not asked for"))
    ran = run("corpus", "office-help", "en-es", tmp_path / "out")
    assert ran.code == 0
    assert "MPL-2.0" in ran.err
    assert "MPL-2.0" in (tmp_path / "out" / "ORIGIN.txt").read_text(encoding="utf-8")
    parts = {}
    for part in ("train", "valid", "test"):
        sides = [(tmp_path / "out" / f"{part}.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "es")]
        parts[part] = list(zip(*sides, strict=True))
    assert sorted([*parts["train"], *parts["valid"], *parts["test"]]) == sorted(set(PAIRS))
    assert not set(parts["train"]) & set(parts["test"])
    assert run("corpus", "office-help", "en-es", tmp_path / "out").code == 2


def test_only_the_named_one_is_tried(run, tmp_path, monkeypatch):
    def missing(*_):
        raise room.Unavailable("no apt-get here")

    monkeypatch.setattr(room, "libreoffice_help", missing)
    monkeypatch.setattr(room, "home_assistant", lambda *_: pytest.fail("not asked for"))
    ran = run("corpus", "office-help", "en-de", tmp_path / "out")
    assert ran.code == 2
    assert "no apt-get here" in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("pair", ["de-en", "en", "en-", "english-german", "en-en", "en-../x"])
def test_other_pairs_are_refused(run, tmp_path, pair):
    ran = run("corpus", "office-help", pair, tmp_path / "out")
    assert ran.code == 2
    assert "such as en-de" in ran.err
