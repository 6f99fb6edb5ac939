import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from made_trees import write_treebank
from samples import drawn_points, environment
from undivided.cli import main
from undivided.config import SearchConfig
from undivided.inference.translator import Translation, Translator
from undivided.paper.parsing.brackets import Counts, compute_agreement, score_trees
from undivided.paper.parsing.linear import FAULTS, linearise, repair_with_faults
from undivided.paper.parsing.parser import Output, generate_outputs, tokenise_text
from undivided.paper.parsing.table4 import PAPER
from undivided.paper.parsing.trees import parse_tree, read_trees, simplify, words

ROOT = Path(__file__).parents[3]
RECIPE = """
tokens: {vocab_size: 300}
batches: {tokens: 800}
model: {d_model: 32, d_ff: 64, n_heads: 2, encoder_layers: 1, decoder_layers: 1, dropout: 0.0, norm: pre, tie: target}
train: {max_steps: 120, schedule: cosine, rate: 0.01, warmup_steps: 10, threads: 1, save_every: 60, validate_every: 1000,
        average: 1, validate_lines: 4}
search: {beam_size: 3, length_penalty: 0.3, max_extra: 20}
"""
LSTM = """
data: {max_length: 45}
tokens: {vocab_size: 300}
batches: {tokens: 800}
model: {kind: recurrent, cell: lstm, attention: multiplicative, d_model: 32, d_hidden: 48, encoder_layers: 1, decoder_layers: 1,
        dropout: 0.0, tie: target}
train: {max_steps: 60, schedule: cosine, rate: 0.01, warmup_steps: 10, threads: 1, save_every: 60, validate_every: 1000,
        average: 1, validate_lines: 4}
search: {beam_size: 2, length_penalty: 0.3, max_extra: 20}
"""
GRAMMAR = "grammar (PCFG)"


def command(folder, recipes=("tiny", "lstm")):
    paths = [folder / f"{name}.yaml" for name in recipes]
    return ["paper", "table4", *paths, "--trees", folder / "trees", "--out", folder / "out"]


