import json
import shutil
from pathlib import Path

import pytest

from made_trees import write_treebank
from undivided.cli import main
from undivided.paper.parsing import tokenised
from undivided.paper.table4 import PAPER
from undivided.paper.trees import parse_tree, plain, words

ROOT = Path(__file__).parents[2]
RECIPE = """
tokens: {vocab_size: 300}
batches: {tokens: 800}
model: {d_model: 32, d_ff: 64, n_heads: 2, encoder_layers: 1, decoder_layers: 1, dropout: 0.0, norm: pre, tie: target}
train: {max_steps: 120, schedule: cosine, rate: 0.01, warmup_steps: 10, threads: 1, save_every: 60, validate_every: 1000,
        average: 1, validate_lines: 4}
search: {beam_size: 3, length_penalty: 0.3, max_extra: 20}
"""


def command(folder):
    return ["paper", "table4", folder / "tiny.yaml", "--trees", folder / "trees", "--out", folder / "out"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A whole run at a small size: the folder."""
    folder = tmp_path_factory.mktemp("table4")
    write_treebank(folder / "trees")
    (folder / "tiny.yaml").write_text(RECIPE)
    assert main([str(each) for each in [*command(folder), "--report", folder / "report.md", "--quiet"]]) == 0
    return folder


def test_the_report_has_every_parser_beside_the_paper(table):
    report = (table / "report.md").read_text()
    rows = {line.split("|")[1].strip(): line.split("|")[2:] for line in report.splitlines() if line.startswith("|")}
    assert {"tiny", "grammar (PCFG)"} <= rows.keys()
    for name in ("tiny", "grammar (PCFG)"):
        assert 0 < float(rows[name][0].strip(" *")) <= 100
    assert float(rows["grammar (PCFG)"][0].strip(" *")) > 60
    assert all(f"{f1:.1f}" in report for _, _, f1 in PAPER)
    assert "form `compact`" in report
    assert "beam 3, α 0.3, at most input + 20" in report


def test_every_sentence_has_a_tree_over_its_words(table):
    gold = [words(plain(parse_tree(line))) for line in (table / "trees" / "test.mrg").read_text().splitlines()]
    for parser in ("tiny", "grammar"):
        for name in ("test.gold", "test.parsed", "test.own-tags"):
            lines = (table / "out" / parser / name).read_text().splitlines()
            assert [words(parse_tree(line)) for line in lines] == gold


def test_source_and_target_are_token_by_token(table):
    from undivided.tokens import EOS, Tokenizer

    tokenizer = Tokenizer.load(table / "out" / "tiny" / "model")
    for part in ("train", "valid"):
        pair = [table / "out" / "tiny" / "data" / f"{part}.{side}" for side in ("words", "brackets")]
        src, tgt = (side.encode(path.read_text().splitlines()) for side, path in zip((tokenizer.source, tokenizer.target), pair))
        assert [len(row) for row in src] == [len(row) for row in tgt]
        assert part == "valid" or all(token >= 4 + 256 or token == EOS for row in tgt for token in row)


def test_run_again_it_trains_and_parses_nothing_anew(table, run):
    kept = [table / "out" / "tiny" / "model" / "manifest.json", *table.glob("out/*/test-*")]
    before = [(path, path.stat().st_mtime_ns) for path in kept]
    result = run(*command(table))
    assert result.code == 0, result.err
    assert "trained already" in result.err
    assert [(path, path.stat().st_mtime_ns) for path in kept] == before
    assert result.out.splitlines()[0].startswith("tiny: F1 ")
    assert (table / "out" / "report.md").exists()


def test_other_settings_are_another_run(table, run):
    result = run(*command(table), "--tags", "xx")
    assert result.code == 2
    assert "tags was 'keep', now 'xx'" in result.err
    result = run(*command(table), "--model.d_ff", "96")
    assert result.code == 2
    assert "model.d_ff was 64, now 96" in result.err


def test_parsing_text(table, run, tmp_path):
    lines = ["The dog sees a cell (of mice).", "", "every tree may bind", "¿ 日本 x_y"]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    result = run("paper", "parse", table / "out" / "tiny" / "model", tmp_path / "in.txt", "--beam-size", "2", "--max-extra", "9")
    assert result.code == 0, result.err
    out = result.out.split("\n")[:-1]
    assert [words(parse_tree(line)) if line else [] for line in out] == [tokenised(line) for line in lines]
    result = run("paper", "parse", table / "out" / "tiny" / "model", tmp_path / "in.txt", "--tokenised", "--max-extra", "9")
    assert words(parse_tree(result.out.splitlines()[0])) == lines[0].split()


def test_words_of_raw_text():
    assert tokenised("It's (IL-2) 3.5%, e.g. don't; A/B...") == [
        "It", "'s", "(", "IL", "-", "2", ")", "3.5", "%", ",", "e.g.", "do", "n't", ";", "A", "/", "B", "...",
    ]  # fmt: skip
    assert tokenised("  ") == []


def test_parsing_with_what_is_not_a_parser(run, model, tmp_path):
    (tmp_path / "in.txt").write_text("a\n")
    result = run("paper", "parse", model, tmp_path / "in.txt")
    assert result.code == 2
    assert "does not write trees" in result.err
    assert run("paper", "parse", model, tmp_path / "none.txt").code == 2
    result = run("paper", "parse", model, tmp_path / "in.txt", "--beam-size", "x", "--max-extra", "0")
    assert result.code == 2
    assert "beam_size" in result.err
    assert "max_extra" in result.err


def test_bad_treebanks(run, tmp_path):
    arguments = ["paper", "table4", "--out", tmp_path / "out", "--trees"]
    assert "no such folder" in run(*arguments, tmp_path / "none").err
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "dev.mrg").write_text("(S (NN a))\n")
    result = run(*arguments, tmp_path / "few")
    assert result.code == 2
    assert "train.mrg" in result.err
    assert "test.mrg" in result.err
    write_treebank(tmp_path / "bad", 5, 5)
    for part in ("dev", "test"):
        path = tmp_path / "bad" / f"{part}.mrg"
        path.write_text(path.read_text() + "(S (NN a)\n")
    result = run(*arguments, tmp_path / "bad")
    assert result.code == 2
    assert "dev.mrg, line 6: not a tree" in result.err
    assert "test.mrg, line 6: not a tree" in result.err
    assert not (tmp_path / "out").exists()


def test_trees_that_cannot_be_learned_from_are_named(run, tmp_path):
    write_treebank(tmp_path / "trees", 20, 3)
    path = tmp_path / "trees" / "train.mrg"
    path.write_text("(S (NN a)\n" + path.read_text())
    result = run("paper", "table4", "--trees", tmp_path / "trees", "--out", tmp_path / "out", "--quiet")
    assert result.code == 0, result.err
    assert "left out of training" in result.err
    assert "train.mrg, line 1" in result.err
    assert result.out.startswith("grammar (PCFG): F1")


def test_nothing_to_do_and_two_of_a_name(run, tmp_path):
    write_treebank(tmp_path / "trees", 5, 2)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "r.yaml").write_text(RECIPE)
    arguments = ["--trees", tmp_path / "trees", "--out", tmp_path / "out"]
    assert "nothing to do" in run("paper", "table4", *arguments, "--no-grammar").err
    assert "same name" in run("paper", "table4", tmp_path / "a" / "r.yaml", tmp_path / "b" / "r.yaml", *arguments).err
    assert "invalid choice: 'vinyl'" in run("paper", "table4", *arguments, "--form", "vinyl").err


def test_stopped_parsing_goes_on(table, run):
    """A part file of whole chunks is kept; what was written is not parsed again."""
    out = table / "again"
    shutil.copytree(table / "out", out)
    (done,) = out.glob("grammar/test-*.tsv")
    lines = done.read_text().splitlines(keepends=True)
    marked = [line.replace("(NN ", "(ZZ ") for line in lines[:10]]
    done.rename(done.with_name(done.name + ".part")).write_text("".join(marked) + lines[10][:5])
    assert run("paper", "table4", "--trees", table / "trees", "--out", out, "--quiet").code == 0
    again = done.read_text().splitlines(keepends=True)
    assert again == marked + lines[10:]


def test_the_vinyals_form_runs_too(tmp_path, run):
    write_treebank(tmp_path / "trees", 40, 2)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    result = run(*command(tmp_path), "--form", "vinyals", "--tags", "xx", "--max-steps", "3", "--no-grammar", "--first", "30", "-q")
    assert result.code == 0, result.err
    first = (tmp_path / "out" / "tiny" / "data" / "train.brackets").read_text().splitlines()[0].split()
    assert set(first) <= {f"{side}{label}" for side in "()" for label in ["S", "NP", "VP", "PP", "ADVP", "PRT", "PRN"]} | {"XX"}
    facts = json.loads((tmp_path / "out" / "tiny" / "parsing.json").read_text())
    assert (facts["form"], facts["sizes"]) == ("vinyals", [30, 2])


def test_the_shipped_recipe_searches_as_in_the_paper():
    from undivided.config import build
    from undivided.settings import read_yaml

    search = build(read_yaml(ROOT / "recipes" / "craft-parsing.yaml")).search
    assert (search.beam_size, search.length_penalty, search.max_extra) == (21, 0.3, 300)
