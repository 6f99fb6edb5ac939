"""A damaged token store is noticed when it is opened, and built again; no id beyond the vocabulary reaches a model."""

import json
import random

import numpy as np
import pytest

from undivided.config import CorpusFiles, DataConfig, TokensConfig
from undivided.core.errors import InputError
from undivided.data import store as stores
from undivided.data.store import PARTS, Store, open_store
from undivided.data.subwords import Tokenizer

TEXT = [(f"a dog runs {number}", f"ein Hund {number} rennt") for number in range(60)]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.learn(lambda: TEXT, TokensConfig(vocab_size=290), len(TEXT), seed=1)


@pytest.fixture
def corpora(tmp_path):
    for side in (0, 1):
        (tmp_path / f"t.{side}").write_text("".join(f"{pair[side]}\n" for pair in TEXT))
    return [CorpusFiles(str(tmp_path / "t.0"), str(tmp_path / "t.1"))]


def contents(store):
    return [row.tolist() for side in (0, 1) for row in store.rows(side, np.arange(len(store)))]


def replace_digests(folder):
    """What somebody does who can compute digests."""
    facts = json.loads((folder / "store.json").read_text())
    del facts["seal"]
    facts["sha256"] = {part: stores._block_digests(folder / part) for part in PARTS}
    (folder / "store.json").write_text(json.dumps(facts | {"seal": stores._seal(facts)}))


@pytest.mark.parametrize("part", [*PARTS, "store.json"])
def test_every_flipped_bit_is_noticed(tmp_path, tokenizer, corpora, part, monkeypatch):
    monkeypatch.setattr(stores, "BLOCK", 256)
    good = open_store(tmp_path, corpora, tokenizer, DataConfig())
    wanted, path, rng = contents(good), good.folder / part, random.Random(1)
    whole = path.read_bytes()
    for _ in range(12):
        bit = rng.randrange(8 * len(whole))
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        warnings = []
        again = open_store(tmp_path, corpora, tokenizer, DataConfig(), warn=warnings.append)
        assert contents(again) == wanted
        assert len(warnings) == 1
        assert str(good.folder) in warnings[0]
        assert path.read_bytes() == whole


def test_zeroed_ids_are_noticed_and_named(tmp_path, tokenizer, corpora):
    path = open_store(tmp_path, corpora, tokenizer, DataConfig()).folder / "tgt.ids"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(InputError, match=r"tgt\.ids: damaged after byte 0 "):
        Store(path.parent, (290, 290))


def test_a_store_without_digests_is_built_again(tmp_path, tokenizer, corpora):
    store = open_store(tmp_path, corpora, tokenizer, DataConfig())
    facts = json.loads((store.folder / "store.json").read_text())
    (store.folder / "store.json").write_text(json.dumps({name: facts[name] for name in facts if name not in ("seal", "sha256")}))
    warnings = []
    assert contents(open_store(tmp_path, corpora, tokenizer, DataConfig(), warn=warnings.append)) == contents(store)
    assert "0.1.0" in warnings[0]


@pytest.mark.parametrize("side", [0, 1])
def test_ids_beyond_the_vocabulary_are_refused(tmp_path, tokenizer, corpora, side):
    store = open_store(tmp_path, corpora, tokenizer, DataConfig())
    path, size = store.folder / PARTS[2 * side], len(tokenizer.source)
    ids = np.fromfile(path, np.uint16)
    ids[7] = size
    # Through the memory map of a store that is already open, as when a disk fails later.
    np.memmap(path, np.uint16, "r+")[:] = ids
    with pytest.raises(InputError, match=rf"the id {size}, but the vocabulary has {size}"):
        store.rows(side, np.arange(5))
    replace_digests(store.folder)
    with pytest.raises(InputError, match=rf"the id {size}, but the vocabulary has {size}"):
        Store(store.folder, (size, size))


def test_ends_that_fall_are_refused(tmp_path, tokenizer, corpora):
    store = open_store(tmp_path, corpora, tokenizer, DataConfig())
    ends = np.fromfile(store.folder / "src.ends", np.int64)
    ends[3], ends[4] = ends[4], ends[3]
    ends.tofile(store.folder / "src.ends")
    replace_digests(store.folder)
    with pytest.raises(InputError, match="do not fit together"):
        Store(store.folder, (len(tokenizer.source),) * 2)
