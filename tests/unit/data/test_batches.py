import itertools
import json
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from undivided.config import BatchesConfig, CorpusFiles, DataConfig, TokensConfig
from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS, PAD
from undivided.core.random import random_bits
from undivided.data import store as store_room
from undivided.data.batches import BatchStream, StreamPosition, budget_bounds, load_batch, make_batch, permute
from undivided.data.store import SampledStore, open_store, store_key
from undivided.data.subwords import Tokenizer


def lines(name: str, count: int) -> list[tuple[str, str]]:
    return [(f"{name} {'x ' * (n * 7 % 11)}number {n}", f"{name} {'y ' * (n * 5 % 13)}Nummer {n}") for n in range(count)]


def corpus(folder, name, count, weight=1.0) -> CorpusFiles:
    for side, at in (("src", 0), ("tgt", 1)):
        (folder / f"{name}.{side}").write_text("".join(f"{pair[at]}\n" for pair in lines(name, count)))
    return CorpusFiles(str(folder / f"{name}.src"), str(folder / f"{name}.tgt"), weight)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.learn(lambda: lines("a", 50) + lines("b", 50), TokensConfig(vocab_size=300), 100, seed=1)


@pytest.fixture
def store(tmp_path, tokenizer):
    return open_store(tmp_path, [corpus(tmp_path, "a", 97)], tokenizer, DataConfig())


def epoch_of(stream: BatchStream, epoch: int = 0) -> list[np.ndarray]:
    return [plan for pool in range(stream.pools) for plan in stream.pool_plans(epoch, pool)]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 15, 16, 17, 64, 65, 1000])
def test_shuffled_is_a_keyed_permutation(size):
    first, other = (permute(np.arange(size), size, 1, epoch) for epoch in (0, 1))
    assert sorted(first.tolist()) == list(range(size))
    assert sorted(other.tolist()) == list(range(size))
    assert size < 15 or first.tolist() != other.tolist()
    assert permute(np.arange(size)[::-1], size, 1, 0).tolist() == first[::-1].tolist()


def test_shuffled_is_not_nearly_the_identity():
    distance = np.abs(permute(np.arange(10_000), 10_000, 3) - np.arange(10_000)).mean()
    assert 3000 < distance < 3700  # of a random permutation: n / 3


def test_random_bits_are_fixed_for_ever():
    assert random_bits(2, 1, 2).tolist() == random_bits(3, 1, 2)[:2].tolist()
    assert random_bits(2, 1, 2).tolist() != random_bits(2, 2, 1).tolist()
    assert random_bits(2, 1, 2).tolist() == [15536253074962032655, 6691293194378860457]


@pytest.mark.parametrize("pool", [1, 10, 40, 1000])
@pytest.mark.parametrize("tokens", [1, 60, 500, 10_000])
def test_an_epoch_holds_every_pair_once(store, pool, tokens):
    stream = BatchStream(store, BatchesConfig(tokens=tokens, pool=pool), seed=1)
    for epoch in (0, 1):
        assert sorted(np.concatenate(epoch_of(stream, epoch)).tolist()) == list(range(97))


def test_epochs_and_seeds_differ(store):
    config = BatchesConfig(tokens=100)
    orders = [
        np.concatenate(epoch_of(BatchStream(store, config, seed), epoch)).tolist() for seed, epoch in ((1, 0), (1, 1), (2, 0))
    ]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_weights(tmp_path, tokenizer):
    corpora = [corpus(tmp_path, "a", 40, weight=2), corpus(tmp_path, "b", 30, weight=0.5), corpus(tmp_path, "c", 10, weight=0)]
    stream = BatchStream(open_store(tmp_path, corpora, tokenizer, DataConfig()), BatchesConfig(tokens=100, pool=17), seed=1)
    seen = np.bincount(np.concatenate(epoch_of(stream)), minlength=80)
    assert set(seen[:40].tolist()) == {2}
    assert sorted(seen[40:70].tolist()) == [0] * 15 + [1] * 15
    assert set(seen[70:].tolist()) == {0}
    other = np.bincount(np.concatenate(epoch_of(stream, 1)), minlength=80)
    assert other[40:70].tolist() != seen[40:70].tolist()


def test_weights_that_leave_nothing(tmp_path, tokenizer):
    store = open_store(tmp_path, [corpus(tmp_path, "a", 5, weight=0)], tokenizer, DataConfig())
    with pytest.raises(InputError, match="no pair"):
        BatchStream(store, BatchesConfig(), seed=1)


def test_batches_keep_the_budget_on_both_sides(store, tokenizer):
    for plan in epoch_of(BatchStream(store, BatchesConfig(tokens=120), seed=1)):
        batch = load_batch(store, plan)
        assert max(batch.src.numel(), batch.tgt_out.numel()) <= 120


