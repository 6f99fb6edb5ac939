"""Our engine of 8 bits: its products, its layers and its search against PyTorch with the same rounding, and when it is chosen."""

import dataclasses
import json
import shutil
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from samples import sentences
from undivided.artifact import Artifact, save_artifact
from undivided.config import ModelConfig, Recipe, SearchConfig
from undivided.core.cache import cache_folder
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.ids import EOS
from undivided.inference.engines import int8
from undivided.inference.engines.choice import choose_engine
from undivided.inference.engines.contract import batch_by_length
from undivided.inference.engines.copies import UnsupportedModel, compare_on_samples, mean_difference, sample_rows
from undivided.inference.engines.int8 import Int8Engine, check_supported
from undivided.inference.engines.int8_convert import make_arrays
from undivided.inference.engines.int8_model import Holder, Int8Model, Past, multiply, pack, works, write_arrays
from undivided.inference.hypothesis import NotFinite
from undivided.inference.search import search
from undivided.inference.translator import Translator
from undivided.models import make_model
from undivided.nn import backend

pytestmark = pytest.mark.skipif(not works(), reason="this processor has no AVX-512 VNNI, or there are no kernels")

SMALL = ModelConfig(d_model=64, d_ff=72, n_heads=4, encoder_layers=2, decoder_layers=2, dropout=0.0, max_positions=400)
VARIATIONS = {
    "post-norm, the paper": {},
    "pre-norm": {"norm": "pre"},
    "sinusoids in halves": {"positions": "halves"},
    "learned positions": {"positions": "learned"},
    "no positions": {"positions": "none"},
    "biases": {"attention_bias": True, "output_bias": True},
    "swish": {"activation": "swish"},
    "no tying": {"tie": "none"},
    "wide heads": {"n_heads": 1},
    "recurrent decoder": {"decoder_self": "ssru"},
    "recurrent decoder, pre-norm": {"decoder_self": "ssru", "norm": "pre", "positions": "marian"},
    "more layers in the encoder": {"encoder_layers": 3, "decoder_layers": 1},
}


def round_to_8_bits(x):
    """What 8 bits keep of each row: its largest value becomes 127."""
    scale = x.abs().amax(dim=-1, keepdim=True) / 127
    return torch.where(scale > 0, (x / scale).round(), x) * scale


def rounded_linear(x, weight, bias=None, *, exact=False):
    return F.linear(round_to_8_bits(x), round_to_8_bits(weight), bias)


@pytest.fixture
def rounded(monkeypatch):
    """PyTorch whose products are rounded as ours are."""
    monkeypatch.setattr(backend, "linear", rounded_linear)
    monkeypatch.setattr(
        backend,
        "feed_forward",
        lambda x, inner, outer, dropout: outer(F.relu(inner(x))),
    )


def untrained(translator: Translator, config: ModelConfig) -> Artifact:
    """A model with sharp random weights around the tokenizer of the test model."""
    tokenizer = translator.artifact.tokenizer
    torch.manual_seed(3)
    model = make_model(config, len(tokenizer.source), len(tokenizer.target)).eval()
    with torch.no_grad():
        model.output_weight.mul_(3.0)
        if model.output_bias is not None:
            model.output_bias.normal_()
    recipe = dataclasses.replace(translator.artifact.recipe, model=config)
    assert isinstance(recipe, Recipe)
    return Artifact(recipe, tokenizer, model)


def engine_of(artifact: Artifact, home, threads: int = 1) -> Int8Engine:
    home.mkdir(exist_ok=True)
    write_arrays(home, *make_arrays(artifact))
    return Int8Engine(home, artifact, threads)


@pytest.mark.parametrize("shape", [(1, 64, 64), (3, 50, 70), (4, 512, 96), (7, 4, 1), (13, 33, 129), (70, 100, 200)])
@pytest.mark.parametrize("biased", [False, True])
def test_a_product_is_that_of_rounded_factors(shape, biased):
    rows, depth, outputs = shape
    torch.manual_seed(rows)
    x, weight, bias = torch.randn(rows, depth), torch.randn(outputs, depth), torch.randn(outputs)
    arrays = pack(weight.numpy()) | ({"bias": bias.numpy()} if biased else {})
    found = multiply(x.numpy(), Holder(arrays).product(""))
    expected = F.linear(round_to_8_bits(x).double(), round_to_8_bits(weight).double(), bias.double() if biased else None)
    # A value half-way between two bytes may be rounded either way, since the scale itself is rounded.
    assert np.abs(found - expected.numpy()).max() < 0.02 * depth**0.5
    assert np.abs(found - expected.numpy()).mean() < 1e-3


