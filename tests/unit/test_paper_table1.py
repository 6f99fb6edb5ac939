import json
import math

import pytest
import torch

from undivided.attention import attention, window_mask
from undivided.paper.kinds import CONTIGUOUS, KINDS, Shape, restricted_attention
from undivided.paper.measure import Timing, caches, chain_length, clocked, crossover, fitted, path_length, timings
from undivided.paper.table1 import Found, Setup, _bends, crossovers, exponents, write_report

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
    reach = {"self-attention": 9, "recurrent": 9, "convolutional": 2, "self-attention (restricted)": 3}[kind.name]
    assert touched == list(range(reach))


def test_recurrence_is_a_loop_over_positions():
    shape = Shape(5, 4, 3, 2)
    layer = KINDS[1].make(shape, torch.Generator().manual_seed(3))
    x = torch.randn(1, 5, 4)
    whole = layer(x)
    assert all(torch.allclose(layer(x[:, :length])[:, -1], whole[:, length - 1]) for length in range(1, 6))


@pytest.mark.parametrize("kind", [*KINDS, CONTIGUOUS], ids=lambda kind: kind.name)
@pytest.mark.parametrize("n", [2, 5, 16, 40])
def test_the_gradient_reaches_as_far_as_derived(kind, n):
    shape = Shape(n, 3, 3, 8)
    assert path_length(kind, shape) == kind.path_length(shape)


def test_paths_of_the_paper():
    for n in (27, 81, 243):
        lengths = [kind.path_length(Shape(n, 512, 3, 18)) for kind in KINDS]
        assert lengths == [1, n, round(math.log(n, 3)), math.ceil((n - 1) / 9)]


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
    fit = fitted(points)
    assert (fit.n, fit.d) == pytest.approx(kind.exponents)
    assert fit.rate == pytest.approx((1.0, 1.0))


def made(rate=lambda kind, n, d: 1.0):
    """Timings of a machine that computes a thousand million operations a second, times a rate."""
    shapes = [Shape(n, d, 3, 32) for n in (32, 64, 128, 256, 512) for d in (64, 128, 256)]
    return Found(
        [
            Timing(kind.name, s.n, s.d, kind.operations(s) / 1e9 / rate(kind.name, s.n, s.d), kind.operations(s))
            for kind in KINDS
            for s in shapes
        ],
        {kind.name: [(8, 1, 1.0)] for kind in KINDS},
        {kind.name: [(8, 5)] for kind in KINDS},
    )


SETUP = Setup([32, 64, 128, 256, 512], [64, 128, 256], 64, 3, 32, 16, 3, [8])


def test_by_count_the_crossover_is_at_n_equal_d():
    assert [(d, pytest.approx(n)) for d, n in crossovers(SETUP, made())] == [(64, 64), (128, 128), (256, 256)]
    slower = made(lambda kind, n, d: 0.5 if kind == "self-attention" else 1.0)
    assert [pytest.approx(n) for _, n in crossovers(SETUP, slower)] == [32, 64, 128]
    never = made(lambda kind, n, d: 100.0 if kind == "self-attention" else 1.0)
    assert [n for _, n in crossovers(SETUP, never)] == [None] * 3
    assert crossover([], []) is None


def test_a_bent_exponent_is_said_with_its_rate():
    assert _bends(SETUP, exponents(SETUP, made())) == ["All exponents are within 0.25 of the derived ones."]
    bent = made(lambda kind, n, d: 64 / d if kind == "recurrent" else 1.0)
    (line,) = _bends(SETUP, exponents(SETUP, bent))
    assert line.startswith("- recurrent, exponent of d: 3.00 instead of 2. The rate falls from 1.0 to 0.2")


def test_the_report(tmp_path):
    shown = write_report(SETUP, made(), 1, tmp_path / "t.md", ["paper", "table1"])
    text = (tmp_path / "t.md").read_text()
    assert shown in text
    assert "| recurrent | O(n·d²) | O(n) | O(n) | 36,700,160 | 70 | 70 |" in text
    assert "It lies at n = 1.00·d to 1.00·d." in text
    for name in ("t-time.svg", "t-crossover.svg"):
        assert f"({name})" in text
        assert (tmp_path / name).read_text().startswith("<svg")
    assert len(json.loads((tmp_path / "t.json").read_text())) == 60


def test_timings_of_every_layer_and_shape():
    shapes = [Shape(4, 4, 3, 2), Shape(8, 4, 3, 2)]
    done = []
    found = timings(shapes, 1, 2, done.append)
    assert [(each.kind, each.n) for each in found] == [(name, n) for name in NAMES for n in (4, 8)]
    assert all(each.seconds > 0 for each in found)
    assert sum(done) == 16
    assert clocked(lambda x: x, torch.zeros(1)) >= 0.0
    assert isinstance(caches(), str)


def test_on_the_command_line(run, tmp_path):
    small = ["--n", "8,16", "--d", "8,16", "--fit-from", "8", "--repetitions", "1", "--batch", "1", "--paths", "4,8"]
    result = run("paper", "table1", *small, "--report", tmp_path / "t.md", "--quiet")
    assert result.code == 0, result.err
    assert "| self-attention |" in result.out
    assert "| recurrent | 4 / 4 | 8 / 8 |" in (tmp_path / "t.md").read_text()
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