def test_pairs_of_like_length_share_a_batch(store):
    """In a pool, targets of a batch are no longer than those of the next longer batch: hardly a place is padding."""
    stream = BatchStream(store, BatchesConfig(tokens=120, pool=1000), seed=1)
    targets = sorted((store.lengths(plan)[1] for plan in stream.pool_plans(0, 0)), key=lambda lengths: lengths.max())
    assert len(targets) > 10
    for shorter, longer in itertools.pairwise(targets):
        assert shorter.max() <= longer.min()


def test_batches_come_in_random_order(store):
    stream = BatchStream(store, BatchesConfig(tokens=120, pool=1000), seed=1)
    widths = [[int(store.lengths(plan)[1].max()) for plan in stream.pool_plans(epoch, 0)] for epoch in (0, 1)]
    assert all(each not in (sorted(each), sorted(each, reverse=True)) for each in widths)
    assert widths[0] != widths[1]
    # Neighbours are as far apart as in a random order, not as in a sorted one.
    spread = max(widths[0]) - min(widths[0])
    assert np.abs(np.diff(widths[0])).mean() > spread / 6


def test_budget_bounds_cover_everything_even_if_nothing_fits():
    widths = np.array([3, 3, 5, 9, 9])
    assert budget_bounds(widths, widths, 10) == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert budget_bounds(widths, widths, 15) == [(0, 3), (3, 4), (4, 5)]
    assert budget_bounds(widths, widths, 1) == [(n, n + 1) for n in range(5)]
    assert budget_bounds(np.array([]), np.array([]), 10) == []


@pytest.mark.parametrize("pool", [25, 1000])
def test_the_stream_goes_on_from_any_batch(store, pool):
    config = BatchesConfig(tokens=100, pool=pool)
    whole = BatchStream(store, config, seed=1)
    plans = whole.plans()
    taken = [next(plans) for _ in range(2 * len(epoch_of(whole)) + 3)]
    assert {place.epoch for _, place in taken} == {0, 1, 2}
    for at in range(0, len(taken) - 3, 5):
        again = BatchStream(store, config, seed=1, place=taken[at][1]).plans()
        for plan, place in taken[at + 1 : at + 4]:
            new_plan, new_place = next(again)
            assert new_place == place
            assert new_plan.tolist() == plan.tolist()


def test_the_order_is_the_same_in_another_process(store, python):
    code = (
        "import sys, json; from pathlib import Path; from undivided.config import BatchesConfig\n"
        "from undivided.data.batches import *\n"
        "stream = BatchStream(Store(Path(sys.argv[1]), (300, 300)), BatchesConfig(tokens=100, pool=30), 1)\n"
        "print(json.dumps([[p.tolist() for p in stream.pool_plans(e, n)] for e in (0, 3) for n in range(stream.pools)]))"
    )
    stream = BatchStream(store, BatchesConfig(tokens=100, pool=30), 1)
    here = [[plan.tolist() for plan in stream.pool_plans(epoch, pool)] for epoch in (0, 3) for pool in range(stream.pools)]
    assert json.loads(python(code, store.folder, PYTHONHASHSEED="123")) == here


def test_rows_come_back_as_text(store, tokenizer):
    places = np.array([96, 0, 5])
    assert tokenizer.source.decode([row.tolist() for row in store.rows(0, places)]) == [lines("a", 97)[n][0] for n in places]
    assert tokenizer.target.decode([row.tolist() for row in store.rows(1, places)]) == [lines("a", 97)[n][1] for n in places]
    assert store.lengths(places)[0].tolist() == [len(row) for row in store.rows(0, places)]


def test_targets_are_shifted_right():
    batch = make_batch([[5, EOS], [5, 6, EOS]], [[7, 8, EOS], [9, EOS]])
    assert batch.src.tolist() == [[5, EOS, PAD], [5, 6, EOS]]
    assert batch.tgt_out.tolist() == [[7, 8, EOS], [9, EOS, PAD]]
    assert batch.tgt_in.tolist() == [[BOS, 7, 8], [BOS, 9, PAD]]
    assert batch.src_mask.tolist() == [[True, True, False], [True, True, True]]
    halves = batch.split()
    assert torch.equal(torch.cat([half.tgt_in for half in halves]), batch.tgt_in)


def test_subword_sampling_is_a_function_of_seed_epoch_and_pair(store, tokenizer):
    def sampled(seed):
        return SampledStore(store, tokenizer, TokensConfig(dropout=0.3), seed)

    one, pairs = sampled(1), np.arange(20)
    first, again, later, other = (
        load_batch(texts, texts.draws(pairs, epoch)).src for texts, epoch in ((one, 0), (sampled(1), 0), (one, 1), (sampled(2), 0))
    )
    assert torch.equal(first, again)
    assert first.tolist() != later.tolist()
    assert first.tolist() != other.tolist()
    assert tokenizer.source.decode(first.tolist()) == [lines("a", 20)[n][0] for n in range(20)]
    alone = one.rows(1, one.draws(np.array([7]), 3))
    assert one.rows(1, one.draws(pairs, 3))[7] == alone[0]
    assert one.rows(0, one.draws(pairs, 3)) != one.rows(1, one.draws(pairs, 3))