def test_every_row_is_what_it_is_alone():
    torch.manual_seed(1)
    x, weight = torch.randn(23, 128).numpy(), Holder(pack(torch.randn(150, 128).numpy())).product("")
    together = multiply(x, weight)
    for row in range(23):
        assert (multiply(np.ascontiguousarray(x[row : row + 1]), weight)[0] == together[row]).all()


def test_zeros_are_zeros_and_what_is_no_number_stays_none():
    weight = Holder(pack(np.ones((5, 8), dtype=np.float32))).product("")
    rows = np.ones((3, 8), dtype=np.float32)
    rows[0], rows[1, 3] = 0, np.nan
    found = multiply(rows, weight)
    assert (found[0] == 0).all()
    assert np.isnan(found[1]).all()
    assert found[2] == pytest.approx(8.0, rel=0.01)


def test_rows_that_do_not_fit_are_refused():
    weight = Holder(pack(np.ones((5, 8), dtype=np.float32))).product("")
    for wrong in (np.ones((2, 9), np.float32), np.ones((2, 8)), np.ones((8, 2), np.float32).T):
        with pytest.raises(ValueError, match="a product needs"):
            multiply(wrong, weight)


@pytest.mark.parametrize("changes", VARIATIONS.values(), ids=VARIATIONS)
@pytest.mark.usefixtures("rounded")
def test_every_variation_computes_what_pytorch_computes_with_the_same_rounding(translator, tmp_path, changes):
    artifact = untrained(translator, dataclasses.replace(SMALL, **changes))
    right, ours = compare_on_samples(engine_of(artifact, tmp_path / "m"), artifact)
    assert mean_difference(right, ours) < 0.02
    assert max(abs(a - b) for one, other in zip(right, ours, strict=True) for a, b in zip(one, other, strict=True)) < 0.3


@pytest.mark.parametrize("changes", VARIATIONS.values(), ids=VARIATIONS)
def test_every_variation_is_near_the_reference(translator, tmp_path, changes):
    artifact = untrained(translator, dataclasses.replace(SMALL, **changes))
    assert mean_difference(*compare_on_samples(engine_of(artifact, tmp_path / "m"), artifact)) < 0.15


@pytest.fixture(scope="module")
def engine(translator, tmp_path_factory):
    """The trained model of the tests."""
    return engine_of(translator.artifact, tmp_path_factory.mktemp("int8") / "m")


@pytest.fixture(scope="module")
def rows(translator):
    return translator.artifact.tokenizer.source.encode([source for source, _ in sentences(50, seed=5)])


SEARCHES = [
    SearchConfig(beam_size=1),
    SearchConfig(beam_size=4, n_best=4),
    SearchConfig(beam_size=3, n_best=2, max_extra=2),
    SearchConfig(beam_size=4, length_penalty=0.0),
    SearchConfig(beam_size=4, n_best=3, length_norm="length", length_penalty=1.0),
    SearchConfig(beam_size=40),
    SearchConfig(beam_size=4, n_best=2, no_repeat_ngram=1),
]


@pytest.mark.parametrize("config", SEARCHES, ids=str)
def test_the_search_is_the_search_of_the_reference(engine, translator, rows, config, rounded):
    """With the same rounding: nearly every hypothesis is the same, with nearly the same score."""
    ours = dict(engine.search(rows, config, [[]] * len(rows), range(len(rows))))
    theirs = search(translator.artifact.model, rows, config, torch.device("cpu"))
    same = [place for place, found in enumerate(theirs) if [each.tokens for each in found] == [each.tokens for each in ours[place]]]
    assert len(same) >= len(rows) - 3
    for place in same:
        for one, other in zip(theirs[place], ours[place], strict=True):
            assert one.finished == other.finished
            assert one.score == pytest.approx(other.score, abs=0.05)


def test_translations_begin_with_their_prefixes(engine, translator, rows, rounded):
    config = SearchConfig(beam_size=4, n_best=2)
    prefixes = [[] if place % 3 == 0 else found[0].tokens[1 : 1 + place % 4] for place, found in enumerate(
        search(translator.artifact.model, rows, config, torch.device("cpu")))]  # fmt: skip
    ours = dict(engine.search(rows, config, prefixes, range(len(rows))))
    theirs = search(translator.artifact.model, rows, config, torch.device("cpu"), prefixes)
    assert all(each.tokens[: len(prefixes[place])] == list(prefixes[place]) for place in ours for each in ours[place])
    assert sum(ours[place][0].tokens == found[0].tokens for place, found in enumerate(theirs)) >= len(rows) - 3