def read_tables(path):
    """The tables of a report: of each the rows by their first cell, each row a dictionary by the names of the columns."""
    tables = []
    for block in re.findall(r"(?:^\|.*\|\n)+", path.read_text() + "\n", re.MULTILINE):
        header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
        tables.append({row[0]: dict(zip(header, row, strict=True)) for row in rows})
    return tables


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A whole run at a small size: the folder."""
    folder = tmp_path_factory.mktemp("table4")
    write_treebank(folder / "trees")
    (folder / "tiny.yaml").write_text(RECIPE)
    (folder / "lstm.yaml").write_text(LSTM)
    assert main([str(each) for each in [*command(folder), "--report", folder / "report.md", "--quiet"]]) == 0
    return folder


@pytest.fixture
def altered(table, tmp_path):
    """The same folder for a test that changes it; afterwards it is as it was."""
    shutil.copytree(table / "out", tmp_path / "out")
    yield table
    shutil.rmtree(table / "out")
    shutil.copytree(tmp_path / "out", table / "out")


def test_the_report_has_every_parser_beside_the_paper(table):
    results, *_, paper = read_tables(table / "report.md")
    assert list(results) == ["tiny", "lstm", GRAMMAR]
    assert all(0 < float(row["F1"].strip("*")) <= 100 for row in results.values())
    assert float(results[GRAMMAR]["F1"].strip("*")) > 60
    for name, row in results.items():
        found = score_trees(*(read_trees(table / "out" / name.split()[0] / f"test.{kind}")[0] for kind in ("gold", "parsed")))
        shown = [row[each] for each in ("precision", "recall", "exact match", "crossing", "none crossing", "at most 2 crossing")]
        right = [found.precision, found.recall, found.exact, found.crossing, found.no_crossing, found.few_crossing]
        assert shown == [f"{figure:.2f}" for figure in right]
    assert {name for name, _, _ in PAPER} == paper.keys()
    assert "form `compact`" in (table / "report.md").read_text()


def test_the_report_says_how_each_parser_came_to_be(table):
    made = read_tables(table / "report.md")[1]
    assert list(made) == ["tiny", "lstm", GRAMMAR]
    for name, beam in (("tiny", "3"), ("lstm", "2")):
        row, facts = made[name], json.loads((table / "out" / name / "model" / "config.json").read_text())["facts"]
        assert row["parameters"] == f"{facts['parameters']:,}"
        assert row["minutes of training"] == f"{facts['seconds'] / 60:.1f}"
        assert (row["threads"], row["steps"]) == ("1", str(facts["steps"]))
        assert [row[each] for each in ("engine", "beam", "α", "longest output")] == ["torch", beam, "0.3", "input + 20"]
    assert (made[GRAMMAR]["training trees"], made[GRAMMAR]["engine"]) == ("200", "CKY")


def test_trees_too_long_to_learn_from_are_counted(table):
    from undivided.data.subwords import Tokenizer

    made = read_tables(table / "report.md")[1]
    source = Tokenizer.load(table / "out" / "lstm" / "model").source
    rows = source.encode((table / "out" / "lstm" / "data" / "train.words").read_text().splitlines())
    over = sum(len(row) > 45 for row in rows)
    assert 0 < over < 100
    assert (made["lstm"]["too long"], made["lstm"]["training trees"]) == (str(over), str(200 - over))
    assert (made["tiny"]["too long"], made["tiny"]["training trees"]) == ("0", "200")


def test_what_repair_did_is_told_from_the_outputs_that_were_kept(altered, run):
    """Outputs with known faults are put in the place of the model's; they are not parsed anew."""
    (kept,) = altered.glob("out/tiny/test-*.tsv")
    good = [" ".join(linearise(tree)) for tree in read_trees(altered / "trees" / "test.mrg")[0]]
    bad = [good[0] + " NN", good[1].rpartition(" ")[0], good[2] + ")", "(X(Y|" + good[3] + ")", good[4] + " (NP)", "?()"]
    kept.write_text(
        "".join(f"{int(place != 5)}\t{1 + (place == 7)}\t{2 * (place == 8)}\t{text}\n" for place, text in enumerate(bad + good[6:]))
    )
    assert run(*command(altered), "--no-grammar", "--quiet").code == 0
    row = read_tables(altered / "out" / "report.md")[2]["tiny"]
    assert [int(row[each]) for each in ("outputs", "well-formed", "not the beam's first", "repaired")] == [12, 6, 1, 6]
    assert {kind: int(row[kind]) for kind in FAULTS} == {
        "too few words": 2,
        "too many words": 1,
        "brackets left open": 2,
        "brackets that close nothing": 2,
        "empty brackets": 1,
        "other": 1,
    }
    assert [row["cut at the limit"], row["in pieces"]] == ["1", "1"]


def test_of_the_beam_the_best_whole_tree_is_taken(monkeypatch):
    """The first hypothesis leaves a bracket open; the third is a tree. Of a beam without any, the first is taken."""
    beams = [["(S|A (NP|B)", "(S|A B) C", "(S|A B)", "(X|A B)"], ["(S|A", "(X|A"]]

    class Written:
        def stream(self, lines, advance, **options):
            assert options["n_best"] == options["beam_size"] == 4
            assert options["sentences"] is False
            for line, texts in zip(lines, beams, strict=True):
                yield Translation(line, texts[0], 0.0, False, tuple((text, 0.0) for text in texts))

    monkeypatch.setattr("undivided.paper.parsing.parser._constrained_trees", lambda *args: {})
    found = list(generate_outputs(Written(), [["a", "b"], ["a", "b"]], SearchConfig(beam_size=4)))
    assert found == [Output(True, 1, 2, "(S|A B)"), Output(False, 1, 0, "(S|A")]


def test_the_counts_of_repair_are_those_of_the_outputs(table):
    repairs = read_tables(table / "report.md")[2]
    assert list(repairs) == ["tiny", "lstm"]
    gold = read_trees(table / "trees" / "test.mrg")[0]
    for name, row in repairs.items():
        (kept,) = table.glob(f"out/{name}/test-*.tsv")
        rows = [line.split("\t", 3) for line in kept.read_text().splitlines()]
        faults = [repair_with_faults(text, words(tree))[1] for (*_, text), tree in zip(rows, gold, strict=True)]
        assert int(row["well-formed"]) == sum(not each for each in faults)
        assert int(row["cut at the limit"]) == sum(finished == "0" for finished, *_ in rows)
        assert int(row["in pieces"]) == sum(pieces != "1" for _, pieces, *_ in rows)


