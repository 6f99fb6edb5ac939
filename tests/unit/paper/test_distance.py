"""`undivided paper distance`: the task, models of equal size that see as far as they claim, a report, nothing trained twice."""

import dataclasses
import json
import math

import pytest
import torch

from undivided.cli.paper.distance import NAMES
from undivided.core.console import Console
from undivided.paper.distance.recall import (
    COMPETITORS,
    LEAD,
    MARK,
    QUERY,
    WINDOW,
    convolution_depth,
    count_parameters,
    draw_examples,
    make_reader,
    path_length,
)
from undivided.paper.distance.trials import DistanceConfig, RunResult, choose_rates, train_all


def test_the_answer_stands_behind_the_mark_and_so_far_before_the_end():
    chance, lengths = torch.Generator().manual_seed(1), set()
    for _ in range(20):
        tokens, answers = draw_examples(4, 10, chance)
        lengths.add(tokens.shape[1])
        assert (tokens[:, -1] == QUERY).all()
        assert torch.equal(tokens[:, -11], answers)
        assert ((tokens == MARK).sum(dim=1) == 1).all()
        assert (tokens[:, -12] == MARK).all()
    assert lengths <= set(range(13, 13 + LEAD))
    assert len(lengths) > 3, "no fixed place"


def test_all_models_are_there_and_as_large():
    assert tuple(COMPETITORS) == NAMES
    sizes = [count_parameters(make_reader(name, 512, 1)) for name in NAMES]
    assert max(sizes) <= 1.06 * min(sizes)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_sees_exactly_as_far_as_the_report_says(name):
    """By the gradient of the answer with respect to what is read at each distance."""
    reader, length = make_reader(name, 20, 1).double(), 90
    seen = []
    embedding = reader.body.embedding
    embedding.register_forward_hook(lambda module, given, out: out.retain_grad() or seen.append(out))
    reader(torch.randint(8, (1, length), generator=torch.Generator().manual_seed(1))).square().sum().backward()
    touched = seen[0].grad[0].abs().amax(dim=-1).flip(0) > 0
    reach = COMPETITORS[name].reach(convolution_depth(20))
    assert touched.tolist() == [back <= reach for back in range(length)]


def test_paths_are_those_of_table_1():
    assert [path_length(name, 128) for name in ("rnn", "transformer", "local")] == [129, 1, 128 // (WINDOW // 2)]
    assert path_length("convolution", 128) == 128
    assert 3 ** path_length("dilated", 128) >= 128 > 3 ** (path_length("dilated", 128) - 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, module_run):
    out = tmp_path_factory.mktemp("distance")
    result = module_run(*command(out), "--models", "transformer,gru", "--rates", "0.001,0.004")
    assert result.code == 0, result.err
    return out, result


@pytest.fixture(scope="module")
def module_run():
    import contextlib
    import io
    from types import SimpleNamespace

    from undivided.cli import main

    def call(*arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(each) for each in arguments])
        return SimpleNamespace(code=code, out=out.getvalue(), err=err.getvalue())

    return call


def command(out):
    sizes = ["--distances", "2,5", "--seeds", "1", "--steps", "4", "--batch", "8", "--longest", "8"]
    return ["paper", "distance", *sizes, "--out", str(out / "runs"), "--report", str(out / "far.md")]


def test_it_says_first_how_long_it_takes_and_reports_a_table_paths_and_a_chart(folder):
    out, result = folder
    assert "8 of 8 trainings to do: at most " in result.err.splitlines()[0]
    assert result.out.splitlines()[0] == "| model | n = 2 | n = 5 |"
    report = (out / "far.md").read_text()
    assert report.count("| Transformer |") == 3
    assert "undivided paper distance --distances 2,5" in report
    assert "| GRU | " in report.split("maximum path length")[1]
    assert (out / "far.svg").read_text().rstrip().endswith("</svg>")
    results = json.loads((out / "far.json").read_text())["results"]
    assert {(each["name"], each["distance"], each["rate"]) for each in results} == {
        (name, n, rate) for name in ("gru", "transformer") for n in (2, 5) for rate in (0.001, 0.004)
    }
    assert all(0 <= each["test"] <= 1 and each["steps"] == 4 for each in results)


def test_it_resumes_and_takes_more(folder, module_run):
    out, _ = folder
    kept = {path: path.stat().st_mtime_ns for path in out.glob("runs/*.json")}
    lost = out / "runs" / "gru-5-1-0.004.json"
    before = json.loads(lost.read_text())
    lost.unlink()
    result = module_run(*command(out), "--models", "gru,rnn,transformer", "--rates", "0.004")
    assert result.code == 0, result.err
    assert "3 of 6 trainings to do" in result.err
    assert {path: path.stat().st_mtime_ns for path in kept if path != lost} == {
        path: when for path, when in kept.items() if path != lost
    }
    again = json.loads(lost.read_text())
    assert [again[key] for key in ("test", "validation", "curve")] == [before[key] for key in ("test", "validation", "curve")]


def test_other_settings_are_another_comparison(folder, module_run):
    out, _ = folder
    result = module_run(*command(out), "--steps", "5")
    assert result.code == 2
    assert "steps was 4, now 5" in result.err


def test_all_faults_at_once(module_run, tmp_path):
    result = module_run("paper", "distance", "--models", "lstn,gru", "--distances", "0,9999", "--out", tmp_path / "o")
    assert result.code == 2
    for said in ("'lstn' is none of", "did you mean 'lstm'?", "0 is not between 1 and", "9999 is not between"):
        assert said in result.err
    assert not (tmp_path / "o").exists()


def test_attention_learns_it(tmp_path):
    config = DistanceConfig(["transformer"], [6], 1, [0.004], 200, 32, tmp_path, 8)
    (found,) = train_all(config, Console(quiet=True))
    assert found.test > 0.9
    assert found.is_solved == (found.steps < 200)


def result(rate, seed, validation, test, steps=100):
    return RunResult("gru", 8, seed, rate, steps, 1.0, validation, test, [(50, validation), (100, validation)])


def test_the_rate_is_chosen_on_validation_not_on_the_test():
    runs = [result(0.001, 1, 0.7, 0.5), result(0.001, 2, 0.8, 0.6), result(0.003, 1, 0.6, 0.9), result(0.003, 2, 0.6, 0.9)]
    (cell,) = choose_rates(runs).values()
    assert cell.rate == 0.001
    assert cell.tests == [0.5, 0.6]
    assert cell.mean == pytest.approx(0.55)
    assert cell.solved == [False, False]
    fast = [result(0.001, 1, 0.99, 1.0), dataclasses.replace(result(0.003, 1, 1.0, 0.99), steps=50)]
    (cell,) = choose_rates(fast).values()
    assert (cell.rate, cell.solved) == (0.003, [True])
    assert math.isclose(cell.mean, 0.99)