def test_neither_batch_nor_threads_change_anything(engine, translator, rows, tmp_path):
    config = SearchConfig(beam_size=4, n_best=2)
    alone = [next(iter(engine.search([row], config, [[]], [0])))[1] for row in rows]
    for threads in (1, 3):
        several = dict(
            engine_of(translator.artifact, tmp_path / "m", threads).search(rows, config, [[]] * len(rows), range(len(rows)))
        )
        assert [several[place] for place in range(len(rows))] == alone


def test_of_two_searches_at_once_each_has_larger_batches_and_the_same_result(translator, tmp_path, rows, monkeypatch):
    planned = []

    def noted(lengths, beams, workers):
        planned.append(workers)
        return batch_by_length(lengths, beams, workers)

    monkeypatch.setattr(int8, "batch_by_length", noted)
    engine = engine_of(translator.artifact, tmp_path / "m", threads=2)
    config = SearchConfig(beam_size=2)
    nothing = [[] for _ in rows]
    alone = dict(engine.search(rows, config, nothing, range(len(rows))))
    first = engine.search(rows, config, nothing, range(len(rows)))
    found = dict([next(first)])
    beside = dict(engine.search(rows, config, nothing, range(len(rows))))
    found |= dict(first)
    assert planned == [2, 2, 1]
    assert alone == beside == found
    dict(engine.search(rows, config, nothing, range(len(rows))))
    assert planned[-1] == 2


def test_with_a_shortlist_only_likely_subwords_are_weighed(engine, rows):
    """What is weighed has the logits that it has among all."""
    states = np.random.default_rng(1).normal(size=(5, engine.model.decoder.width)).astype(np.float32)
    whole = multiply(states, engine.model.output.product)
    tokens = np.unique(np.random.default_rng(2).integers(EOS, whole.shape[1], 40))
    assert (multiply(states, engine.model.narrow(tokens).product) == whole[:, tokens]).all()
    shortlist = engine.artifact.shortlist
    assert engine.has_shortlist == (shortlist is not None)
    likely = set(shortlist.common.tolist()) | set(shortlist.likely[rows[0]].ravel().tolist()) | set(rows[0])
    found = dict(engine.search(rows[:1], SearchConfig(beam_size=4, n_best=4, shortlist=True), [[]], [0]))
    assert all(set(each.tokens) <= likely for each in found[0])
    assert found[0][0].tokens == dict(engine.search(rows[:1], SearchConfig(beam_size=4, n_best=4), [[]], [0]))[0][0].tokens


def test_what_it_cannot_do_pytorch_does(engine):
    sources = sample_rows(len(engine.artifact.tokenizer.source), 2, 5)
    tasks = [
        (sources, SearchConfig(sample=True, seed=7), []),
        (sources, SearchConfig(beam_size=2, no_repeat_ngram=2), sources[0][:1]),
        (sources[:1], SearchConfig(beam_size=1, max_extra=5000), []),
    ]
    for rows, config, prefix in tasks:
        expected = list(engine.reference.search(rows, config, [prefix] * len(rows), range(len(rows))))
        assert list(engine.search(rows, config, [prefix] * len(rows), range(len(rows)))) == expected


def test_nothing_repeats_where_repetition_is_blocked(translator, tmp_path):
    """An untrained model repeats itself at once."""
    engine = engine_of(untrained(translator, SMALL), tmp_path / "m")
    sources = sample_rows(len(engine.artifact.tokenizer.source), 6, 5)

    def repeats(config):
        found = dict(engine.search(sources, config, [[]] * 6, range(6)))
        pairs = [list(pairwise(each.tokens)) for hypotheses in found.values() for each in hypotheses]
        assert all(pairs)
        return sum(len(each) - len(set(each)) for each in pairs)

    free = SearchConfig(beam_size=3, n_best=3, max_extra=30)
    assert repeats(free) > 0
    assert repeats(dataclasses.replace(free, no_repeat_ngram=2)) == 0


def test_a_search_that_is_given_up_leaves_the_engine_idle(engine, rows):
    found = engine.search(rows * 20, SearchConfig(beam_size=4), [[]] * len(rows) * 20, range(len(rows) * 20))
    next(found)
    found.close()
    assert engine._pool._work_queue.empty()


def test_numbers_that_are_not_finite_are_refused(translator, tmp_path):
    artifact = untrained(translator, SMALL)
    with torch.no_grad():
        artifact.model.encoder[0].feed_forward.outer.weight[3] = float("nan")
    broken = engine_of(artifact, tmp_path / "m")
    with pytest.raises(NotFinite):
        list(broken.search([[5, 6, EOS]], SearchConfig(beam_size=2), [[]], [0]))