def test_f1_by_length_is_drawn_for_every_parser(table):
    by_length = read_tables(table / "report.md")[3]
    picture = (table / "report-length.svg").read_text()
    assert "](report-length.svg)" in (table / "report.md").read_text()
    for name in ("tiny", "lstm", GRAMMAR):
        assert f">{name}</text>" in picture
    assert picture.count('<g id="LineCollection') == 3
    assert drawn_points(table / "report-length.svg") == 3 * (len(by_length) + 1)  # the legend shows one of each
    assert all(f">{words}</text>" in picture for words in by_length)
    assert sum(int(row["sentences"]) for row in by_length.values()) == 12


def test_another_search_is_asked_of_a_training_that_is_done(altered, run):
    assert run(*command(altered), "--no-grammar", "--quiet", "--beam-size", "1").code == 0
    made = read_tables(altered / "out" / "report.md")[1]
    assert (made["tiny"]["beam"], made["lstm"]["beam"]) == ("1", "1")
    assert all(len(list(altered.glob(f"out/{name}/test-*.tsv"))) == 2 for name in ("tiny", "lstm"))


def test_the_lstm_is_a_small_one_of_the_shipped_recipe():
    from undivided.config import build_recipe
    from undivided.config.yaml_file import read_yaml

    shipped, small = (
        build_recipe(each).model for each in (read_yaml(ROOT / "recipes" / "craft-parsing-lstm.yaml"), yaml.safe_load(LSTM))
    )
    for name in ("kind", "cell", "attention", "bidirectional", "input_feeding", "tie"):
        assert getattr(small, name) == getattr(shipped, name)


def test_every_sentence_has_a_tree_over_its_words(table):
    gold = [words(simplify(parse_tree(line))) for line in (table / "trees" / "test.mrg").read_text().splitlines()]
    for parser in ("tiny", "lstm", "grammar"):
        for name in ("test.gold", "test.parsed", "test.own-tags"):
            lines = (table / "out" / parser / name).read_text().splitlines()
            assert [words(parse_tree(line)) for line in lines] == gold


def test_source_and_target_are_token_by_token(table):
    from undivided.core.ids import EOS
    from undivided.data.subwords import Tokenizer

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
    assert "already trained" in result.err
    assert [(path, path.stat().st_mtime_ns) for path in kept] == before
    assert result.out.splitlines()[0].startswith("tiny: F1 ")
    assert (table / "out" / "report.md").exists()


def test_other_settings_are_another_run(table, run):
    result = run(*command(table), "--tags", "xx")
    assert result.code == 2
    assert "tags was 'keep', now 'xx'" in result.err
    result = run(*command(table, ["tiny"]), "--model.d_ff", "96")
    assert result.code == 2
    assert "model.d_ff was 64, now 96" in result.err


def test_parsing_text(table, run, tmp_path):
    lines = ["The dog sees a cell (of mice).", "", "every tree may bind", "¿ 日本 x_y"]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    result = run("paper", "parse", table / "out" / "tiny" / "model", tmp_path / "in.txt", "--beam-size", "2", "--max-extra", "9")
    assert result.code == 0, result.err
    out = result.out.split("\n")[:-1]
    assert [words(parse_tree(line)) if line else [] for line in out] == [tokenise_text(line) for line in lines]
    result = run("paper", "parse", table / "out" / "tiny" / "model", tmp_path / "in.txt", "--tokenised", "--max-extra", "9")
    assert words(parse_tree(result.out.splitlines()[0])) == lines[0].split()


@pytest.mark.parametrize("beam", [1, 5])
def test_in_the_compact_form_a_search_writes_nothing_but_trees(table, beam):
    """Whatever the model has learned, and of words with one subword or many."""
    translator = Translator(table / "out" / "tiny" / "model", engine="torch")
    sentences = [words(tree) for tree in read_trees(table / "trees" / "test.mrg")[0]] + [["x"], ["Zürich", "日本語"], ["a"] * 40]
    with torch.no_grad():
        translator.artifact.model.output_weight.copy_(torch.randn_like(translator.artifact.model.output_weight))
    found = list(generate_outputs(translator, sentences, SearchConfig(beam_size=beam, max_extra=300)))
    assert all(output.finished and output.pieces == 1 and output.rank == 0 for output in found)
    assert [repair_with_faults(output.text, sentence)[1] for output, sentence in zip(found, sentences)] == [frozenset()] * len(
        sentences
    )
    assert len({output.text for output in found}) > len(found) // 2


