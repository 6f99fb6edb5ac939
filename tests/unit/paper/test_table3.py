import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import sacrebleu

from samples import sentences, write_pairs
from undivided import InputError
from undivided.cli import main
from undivided.config import build_recipe
from undivided.config.settings import merge
from undivided.paper.table3.spread import pool, pool_unpaired, student
from undivided.paper.table3.table import Result, RowResult, bleu_of, log_perplexity_of, sentence_counts
from undivided.paper.table3.variations import MORE_ROWS, ROWS, describe_changes, select_rows
from undivided.paper.table3.verdicts import Difference, compare_with_base, sentence_interval, sentence_noise
from undivided.training.loop import Trainer

PAPER = {
    "base": (6, 512, 2048, 8, 64, 64, 0.1, 0.1, "sinusoidal"),
    "A1": (6, 512, 2048, 1, 512, 512, 0.1, 0.1, "sinusoidal"),
    "A2": (6, 512, 2048, 4, 128, 128, 0.1, 0.1, "sinusoidal"),
    "A3": (6, 512, 2048, 16, 32, 32, 0.1, 0.1, "sinusoidal"),
    "A4": (6, 512, 2048, 32, 16, 16, 0.1, 0.1, "sinusoidal"),
    "B1": (6, 512, 2048, 8, 16, 64, 0.1, 0.1, "sinusoidal"),
    "B2": (6, 512, 2048, 8, 32, 64, 0.1, 0.1, "sinusoidal"),
    "C1": (2, 512, 2048, 8, 64, 64, 0.1, 0.1, "sinusoidal"),
    "C2": (4, 512, 2048, 8, 64, 64, 0.1, 0.1, "sinusoidal"),
    "C3": (8, 512, 2048, 8, 64, 64, 0.1, 0.1, "sinusoidal"),
    "C4": (6, 256, 2048, 8, 32, 32, 0.1, 0.1, "sinusoidal"),
    "C5": (6, 1024, 2048, 8, 128, 128, 0.1, 0.1, "sinusoidal"),
    "C6": (6, 512, 1024, 8, 64, 64, 0.1, 0.1, "sinusoidal"),
    "C7": (6, 512, 4096, 8, 64, 64, 0.1, 0.1, "sinusoidal"),
    "D1": (6, 512, 2048, 8, 64, 64, 0.0, 0.1, "sinusoidal"),
    "D2": (6, 512, 2048, 8, 64, 64, 0.2, 0.1, "sinusoidal"),
    "D3": (6, 512, 2048, 8, 64, 64, 0.1, 0.0, "sinusoidal"),
    "D4": (6, 512, 2048, 8, 64, 64, 0.1, 0.2, "sinusoidal"),
    "E": (6, 512, 2048, 8, 64, 64, 0.1, 0.1, "learned"),
    "big": (6, 1024, 4096, 16, 64, 64, 0.3, 0.1, "sinusoidal"),
}


@pytest.mark.parametrize("name", ROWS)
def test_varied_from_base_a_row_is_the_papers(name):
    recipe = build_recipe(merge({"preset": "base"}, ROWS[name].vary(build_recipe({"preset": "base"}))))
    model = recipe.model
    assert model.encoder_layers == model.decoder_layers
    shape = (model.encoder_layers, model.d_model, model.d_ff, model.n_heads, model.key_width, model.value_width)
    assert (*shape, model.dropout, recipe.train.label_smoothing, model.positions) == PAPER[name]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("preset", ["tiny", "small", "big"])
def test_every_row_is_a_model_at_every_size(name, preset):
    base = build_recipe({"preset": preset})
    varied = build_recipe(merge({"preset": preset}, ROWS[name].vary(base)))
    assert bool(describe_changes(ROWS[name].vary(base), base)) == (name != "base")
    assert varied.model.n_heads * varied.model.value_width > 0


@pytest.mark.parametrize(("name", "rate"), [("C4", 0.00566), ("C5", 0.00283), ("big", 0.00283), ("C7", 0.004)])
def test_where_the_schedule_has_no_width_in_it_the_rate_follows_eq_3(name, rate):
    base = build_recipe({"preset": "tiny", "train": {"schedule": "cosine", "rate": 0.004}})
    assert ROWS[name].vary(base).get("train", {"rate": 0.004})["rate"] == rate
    assert "train" not in ROWS[name].vary(build_recipe({"preset": "tiny"}))