def test_places_outside_the_past_are_refused(engine):
    """C does not trust what it is told about rows and lengths."""
    model: Int8Model = engine.model
    memory, past = model.encode([[5, EOS], [6, 7, EOS]]), Past()
    owners = np.array([0, 1])
    model.step(past, memory, owners, np.array([2, 2]))
    past.places[1, 0] = 2
    with pytest.raises(IndexError, match="int8_step"):
        model.step(past, memory, owners, np.array([5, 5]))
    past.places[1, 0] = 1
    memory.lengths[1] = 4
    with pytest.raises(IndexError, match="int8_step"):
        model.step(past, memory, owners, np.array([5, 5]))
    with pytest.raises(IndexError):
        model.step(Past(), memory, owners, np.array([5, 10**6]))


class Said(Console):
    """Remembers what was said."""

    def __init__(self):
        super().__init__(quiet=True)
        self.lines = []

    def say(self, text):
        self.lines.append(text)


@pytest.fixture
def folder(model, tmp_path, monkeypatch):
    """A model with a cache of its own, so small that 8 bits are few: it is allowed more."""
    monkeypatch.setattr(int8, "TOLERANCE", 1.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache_folder.cache_clear()
    yield shutil.copytree(model, tmp_path / "m", ignore=shutil.ignore_patterns("training"))
    monkeypatch.undo()
    cache_folder.cache_clear()


def test_auto_takes_it_and_keeps_what_it_packed(folder, tmp_path):
    first, second = Said(), Said()
    assert Translator(folder, threads=1, console=first).engine.name == "int8"
    assert first.lines == ["converting the model to 8 bits (once) …"]
    lines = [source for source, _ in sentences(60, seed=11)]
    translator = Translator(folder, threads=1, console=second)
    assert second.lines == []
    exact = Translator(folder, threads=1, engine="torch")
    same = sum(one.text == other.text for one, other in zip(translator.stream(lines), exact.stream(lines), strict=True))
    assert same >= 54
    (layout,) = (tmp_path / "cache" / "undivided" / "int8").glob("*/int8/layout.json")
    assert json.loads(layout.read_text())["facts"]["width"] == translator.artifact.recipe.model.d_model


def test_a_damaged_copy_is_made_anew(folder, tmp_path):
    Translator(folder, threads=1)
    (arrays,) = (tmp_path / "cache" / "undivided" / "int8").glob("*/int8/arrays.bin")
    whole = arrays.read_bytes()
    arrays.write_bytes(whole[:-9] + b"123456789")
    said = Said()
    Translator(folder, threads=1, console=said)
    assert said.lines == ["converting the model to 8 bits (once) …"]
    assert arrays.read_bytes() == whole


def test_it_translates_without_torch(folder, python):
    Translator(folder, threads=1)
    code = """
import sys
import undivided.inference.engines.int8 as int8
int8.TOLERANCE = 1.0
from undivided.inference.translator import Translator
translator = Translator(sys.argv[1], threads=1)
print(translator.engine.name, bool(translator.translate("The dog sees a tree today.")), "torch" in sys.modules)
"""
    assert python(code, str(folder)).split() == ["int8", "True", "False"]


def test_what_stands_in_the_way_is_said_all_at_once(translator, folder):
    changes = {"window": 4, "join_positions": "concatenate", "n_heads": 8, "activation": "gelu"}
    artifact = untrained(translator, dataclasses.replace(SMALL, **changes))
    with pytest.raises(UnsupportedModel) as why:
        check_supported(artifact)
    assert all(word in str(why.value) for word in ("model.window", "join_positions", "multiple of 16", "gelu"))
    with pytest.raises(InputError, match=r"the engine int8 cannot run this model: .*model\.window"):
        choose_engine("int8", artifact, folder, 1, Said())


def test_a_model_that_loses_too_much_is_not_run_in_8_bits(folder, monkeypatch):
    monkeypatch.setattr(int8, "TOLERANCE", -1.0)
    assert Translator(folder, threads=1, console=Said()).engine.name != "int8"
    with pytest.raises(InputError, match="in 8 bits its log-probabilities differ by"):
        Translator(folder, threads=1, engine="int8")


def test_where_the_processor_lacks_the_instructions_another_engine_serves(folder, monkeypatch):
    monkeypatch.setattr(int8, "works", lambda: False)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    said = Said()
    assert Translator(folder, threads=1, console=said).engine.name == "torch"
    assert "AVX-512 VNNI" in said.lines[-1]
    assert "not installed" in said.lines[-1]


def test_a_saved_model_of_another_content_is_converted_again(folder, translator):
    Translator(folder, threads=1)
    save_artifact(untrained(translator, SMALL), folder)
    said = Said()
    Translator(folder, threads=1, console=said, engine="int8")
    assert said.lines == ["converting the model to 8 bits (once) …"]