def test_batches_are_made_by_the_lengths_of_the_sampled_subwords(store, tokenizer):
    texts = SampledStore(store, tokenizer, TokensConfig(dropout=0.3), seed=1)
    stream = BatchStream(texts, BatchesConfig(tokens=120), seed=1)
    for epoch in (0, 2):
        plans = epoch_of(stream, epoch)
        assert sorted(np.concatenate(plans).tolist()) == texts.draws(np.arange(len(store)), epoch).tolist()
        for plan in plans:
            batch = load_batch(texts, plan)
            assert max(batch.src.numel(), batch.tgt_out.numel()) <= 120


def test_pairs_over_the_length_limit_are_reported(tmp_path, tokenizer):
    files = corpus(tmp_path, "a", 50)
    lengths = [max(len(row) for row in tokenizer.source.encode(list(pair))) for pair in lines("a", 50)]
    store = open_store(tmp_path, [files], tokenizer, DataConfig(max_length=12))
    over = sum(length > 12 for length in lengths)
    assert 0 < over < 50
    assert (store.over_length, len(store)) == ([over], 50 - over)
    with pytest.raises(InputError, match="more than 2 subwords"):
        open_store(tmp_path, [files], tokenizer, DataConfig(max_length=2))


def test_an_unchanged_store_is_reused(tmp_path, tokenizer):
    files = corpus(tmp_path, "a", 20)
    counted: list[int] = []
    first = open_store(tmp_path, [files], tokenizer, DataConfig(), counted.append)
    again = open_store(tmp_path, [files], tokenizer, DataConfig(), counted.append)
    assert counted == [20]
    assert first.folder == again.folder
    assert first.findings == again.findings


def test_a_change_makes_another_store(tmp_path, tokenizer):
    a, b = corpus(tmp_path, "a", 20, weight=2), corpus(tmp_path, "b", 10)
    other = Tokenizer.learn(lambda: lines("a", 50), TokensConfig(vocab_size=290), 50, seed=1)
    separate = Tokenizer(tokenizer.source, other.source)
    keys = [
        store_key([a, b], tokenizer, DataConfig()),
        store_key([b, a], tokenizer, DataConfig()),
        store_key([CorpusFiles(b.source, b.target, 2), CorpusFiles(a.source, a.target)], tokenizer, DataConfig()),
        store_key([a], tokenizer, DataConfig()),
        store_key([CorpusFiles(a.target, a.source, 2)], tokenizer, DataConfig()),
        store_key([a], other, DataConfig()),
        store_key([a], separate, DataConfig()),
        store_key([a], tokenizer, DataConfig(max_length=99)),
        store_key([a], tokenizer, DataConfig(max_chars=99)),
    ]
    corpus(tmp_path, "a", 21)
    keys.append(store_key([a], tokenizer, DataConfig()))
    same = [(x, y) for x in range(len(keys)) for y in range(x) if keys[x] == keys[y]]
    assert same == []


def test_a_failed_build_leaves_nothing(tmp_path, tokenizer, monkeypatch):
    files = corpus(tmp_path, "a", 20)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(
        store_room.json, "dumps", lambda facts, **more: fail() if "dtype" in facts else json.JSONEncoder(**more).encode(facts)
    )
    with pytest.raises(OSError, match="No space"):
        open_store(tmp_path, [files], tokenizer, DataConfig())
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_killed_build_does_not_look_finished(tmp_path, tokenizer):
    files = corpus(tmp_path, "a", 20)
    tokenizer.save(tmp_path)
    code = (
        "import sys, os, signal; from pathlib import Path; from undivided.data.store import *\n"
        "home = Path(sys.argv[1]); files = CorpusFiles(str(home / 'a.src'), str(home / 'a.tgt'))\n"
        "open_store(home, [files], Tokenizer.load(home), DataConfig(), lambda n: os.kill(os.getpid(), signal.SIGKILL))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -signal.SIGKILL
    counted: list[int] = []
    assert len(open_store(tmp_path, [files], tokenizer, DataConfig(), counted.append)) == 20
    assert counted == [20]


def test_ids_take_two_bytes_or_four(tmp_path, tokenizer, monkeypatch):
    files = corpus(tmp_path, "a", 20)
    small = open_store(tmp_path / "small", [files], tokenizer, DataConfig())
    monkeypatch.setattr(type(tokenizer.source), "__len__", lambda self: (1 << 16) + 1)
    large = open_store(tmp_path / "large", [files], tokenizer, DataConfig())
    everything = np.arange(20)
    assert [row.dtype for row in small.rows(0, everything)[:1] + large.rows(0, everything)[:1]] == [np.uint16, np.uint32]
    assert [row.tolist() for row in small.rows(1, everything)] == [row.tolist() for row in large.rows(1, everything)]


def test_place_is_plain_data():
    assert StreamPosition(**json.loads(json.dumps(vars(StreamPosition(3, 2, 1))))) == StreamPosition(3, 2, 1)