def test_rows_by_name_by_letter_and_all():
    assert [row.name for row in select_rows("B2,A1")] == ["base", "A1", "B2"]
    assert [row.name for row in select_rows("D, big")] == ["base", "D1", "D2", "D3", "D4", "big"]
    assert [row.name for row in select_rows("all")] == list(ROWS)
    assert [row.name for row in select_rows("")] == ["base"]
    assert [row.name for row in select_rows("E,E0")] == ["base", "E", "E0"]
    assert MORE_ROWS["E0"].vary(build_recipe({})) == {"model": {"positions": "none"}}
    with pytest.raises(InputError) as error:
        select_rows("A1,C9,bigg,zzz")
    assert "no row 'C9'; did you mean one of C1, C2" in str(error.value)
    assert "no row 'bigg'; did you mean 'big'?" in str(error.value)
    assert "no row 'zzz'; did you mean one of base, A1" in str(error.value)


def test_bleu_from_counts_is_sacrebleus():
    ours = ["the dog sees a tree today", "a cat likes the house", "no", "the river again and again"]
    references = ["the dog sees the tree today", "my cat likes the house", "yes", "the river again"]
    counts = np.array(sentence_counts(ours, references, "en"))
    assert bleu_of(counts.sum(axis=0)) == pytest.approx(sacrebleu.corpus_bleu(ours, [references]).score)


def result(bleu_counts, nll=2.0, tokens=10.0):
    return Result(1000, 5, 1, 60.0, bleu_counts, [[nll * tokens, tokens]] * len(bleu_counts))


def good_and_bad(share, seed, size=300):
    """Counts of sentences of ten words of which a share is right."""
    right = np.random.default_rng(seed).binomial(10, share, size)
    return [[int(r), max(0, int(r) - 1), max(0, int(r) - 2), max(0, int(r) - 3), 10, 9, 8, 7, 10, 10] for r in right]


def test_a_clear_difference_is_seen_and_a_small_one_is_not():
    base = RowResult(ROWS["base"], "", [result(good_and_bad(0.7, seed)) for seed in (1, 2, 3)])
    worse = RowResult(ROWS["A1"], "", [result(good_and_bad(0.5, 4), nll=2.5)])
    same = RowResult(ROWS["A3"], "", [result(good_and_bad(0.7, 5))])
    better = RowResult(ROWS["C1"], "", [result(good_and_bad(0.9, 6))])
    verdicts = compare_with_base([base, worse, same, better])
    assert [verdicts[name].bleu.here for name in ("A1", "A3", "C1")] == [-1, 0, 1]
    assert [verdicts[name].bleu.there for name in ("A1", "A3", "C1")] == [-1, 0, -1]
    assert [verdicts[name].bleu.verdict for name in ("A1", "A3", "C1")] == ["agrees", "not resolved", "disagrees"]
    assert verdicts["A1"].perplexity.difference == pytest.approx(0.5)
    assert verdicts["A1"].perplexity.verdict == "agrees"


@pytest.mark.parametrize(
    ("here", "noise", "paper", "verdict"),
    [
        (-2.0, 1.0, -1.0, "agrees"),
        (0.4, 1.0, 0.1, "agrees"),
        (0.6, 1.0, 0.1, "not resolved"),
        (-0.5, 1.0, -1.0, "not resolved"),
        (0.5, 1.0, -1.0, "not resolved"),
        (2.0, 1.0, -1.0, "disagrees"),
        (2.0, 1.0, 0.1, "disagrees"),
    ],
)
def test_the_rule(here, noise, paper, verdict):
    assert Difference(here, noise, 0.0, paper, 0.25, 1.5).verdict == verdict
    assert Difference(here, 0.0, noise, paper, 0.25, 1.5).verdict == verdict


def test_a_row_that_the_paper_has_not_is_measured_only():
    said = [Difference(here, 1.0, 0.0, None, 0.25, 1.5).verdict for here in (-2.0, 0.5, 2.0)]
    assert said == ["lower", "not resolved", "higher"]


@pytest.mark.parametrize("name", [*ROWS, *MORE_ROWS])
def test_rows_with_the_same_seed_have_the_same_batches(name):
    """What a row varies is no part of what the order of the data or the subwords follow from, so differences are paired."""
    changes = (ROWS | MORE_ROWS)[name].vary(build_recipe({"preset": "tiny", "train": {"schedule": "cosine"}}))
    assert changes.keys() <= {"model", "train"}
    assert changes.get("train", {}).keys() <= {"rate", "label_smoothing"}