def test_what_is_longer_than_training_is_still_parsed(table):
    translator = Translator(table / "out" / "tiny" / "model", engine="torch")
    long = ["cell"] * (translator.limits.longest + 5)
    (output,) = generate_outputs(translator, [long], SearchConfig(beam_size=2, max_extra=5))
    assert output.pieces > 1
    assert words(repair_with_faults(output.text, long)[0]) == long


def test_accents_that_stand_apart_belong_to_their_word_and_what_cannot_be_seen_is_none():
    assert tokenise_text("cafe\u0301 na\u200bive \ufeff") == ["cafe\u0301", "na", "ive"]


def test_words_of_raw_text():
    assert tokenise_text("It's (IL-2) 3.5%, e.g. don't; A/B...") == [
        "It", "'s", "(", "IL", "-", "2", ")", "3.5", "%", ",", "e.g.", "do", "n't", ";", "A", "/", "B", "...",
    ]  # fmt: skip
    assert tokenise_text("  ") == []
    assert tokenise_text('"No," he said ("never").') == ["``", "No", ",", "''", "he", "said", "(", "``", "never", "''", ")", "."]


def test_what_is_no_text_is_not_parsed(table, tmp_path):
    command = [sys.executable, "-m", "undivided", "paper", "parse", str(table / "out" / "tiny" / "model")]
    for given, said in ((b"a \0 b\n", "stdin, line 1: holds a NUL"), (b"a\n\xff\n", "stdin, line 2: not valid UTF-8")):
        done = subprocess.run(command, input=given, capture_output=True, env=environment(), check=False)
        assert done.returncode == 2
        assert said in done.stderr.decode()


def test_parsing_with_what_is_not_a_parser(run, model, tmp_path):
    (tmp_path / "in.txt").write_text("a\n")
    result = run("paper", "parse", model, tmp_path / "in.txt")
    assert result.code == 2
    assert "does not write trees" in result.err
    assert run("paper", "parse", model, tmp_path / "none.txt").code == 2
    result = run("paper", "parse", model, tmp_path / "in.txt", "--beam-size", "x", "--max-extra", "0")
    assert result.code == 2
    assert "--beam-size" in result.err
    assert "--max-extra" in result.err


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
    assert "skipped in training" in result.err
    assert "train.mrg, line 1" in result.err
    assert result.out.startswith("grammar (PCFG): F1")


def test_nothing_to_do_and_two_of_a_name(run, tmp_path):
    write_treebank(tmp_path / "trees", 5, 2)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "r.yaml").write_text(RECIPE)
    arguments = ["--trees", tmp_path / "trees", "--out", tmp_path / "out"]
    assert "nothing to do" in run("paper", "table4", *arguments, "--no-grammar").err
    assert "same file name" in run("paper", "table4", tmp_path / "a" / "r.yaml", tmp_path / "b" / "r.yaml", *arguments).err
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
    result = run(
        *command(tmp_path, ["tiny"]), "--form", "vinyals", "--tags", "xx", "--max-steps", "3", "--no-grammar", "--first", "30", "-q"
    )
    assert result.code == 0, result.err
    first = (tmp_path / "out" / "tiny" / "data" / "train.brackets").read_text().splitlines()[0].split()
    assert set(first) <= {f"{side}{label}" for side in "()" for label in ["S", "NP", "VP", "PP", "ADVP", "PRT", "PRN"]} | {"XX"}
    facts = json.loads((tmp_path / "out" / "tiny" / "parsing.json").read_text())
    assert (facts["form"], facts["sizes"]) == ("vinyals", [30, 2])


def test_the_shipped_recipe_searches_as_in_the_paper():
    from undivided.config import build_recipe
    from undivided.config.yaml_file import read_yaml

    search = build_recipe(read_yaml(ROOT / "recipes" / "craft-parsing.yaml")).search
    assert (search.beam_size, search.length_penalty, search.max_extra) == (21, 0.3, 300)


def test_sentences_with_at_most_two_crossing_brackets():
    counts = [Counts(9, 9, 5, crossing, 20, 20) for crossing in (0, 1, 2, 3)]
    found = compute_agreement([*counts, None])
    assert (found.no_crossing, found.few_crossing) == (25.0, 75.0)
