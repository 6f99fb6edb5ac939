import json
import math

import pytest
import torch
import torch.nn.functional as F

from undivided.nn.attention import attention, window_mask
from undivided.paper.table1 import report as table1_report
from undivided.paper.table1.layers import (
    ADDITIVE,
    CONTIGUOUS,
    KINDS,
    SELF_ATTENTION,
    SEPARABLE,
    Shape,
    additive_attention,
    feed_forward_operations,
    restricted_attention,
)
from undivided.paper.table1.measure import (
    Timing,
    cache_sizes,
    chain_length,
    crossover,
    fit_exponents,
    path_length,
    peak_memory,
    time_call,
    time_layers,
)
from undivided.paper.table1.report import _additive, _crossing, _exponent_notes, write_report
from undivided.paper.table1.table import AttentionComparison, Measurements, Setup, crossovers, exponents

NAMES = [kind.name for kind in KINDS]


@pytest.mark.parametrize("n", [1, 2, 7, 16, 33])
@pytest.mark.parametrize("r", [2, 4, 5, 8, 64])
def test_restricted_attention_is_attention_under_a_window(n, r):
    query, key, value = torch.randn(3, 2, n, 6)
    wanted, _ = attention(query, key, value, window_mask(n, r))
    assert torch.allclose(restricted_attention(query, key, value, r), wanted, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_layers_keep_the_shape_and_are_what_they_are_called(kind):
    shape = Shape(9, 6, 3, 4)
    layer = kind.make(shape, torch.Generator().manual_seed(1))
    x = torch.randn(2, 9, 6)
    assert layer(x).shape == x.shape
    changed = x.clone()
    changed[:, 0] += 1.0
    touched = (layer(changed) != layer(x)).any(dim=-1)[0].nonzero().flatten().tolist()
    reach = {"self-attention": 9, "recurrent": 9, "self-attention (restricted)": 3}.get(kind.name, 2)
    assert touched == list(range(reach))


def test_a_separable_convolution_is_a_convolution_of_features_and_one_of_positions():
    shape = Shape(7, 4, 3, 2)
    x = torch.randn(2, 7, 4)
    chance = torch.Generator().manual_seed(1)
    depth, point = torch.randn(4, 1, 3, generator=chance) / math.sqrt(3), torch.randn(4, 4, generator=chance) / 2
    kernel = depth * point[:, :, None]  # in out k
    wanted = F.conv1d(x.transpose(1, 2), kernel.transpose(0, 1), padding=1).transpose(1, 2)
    assert torch.allclose(SEPARABLE.make(shape, torch.Generator().manual_seed(1))(x), wanted, atol=1e-5)


@pytest.mark.parametrize(("n", "d"), [(70, 512), (512, 64), (4096, 16)])
def test_with_k_of_n_a_separable_convolution_costs_as_much_as_attention_and_feed_forward(n, d):
    """Section 4: the same two terms, n²·d and n·d², so the ratio of the counts stays between those of their factors."""
    shape = Shape(n, d, n, 2)
    assert SEPARABLE.operations(shape) == n**2 * d + n * d**2
    assert SELF_ATTENTION.operations(shape) / (n**2 * d) == 2
    assert feed_forward_operations(shape) / (n * d**2) == 8
    both = SELF_ATTENTION.operations(shape) + feed_forward_operations(shape)
    assert 2 <= both / SEPARABLE.operations(shape) <= 8


def test_additive_attention_is_a_hidden_layer_for_every_pair():
    query, key, value = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    w, u, v = torch.randn(4, 7), torch.randn(4, 7), torch.randn(7)
    found = additive_attention(query, key, value, w, u, v)
    for b in range(2):
        for t in range(3):
            scores = torch.stack([v @ torch.tanh(query[b, t] @ w + key[b, s] @ u) for s in range(5)])
            assert torch.allclose(found[b, t], scores.softmax(dim=0) @ value[b], atol=1e-5)


def test_recurrence_is_a_loop_over_positions():
    shape = Shape(5, 4, 3, 2)
    layer = KINDS[1].make(shape, torch.Generator().manual_seed(3))
    x = torch.randn(1, 5, 4)
    whole = layer(x)
    assert all(torch.allclose(layer(x[:, :length])[:, -1], whole[:, length - 1]) for length in range(1, 6))


@pytest.mark.parametrize("kind", [*KINDS, CONTIGUOUS, ADDITIVE], ids=lambda kind: kind.name)
@pytest.mark.parametrize("n", [2, 5, 16, 40])
def test_the_gradient_reaches_as_far_as_derived(kind, n):
    shape = Shape(n, 3, 3, 8)
    assert path_length(kind, shape) == kind.path_length(shape)


def test_paths_of_the_paper():
    for n in (27, 81, 243):
        lengths = [kind.path_length(Shape(n, 512, 3, 18)) for kind in KINDS]
        assert lengths == [1, n, round(math.log(n, 3)), math.ceil((n - 1) / 9), round(math.log(n, 3))]


def test_only_the_recurrence_waits_for_n_operations():
    lengths = {}
    for kind in KINDS:
        shapes = [Shape(n, 3, 3, 4) for n in (8, 16, 32)]
        lengths[kind.name] = [chain_length(kind.make(shape, torch.Generator()), shape) for shape in shapes]
    assert len(set(lengths.pop("recurrent"))) == 3
    assert all(len(set(chain)) == 1 for chain in lengths.values())


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_exponents_are_those_of_the_operations(kind):
    points = [
        Timing(kind.name, n, d, 1e-9 * kind.operations(Shape(n, d, 3, 32)), kind.operations(Shape(n, d, 3, 32)))
        for n in (64, 128, 512)
        for d in (64, 256, 512)
    ]
    fit = fit_exponents(points)
    # Of the separable convolution's two terms, only one has d²; the others have one term.
    assert (fit.n, fit.d) == pytest.approx(kind.exponents, abs=0.02 if kind is SEPARABLE else 1e-6)
    assert fit.rate == pytest.approx((1.0, 1.0))
    assert fit.along_n == pytest.approx({64: 1.0, 128: 1.0, 512: 1.0})
    assert fit.along_d == pytest.approx({64: 1.0, 256: 1.0, 512: 1.0})


def made(rate=lambda kind, n, d: 1.0):
    """Timings of a machine that computes a thousand million operations a second, times a rate."""
    shapes = [Shape(n, d, 3, 32) for n in (32, 64, 128, 256, 512) for d in (64, 128, 256)]
    return Measurements(
        [
            Timing(kind.name, s.n, s.d, kind.operations(s) / 1e9 / rate(kind.name, s.n, s.d), kind.operations(s))
            for kind in KINDS
            for s in shapes
        ],
        {kind.name: [(8, 1, 1.0)] for kind in KINDS},
        {kind.name: [(8, 5)] for kind in KINDS},
        [compared(64, 40.0, 20), compared(512, 80.0, 32)],
    )


def compared(n, slower, larger):
    """Additive attention so many times slower and larger than dot products of a millisecond and a mebibyte."""
    shape = Shape(n, 64, 3, 32)
    dot = Timing("self-attention", n, 64, 1e-3, SELF_ATTENTION.operations(shape))
    return AttentionComparison(
        dot, Timing("additive attention", n, 64, slower * 1e-3, ADDITIVE.operations(shape)), 2**20, larger * 2**20
    )


SETUP = Setup([32, 64, 128, 256, 512], [64, 128, 256], 64, 3, 32, 16, 3, [8])


def test_by_count_the_crossover_is_at_n_equal_d():
    def crossed(found):
        return [at and pytest.approx(at.n) for _, at in crossovers(SETUP, found)]

    assert crossed(made()) == [64, 128, 256]
    assert crossed(made(lambda kind, n, d: 0.5 if kind == "self-attention" else 1.0)) == [32, 64, 128]
    assert crossed(made(lambda kind, n, d: 100.0 if kind == "self-attention" else 1.0)) == [None] * 3
    assert crossover([], []) is None


def test_at_the_crossover_n_by_d_is_the_ratio_of_the_rates():
    found = made(lambda kind, n, d: 1.5 * n**0.1 if kind == "self-attention" else 1.1 * d**0.05)
    for d, at in crossovers(SETUP, found):
        assert at is not None
        assert at.n / d == pytest.approx(at.rates[0] / at.rates[1])
        assert at.rates[1] == pytest.approx(1.1 * d**0.05)


def test_whether_n_is_about_d_is_said():
    text = "\n".join(_crossing(SETUP, made()))
    assert "| 64 | 64 | 1.00 | 1.0 | 1.0 |" in text
    assert "n / d lies between 1.00 and 1.00: within a factor of 2 of 1 at all of these widths, so n ≈ d holds." in text


def test_a_crossover_elsewhere_is_explained_by_the_higher_rate():
    found = made(lambda kind, n, d: 3.0 if kind == "self-attention" and d == 64 else 1.0)
    text = "\n".join(_crossing(SETUP, found))
    assert "n / d lies between 1.00 and 3.00: not within a factor of 2 of 1 at d = 64." in text
    assert "At d = 64 n ≈ d does not hold: self-attention runs at the higher rate (3.0 against 1.0 G operations/s)" in text
    assert "At d = 128" not in text
    found = made(lambda kind, n, d: 3.0 if kind == "recurrent" and d == 256 else 1.0)
    text = "\n".join(_crossing(SETUP, found))
    assert "At d = 256 n ≈ d does not hold: recurrence runs at the higher rate (3.0 against 1.0 G operations/s)" in text
    assert "from n = d to n = 0.33·d." in text


def test_a_crossover_past_the_measured_lengths_is_bounded():
    rates = {64: 100.0, 256: 5.0}
    text = "\n".join(_crossing(SETUP, made(lambda kind, n, d: rates.get(d, 1.0) if kind == "self-attention" else 1.0)))
    assert "| 64 | over 512 | over 8.00 | – | – |" in text
    assert "At d = 64 self-attention is still faster at n = 512, so the crossover is over n = 8.00·d: n ≈ d does not" in text
    short = Setup([32, 64, 128, 256], [256], 64, 3, 32, 16, 3, [8])
    found = made(lambda kind, n, d: 1.1 if kind == "self-attention" else 1.0)
    found = Measurements([each for each in found.timings if each.n <= 256], {}, {}, [])
    assert "over n = 1.00·d: to tell whether it is within a factor of 2 of n = d, use a wider range of --n." in "\n".join(
        _crossing(short, found)
    )
    text = "\n".join(_crossing(SETUP, made(lambda kind, n, d: 100.0 if kind == "recurrent" else 1.0)))
    assert "At d = 256 recurrence is already faster at n = 32, so the crossover is under n = 0.12·d: n ≈ d does not" in text


def test_a_bent_exponent_is_said_with_its_rate(monkeypatch):
    monkeypatch.setattr(table1_report, "cache_sizes", lambda: [("L1", 2**15), ("L2", 2**18), ("L3", 2**30)])
    assert _exponent_notes(SETUP, exponents(SETUP, made())) == ["All exponents are within 0.25 of the derived ones."]
    bent = made(lambda kind, n, d: 64 / d if kind == "recurrent" else 1.0)
    (line,) = _exponent_notes(SETUP, exponents(SETUP, bent))
    assert line == (
        "- recurrent, exponent of d: 3.00 instead of 2. The rate falls with d: 1.0, 0.5, 0.2 G operations/s at d = 64, 128, 256 "
        "(geometric means over n). Likely cause: the weights grow from 0.0 to 0.5 MiB and no longer fit the L2 cache of 0.25 MiB."
    )


def test_each_bend_speaks_of_its_own_variable_and_direction(monkeypatch):
    """The rate rises with n and falls more with d: what is said of n must not be said of d."""
    monkeypatch.setattr(table1_report, "cache_sizes", lambda: [("L1", 2**15), ("L2", 2**18), ("L3", 2**30)])
    bent = made(lambda kind, n, d: (n / 64) ** 0.5 * (64 / d) ** 2 if kind == "recurrent" else 1.0)
    of_n, of_d = _exponent_notes(SETUP, exponents(SETUP, bent))
    assert "exponent of n: 0.50 instead of 1. The rate rises with n:" in of_n
    assert "at n = 64, 128, 256, 512 (geometric means over d). Likely cause: call overhead and memory traffic" in of_n
    assert "cache" not in of_n
    assert "exponent of d: 4.00 instead of 2. The rate falls with d:" in of_d
    assert "the weights grow" in of_d
    assert [float(rate) for rate in of_n.split("with n: ")[1].split(" G ")[0].split(", ")] == [0.2, 0.4, 0.5, 0.7]


def test_what_grows_with_n_is_not_the_weights(monkeypatch):
    bent = made(lambda kind, n, d: 64 / n if kind == "recurrent" else 1.0)
    monkeypatch.setattr(table1_report, "cache_sizes", lambda: [("L1", 2**15), ("L2", 2**18), ("L3", 2**25)])
    (line,) = _exponent_notes(SETUP, exponents(SETUP, bent))
    # 16 · 16 sequences of 3·n·d numbers at n = 64 and n = 512.
    assert "inputs, outputs and scores of a batch at d = 64 grow from 12.0 to 96.0 MiB and no longer fit the L3 cache of 32" in line
    monkeypatch.setattr(table1_report, "cache_sizes", list)
    (line,) = _exponent_notes(SETUP, exponents(SETUP, bent))
    assert line.endswith("outgrow one between these sizes.")


def test_additive_beside_dot_products():
    lines = _additive(made())
    text = "\n".join(lines)
    assert "| 64 | 2.5 | 1.00 | 40.00 | 40.0 | 1.00 | 20.00 | 20.0 |" in text
    assert (
        "takes 80.0 times the time and 32.0 times the memory of dot-product attention; at every n dot products are faster" in text
    )
    assert "docs/faq/sqrt-dk.md" in text
    found = Measurements([], {}, {}, [compared(64, 0.9, 20), compared(512, 80.0, 32)])
    assert "claim fails at some n" in "\n".join(_additive(found))


def test_additive_attention_is_not_asked_for_more_than_a_gibibyte():
    long = Setup([64, 1024, 4096, 8192], [64, 128], 64, 3, 32, 16, 3, [8])
    assert [shape.n for shape in long.heads()] == [64, 1024, 2048]
    assert 4 * ADDITIVE.held(long.heads()[-1]) == 2**30
    assert [shape.n for shape in SETUP.heads()] == SETUP.lengths


def test_peak_memory_counts_what_is_alive_at_once():
    x = torch.rand(64, 64)
    size = 4 * 64 * 64
    assert peak_memory(lambda x: x.transpose(0, 1), x) == 0
    assert peak_memory(lambda x: (x + 1).tanh_(), x) == size
    assert peak_memory(lambda x: (x + 1) + (x + 2), x) == 3 * size
    assert peak_memory(lambda x: ((((x + 1) * 2) * 3) * 4) + 5, x) == 2 * size


@pytest.mark.parametrize("n", [32, 64])
def test_additive_attention_holds_a_hidden_layer_for_every_pair_dot_products_a_score(n):
    shape = Shape(n, 16, 3, 8)
    dot, additive = (
        peak_memory(kind.make(shape, torch.Generator()), torch.rand(1, n, 16)) / (4 * n**2) for kind in (SELF_ATTENTION, ADDITIVE)
    )
    assert 1 <= dot <= 3
    assert 16 <= additive <= 19


def test_the_report(tmp_path):
    shown = write_report(SETUP, made(), 1, tmp_path / "t.md", ["paper", "table1"])
    text = (tmp_path / "t.md").read_text()
    assert shown in text
    assert "| recurrent | O(n·d²) | O(n) | O(n) | 36,700,160 | 70 | 70 | Table 1 |" in text
    # 3·70·512 + 70·512²
    assert "| separable convolutional | O(k·n·d + n·d²) | O(1) | O(log_k(n)) | 18,457,600 | 1 | 4 | text of section 4 |" in text
    assert "at n = 70, d = 512: 20,858,880 and 151,818,240" in text
    assert "so n ≈ d holds" in text
    assert "times the memory of dot-product attention" in text
    for name in ("t-time.svg", "t-crossover.svg"):
        assert f"({name})" in text
        assert (tmp_path / name).read_text().rstrip().endswith("</svg>")
    kept = json.loads((tmp_path / "t.json").read_text())
    assert len(kept["timings"]) == 75
    assert kept["compared"][1]["additive"]["n"] == 512


def test_timings_of_every_layer_and_shape():
    shapes = [Shape(4, 4, 3, 2), Shape(8, 4, 3, 2)]
    done = []
    found = time_layers(shapes, 1, 2, done.append)
    assert [(each.kind, each.n) for each in found] == [(name, n) for name in NAMES for n in (4, 8)]
    assert all(each.seconds > 0 for each in found)
    assert sum(done) == 20
    assert time_call(lambda x: x, torch.zeros(1)) >= 0.0
    assert all(size > 0 for _, size in cache_sizes())


def test_on_the_command_line(run, tmp_path):
    small = ["--n", "8,16", "--d", "8,16", "--fit-from", "8", "--repetitions", "1", "--batch", "1", "--paths", "4,8"]
    result = run("paper", "table1", *small, "--report", tmp_path / "t.md", "--quiet")
    assert result.code == 0, result.err
    assert "| self-attention |" in result.out
    text = (tmp_path / "t.md").read_text()
    assert "| recurrent | 4 / 4 | 8 / 8 |" in text
    assert "At n = 16 additive attention counts" in text
    before = torch.get_num_threads()
    result = run(
        "paper", "table1", "--n", "8", "--kernel", "4", "--neighbourhood", "1", "--batch", "0", "--report", tmp_path / "u.md"
    )
    assert result.code == 2
    for expected in ("--n:", "--kernel: 4", "--neighbourhood: 1", "--batch: 0"):
        assert expected in result.err
    assert torch.get_num_threads() == before
    assert run("paper", "table1", "--n", "a,b").code == 2
    assert not (tmp_path / "u.md").exists()