def test_noise_of_seeds():
    assert pool([[30.0], [31.0]]).half_width(1, 1) == math.inf
    alone = pool([[29.0, 30.0, 31.0], [28.0]])
    assert alone.half_width(1, 3) == pytest.approx(4.30 * math.sqrt(1 + 1 / 3))
    assert alone.half_width(3, 3) < alone.half_width(1, 3)
    more = pool([[29.0, 30.0, 31.0], [28.0], [39.0, 40.0, 41.0]])
    assert (more.deviation, more.degrees, more.paired) == (1.0, 4, False)
    assert more.half_width(1, 3) < alone.half_width(1, 3)


def test_what_a_seed_does_to_all_rows_is_no_noise():
    """Seeds that move all rows by as much leave differences exact; what is left is that of an analysis of variance."""
    assert pool([[1.0, 5.0, 3.0], [11.0, 15.0, 13.0]]).half_width(3, 3) == pytest.approx(0.0, abs=1e-9)
    chance = np.random.default_rng(1)
    rows = chance.normal(size=(20, 1)) + 3 * chance.normal(size=(1, 3)) + 0.5 * chance.normal(size=(20, 3))
    paired, alone = pool(rows.tolist()), pool_unpaired(rows.tolist())
    assert (paired.paired, paired.degrees, alone.degrees) == (True, 38, 40)
    assert paired.deviation == pytest.approx(0.5, rel=0.25)
    assert alone.deviation > 3 * paired.deviation


def test_intervals_hold_what_they_promise():
    """Over many tables whose rows are equal, a 95 % interval of a difference holds zero about as often."""
    chance, inside = np.random.default_rng(2), []
    for _ in range(400):
        rows = chance.normal(size=(1, 3)) + 0.7 * chance.normal(size=(6, 3))
        inside.append(abs(rows[1].mean() - rows[0].mean()) <= pool(rows.tolist()).half_width(3, 3))
    assert 0.91 < np.mean(inside) < 0.98


@pytest.mark.parametrize(("degrees", "wanted"), [(1, 12.71), (10, 2.228), (38, 2.024), (1000, 1.962)])
def test_students_t(degrees, wanted):
    assert student(degrees) == pytest.approx(wanted, abs=0.003)


def test_noise_of_sentences_is_paired():
    counts = np.array([good_and_bad(0.7, 1)])
    assert sentence_noise(bleu_of, counts, counts) == 0.0
    assert sentence_noise(bleu_of, counts, np.array([good_and_bad(0.7, 2)])) > 1.0
    low, high = sentence_interval(bleu_of, counts)
    assert low < bleu_of(counts[0].sum(axis=0)) < high
    assert log_perplexity_of(np.array([30.0, 10.0])) == 3.0


RECIPE = """
data: {source_lang: en, target_lang: de}
tokens: {vocab_size: 320}
batches: {tokens: 800}
preset: tiny
model: {d_model: 32, d_ff: 64, n_heads: 2, encoder_layers: 1, decoder_layers: 1, dropout: 0.1, norm: pre}
train: {max_steps: 8, schedule: cosine, rate: 0.01, warmup_steps: 3, threads: 1, log_every: 100}
search: {beam_size: 2, max_extra: 5}
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table3")
    (folder / "r.yaml").write_text(RECIPE)
    for name, count in (("train", 80), ("valid", 6), ("test", 10)):
        write_pairs(folder, name, sentences(count, seed=len(name)))
    assert (
        main(
            [
                *command(folder),
                "--rows",
                "A1,D1,E",
                "--seeds",
                "2",
                "--other-seeds",
                "1",
                "--report",
                str(folder / "report.md"),
                "--quiet",
            ]
        )
        == 0
    )
    return folder


def command(folder):
    files = [argument for name in ("train", "valid", "test") for argument in (f"--{name}", *pair(folder, name))]
    return ["paper", "table3", str(folder / "r.yaml"), *files, "--out", str(folder / "out")]


def pair(folder, name):
    return [str(folder / f"{name}.{side}") for side in ("src", "tgt")]


def test_the_report_stands_beside_the_papers_numbers(table):
    report = (table / "report.md").read_text()
    rows = [line for line in report.splitlines() if line.startswith(("| base", "| A1", "| D1", "| E "))]
    assert [[cell.strip() for cell in row.split("|")][1] for row in rows] == ["base", "A1", "D1", "E"]
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    assert [row[7] for row in cells] == ["4.92", "5.29", "5.77", "4.92"]
    assert "n_heads 2 → 1, d_k 16 → 32, d_v 16 → 32" in report
    assert "Of 3 rows by BLEU" in report
    assert re.search(
        r"- BLEU: standard deviation \d+\.\d\d of a row's own seeds.*The seeds of base: \d+\.\d\d, \d+\.\d\d\.", report
    )
    assert re.search(r"- perplexity: standard deviation \d+\.\d %", report)
    assert re.fullmatch(r"[+-]\d+\.\d\d ± \d+\.\d\d", cells[1][11])
    assert re.fullmatch(r"[+-]\d+\.\d % ± \d+\.\d %", cells[1][13])
    assert cells[1][14] == "+7.5 %"
    assert re.search(r"undivided paper table3 \S*r\.yaml --train \S*train\.src \S*train\.tgt", report)
    assert "(report.svg)" in report
    assert (table / "report.svg").read_text().rstrip().endswith("</svg>")
    figures = json.loads((table / "report.json").read_text())
    assert len(figures["rows"]["base"]["bleu"]) == 2
    assert set(figures["against base"]) == {"A1", "D1", "E"}


def test_it_goes_on_where_it_was_and_takes_more_rows(table, run):
    kept = {path: path.stat().st_mtime_ns for path in table.glob("out/*/manifest.json")}
    assert {path.parent.name for path in kept} == {"base-1", "base-2", "A1-1", "D1-1", "E-1"}
    result = run(*command(table), "--rows", "B1,A1", "--seeds", "1")
    assert result.code == 0, result.err
    assert result.err.count("already trained") == 2
    assert "row B1, seed 1: training 3 of 3" in result.err
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert "| B1 | d_k 16 → 4" in result.out
    assert "± unknown" in result.out


def test_stopped_in_the_middle_of_a_training_it_ends_as_if_it_had_not_been(table, tmp_path, monkeypatch):
    """The row that was cut off goes on from its checkpoint, and its model is that of an undisturbed run."""
    for name in ("train", "valid", "test"):
        for path in map(Path, pair(table, name)):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "r.yaml").write_text(RECIPE)
    arguments = [*command(tmp_path), "--rows", "A1", "--seeds", "1", "--train.save_every", "2", "--quiet"]
    advance, steps = Trainer.advance, []

    def cut_off(self, plans):
        advance(self, plans)
        steps.append(self.state.step)
        if len(steps) == 13:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "advance", cut_off)
    assert main(arguments) == 130
    assert steps[-1] == 5, "the first row has 8 steps"
    assert main(arguments) == 0
    assert steps[13:] == [5, 6, 7, 8], "from the checkpoint of step 4"
    weights = [(folder / "out" / "A1-1" / "model.safetensors").read_bytes() for folder in (table, tmp_path)]
    assert weights[0] == weights[1]


def test_two_commands_share_the_work(table, run):
    first = run(*command(table), "--rows", "A1,D3", "--seeds", "1", "--part", "1/2")
    assert first.code == 0, first.err
    assert "training 1 of 3" in first.err
    assert "training 3 of 3" in first.err
    assert "training 2 of 3" not in first.err
    assert first.out == ""
    assert "this part is done" in first.err
    assert "1 of 2 trainings to do: about " in first.err
    assert run(*command(table), "--part", "3/2").code == 2


def test_another_corpus_is_another_table(table, run, tmp_path):
    write_pairs(tmp_path, "other", sentences(5, seed=77))
    arguments = command(table)
    arguments[arguments.index("--test") + 1 : arguments.index("--test") + 3] = pair(tmp_path, "other")
    result = run(*arguments, "--rows", "A1")
    assert result.code == 2
    assert "a table was started there with other settings" in result.err


def test_all_faults_at_once(run, tmp_path):
    result = run("paper", "table3", "--rows", "A9,bige", "--seeds", "0", "--model.d_model", "x", "--out", tmp_path / "o")
    assert result.code == 2
    for expected in ("no row 'A9'; did you mean", "no row 'bige'; did you mean 'big'?", "--seeds: 0", "model.d_model"):
        assert expected in result.err
    assert not (tmp_path / "o").exists()


def test_it_asks_for_data(run, tmp_path):
    assert "--valid" in run("paper", "table3", "--out", tmp_path / "o").err
    files = write_pairs(tmp_path, "p", sentences(5))
    assert "--train" in run("paper", "table3", "--valid", *files, "--out", tmp_path / "o").err
    said = run(
        "paper", "table3", "--train", *files, "--valid", *files, "--test", tmp_path / "none.en", files[1], "--out", tmp_path / "o"
    )
    assert "none.en" in said.err


def test_a_row_that_changes_nothing_is_left_out_and_said(table, run, tmp_path):
    result = run(
        *command(table)[:-1], tmp_path / "o", "--rows", "D1,D3", "--seeds", "1", "--model.dropout", "0", "--max-steps", "2"
    )
    assert result.code == 0, result.err
    assert "row D1 changes nothing" in result.err
    assert "| D3 |" in result.out
    assert "| D1 |" not in result.out
