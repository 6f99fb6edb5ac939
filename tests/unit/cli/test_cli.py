import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sacrebleu

from samples import flags, sentences, tiny_recipe, write_lines, write_pairs
from undivided.cli import main

REFERENCE = ("--threads", "1", "--engine", "torch")
VERBS = ("train", "translate", "score", "look", "generate", "classify", "plan", "distill", "average", "paper", "demo")
PAIRS = sentences(40, seed=3)


@pytest.fixture
def files(tmp_path):
    return write_pairs(tmp_path, "train", PAIRS)


@pytest.fixture
def fails(run):
    """Run something that must fail: in a few clear lines, without a traceback. What it said."""

    def call(code, *arguments):
        result = run(*arguments)
        assert result.code == code, result.err
        assert result.out == ""
        assert "Traceback" not in result.err
        assert result.err.splitlines()[-1].strip()
        assert "undivided: " in result.err
        return result.err

    return call


def test_help_works_without_torch(python):
    code = (
        "import sys, time; began = time.monotonic()\n"
        "from undivided.cli import main\n"
        "for verb in [], *([v] for v in sys.argv[1:]):\n"
        "    try: main([*verb, '--help'])\n"
        "    except SystemExit as stop: assert stop.code == 0\n"
        "assert time.monotonic() - began < 2\n"
        "heavy = {'torch', 'numpy', 'sentencepiece', 'sacrebleu'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    text = python(code, *VERBS)
    for expected in (*VERBS, "--model.d_model", "--beam-size", "--lenpen", "--batch-tokens", "--quiet"):
        assert expected in text


def test_python_m_undivided(spawn):
    out, err = spawn("--version").communicate()
    assert (out.split()[0], err) == (b"undivided", b"")


@pytest.mark.parametrize("arguments", [[], ["fly"], ["train", "--fly"], ["translate"], ["translate", "m", "--beam-size"]])
def test_wrong_usage(fails, arguments):
    said = fails(2, *arguments)
    assert len(said.splitlines()) == 2
    assert "--help" in said


def test_wrong_search_settings_are_all_named(fails, model):
    said = fails(2, "translate", model, "--beam-size", "x", "--lenpen", "y")
    assert "beam-size" in said
    assert "length-penalty" in said


@pytest.mark.parametrize("flag", [["--threads", "-1"], ["--device", "toaster"], ["--device", "cuda:99"], ["--beam-size", "0"]])
def test_impossible_values(fails, model, tmp_path, flag):
    fails(2, "translate", model, write_lines(tmp_path / "in", ["a"]), *flag)


# Training on bad input.


def test_train_needs_out_and_text(fails, tmp_path):
    assert "--out" in fails(2, "train")
    assert "--train" in fails(2, "train", "--out", tmp_path / "m")


@pytest.mark.parametrize("text", ["train: 5", "train: [a]", "train: {out: 5}", "train: {out: [a]}", "5", "model: [a]"])
def test_odd_recipes(fails, tmp_path, text, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(text)
    fails(2, "train", tmp_path / "r.yaml")


def test_wrong_recipe_key(fails, tmp_path, files):
    (tmp_path / "r.yaml").write_text("model:\n  d_modle: 64\ntrain:\n  max_step: 3\n")
    said = fails(2, "train", tmp_path / "r.yaml", "--train", *files, "--out", tmp_path / "m")
    assert "r.yaml, line 2: model.d_modle: no such setting; did you mean 'd_model'?" in said
    assert "r.yaml, line 4: train.max_step: no such setting; did you mean 'max_steps'?" in said
    assert not (tmp_path / "m").exists()


def test_the_place_of_a_fault_is_where_the_value_was_written(fails, tmp_path, files):
    (tmp_path / "r.yaml").write_text("model:\n  d_model: wide\n  n_heads: many\n")
    said = fails(2, "train", tmp_path / "r.yaml", "--train", *files, "--out", tmp_path / "m", "--model.d_model=broad")
    assert "r.yaml, line 3: model.n_heads: expected a whole number, got 'many'" in said
    assert "- model.d_model: expected a whole number, got 'broad'" in said
    (tmp_path / "r.yaml").write_text("model:\n  d_model: [1,\n  n_heads: 2: 3\n")
    assert "r.yaml, line 3: not valid YAML: " in fails(2, "train", tmp_path / "r.yaml", "--train", *files)


def test_missing_corpus(fails, tmp_path, files):
    assert "none.de: no such file" in fails(2, "train", "--train", files[0], tmp_path / "none.de", "--out", tmp_path / "m")
    assert "none.yaml: no such recipe" in fails(2, "train", tmp_path / "none.yaml", "--out", tmp_path / "m")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "empty"), (b"\x00\xff\xfe\x89PNG\n" * 50, "no line can be used"), (b"x\n" * 30, "ends after 30 lines")],
    ids=["empty", "binary", "shorter"],
)
def test_bad_target_file(fails, tmp_path, files, content, said):
    Path(files[1]).write_bytes(content)
    if not content:
        Path(files[0]).write_bytes(b"")
    elif said.startswith("no line"):
        Path(files[0]).write_bytes(b"x\n" * content.count(b"\n"))
    assert said in fails(2, "train", "--train", *files, "--out", tmp_path / "m", "--quiet")
    assert not (tmp_path / "m").exists()


def test_a_directory_in_place_of_a_file(fails, tmp_path, files):
    assert "is a directory" in fails(2, "train", "--train", files[0], tmp_path, "--out", tmp_path / "m")


def test_out_that_cannot_be_written(run, tmp_path, files):
    (tmp_path / "m").write_text("in the way")
    result = run("train", "--train", *files, "--out", tmp_path / "m", "--quiet")
    assert result.code == 2
    assert "Traceback" not in result.err
    assert f"{tmp_path / 'm'}: is a file; name a folder" in result.err
    assert (tmp_path / "m").read_text() == "in the way"


def test_one_sentence_is_enough(run, tmp_path):
    files = write_pairs(tmp_path, "one", PAIRS[:1])
    recipe = tiny_recipe(tmp_path / "m", files)
    recipe["train"]["max_steps"] = 3
    result = run("train", *flags(recipe))
    assert result.code == 0, result.err
    assert "fitted to 3 steps" in result.err
    assert "no validation data" in result.err
    assert run("translate", tmp_path / "m", files[0], *REFERENCE).out.count("\n") == 1


def test_train_reports_what_it_drops(run, tmp_path, files):
    Path(files[0]).write_bytes(Path(files[0]).read_bytes().replace(PAIRS[4][0].encode(), b"\xff", 1))
    recipe = tiny_recipe(tmp_path / "m", files)
    recipe["train"]["max_steps"] = 2
    result = run("train", *flags(recipe))
    assert result.code == 0, result.err
    assert "40 lines read, 39 kept, 1 dropped" in result.err
    assert result.out == ""


def test_a_damaged_training_record_is_named(fails, tmp_path, files):
    (tmp_path / "m" / "training").mkdir(parents=True)
    (tmp_path / "m" / "training" / "recipe.json").write_text('{"recipe": {')
    assert "recipe.json" in fails(2, "train", "--train", *files, "--out", tmp_path / "m")


@pytest.mark.parametrize("size", ["8k", "64k", "500k", "1200k", "2500k"])
def test_full_disk_while_training(fails, tmp_path, files, small_disk, size):
    recipe = tiny_recipe(small_disk(size) / "m", files)
    recipe["model"] |= {"d_model": 128, "d_ff": 128}
    recipe["train"] |= {"max_steps": 4, "save_every": 2}
    assert "the disk is full" in fails(1, "train", *flags(recipe), "--quiet")


def test_full_disk_while_translating(fails, tmp_path, model, small_disk):
    home = small_disk("4k")
    text = write_lines(tmp_path / "in", [source for source, _ in PAIRS] * 10)
    assert "the disk is full" in fails(1, "translate", model, text, "-o", home / "out", *REFERENCE, "--beam-size", "1", "-q")
    assert not (home / "out").exists()


# Translating.


def test_translate_files(run, tmp_path, model, translator):
    lines = [PAIRS[0][0], "", PAIRS[1][0], "  ", PAIRS[0][0]]
    text = write_lines(tmp_path / "in", lines)
    expected = "".join(f"{each}\n" for each in translator.translate(lines))
    result = run("translate", model, text, *REFERENCE)
    assert (result.code, result.out) == (0, expected)
    result = run("translate", model, text, *REFERENCE, "-o", tmp_path / "out")
    assert (result.code, result.out) == (0, "")
    assert (tmp_path / "out").read_text() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_crlf_and_compressed_input(run, tmp_path, model, translator):
    import gzip

    (tmp_path / "in.gz").write_bytes(gzip.compress(b"".join(f"{source}\r\n".encode() for source, _ in PAIRS[:3])))
    expected = translator.translate([source for source, _ in PAIRS[:3]])
    assert run("translate", model, tmp_path / "in.gz", *REFERENCE).out.splitlines() == expected


def test_scores_and_n_best_formats(run, tmp_path, model, translator):
    text = write_lines(tmp_path / "in", [PAIRS[0][0], "", PAIRS[1][0]])
    rows = run("translate", model, text, "--scores", *REFERENCE).out.splitlines()
    best = [row.split("\t") for row in rows]
    assert [row[2] for row in best] == translator.translate([PAIRS[0][0], "", PAIRS[1][0]])
    rows = [row.split("\t") for row in run("translate", model, text, "--n-best", "3", *REFERENCE).out.splitlines()]
    assert [next(row for row in rows if row[0] == number) for number in "123"] == best, "one format"
    assert [row[0] for row in rows].count("1") == [row[0] for row in rows].count("3") == 3
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert all(len(row) == 3 and float(row[1]) <= 0 for row in rows)


def test_quiet_and_progress(run, tmp_path, model):
    text = write_lines(tmp_path / "in", [PAIRS[0][0]])
    assert run("translate", model, text, "--quiet", *REFERENCE).err == ""


def test_invalid_utf8_warns_and_keeps_the_count(run, tmp_path, model):
    (tmp_path / "in").write_bytes(f"{PAIRS[0][0]}\n".encode() + b"a \xff b\n\xfe\n")
    result = run("translate", model, tmp_path / "in", "--quiet", *REFERENCE)
    assert result.code == 0
    assert result.out.count("\n") == 3
    assert "line 2: not valid UTF-8" in result.err
    assert "line 3: not valid UTF-8" in result.err


def test_one_nul_flags_its_line_and_the_rest_is_translated(run, tmp_path, model):
    good = PAIRS[0][0]
    (tmp_path / "in").write_bytes(f"{good}\n".encode() + b"\0bad\na \xff b\n" + f"{good}\n".encode())
    result = run("translate", model, tmp_path / "in", "--report", tmp_path / "r.jsonl", *REFERENCE)
    assert result.code == 0
    lines = result.out.split("\n")
    assert len(lines) == 5
    assert lines[0] == lines[3] != ""
    assert "line 2: a NUL character" in result.err
    verdicts = [json.loads(line)["verdict"] for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert verdicts[1:3] == ["broken-text", "broken-text"]
    assert "broken-text" not in (verdicts[0], verdicts[3])


def test_a_file_full_of_nul_is_refused(run, tmp_path, model):
    (tmp_path / "in").write_bytes("wide text\n".encode("utf-16-le"))
    result = run("translate", model, tmp_path / "in", "-o", tmp_path / "out", *REFERENCE)
    assert result.code == 2
    assert "line 1: holds a NUL" in result.err
    assert not (tmp_path / "out").exists()


def test_line_of_100000_characters(run, tmp_path, model):
    text = write_lines(tmp_path / "in", ["The dog sees a tree today. " * 3700, "x" * 2000, PAIRS[0][0]])
    result = run("translate", model, text, *REFERENCE, "--beam-size", "1")
    assert result.code == 0
    assert result.out.count("\n") == 3
    assert "line 1: " in result.err
    assert "pieces" in result.err


def test_characters_never_seen(run, tmp_path, model):
    result = run("translate", model, write_lines(tmp_path / "in", ["東京は大きい。", "🏳️‍🌈", "\u2028"]), *REFERENCE)
    assert result.code == 0
    assert result.out.count("\n") == 3


def test_missing_input_and_model(fails, tmp_path, model):
    assert "none.txt: no such file" in fails(2, "translate", model, tmp_path / "none.txt")
    assert "no such model folder" in fails(2, "translate", tmp_path / "none", write_lines(tmp_path / "in", ["a"]))
    assert "is a directory" in fails(2, "translate", model, tmp_path)


def test_too_few_prefix_lines(fails, tmp_path, model):
    text, prefix = write_lines(tmp_path / "in", ["a", "b"]), write_lines(tmp_path / "prefix", ["x"])
    fails(2, "translate", model, text, "--prefix", prefix, *REFERENCE)


def test_damaged_model(fails, tmp_path, model):
    home = shutil.copytree(model, tmp_path / "m", ignore=shutil.ignore_patterns("training"))
    content = bytearray((home / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (home / "model.safetensors").write_bytes(content)
    assert "model.safetensors is damaged" in fails(2, "translate", home, write_lines(tmp_path / "in", ["a"]))


# Pipes need a process of their own.


def ask(process, source: str) -> str:
    """Write a line, read its answer."""
    process.stdin.write(f"{source}\n".encode())
    process.stdin.flush()
    return process.stdout.readline().decode()


def test_an_answer_comes_while_stdin_stays_open(spawn, model, translator):
    with spawn("translate", model, *REFERENCE, "--quiet") as process:
        for source, _ in PAIRS[:2]:
            assert ask(process, source) == f"{translator.translate(source)}\n"
        out, err = process.communicate()
    assert (process.returncode, out, err) == (0, b"", b"")


def test_interrupt_while_waiting_for_input(spawn, model):
    with spawn("translate", model, *REFERENCE, "--quiet") as process:
        ask(process, PAIRS[0][0])
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == b""


def test_a_closed_pipe_is_quiet(model, tmp_path):
    text = write_lines(tmp_path / "in", [source for source, _ in PAIRS] * 100)
    command = (
        f"{sys.executable} -m undivided translate {model} {' '.join(REFERENCE)} --beam-size 1 < {text} 2> {tmp_path}/err | head -1"
    )
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60, check=False)
    assert done.stdout.count(b"\n") == 1
    assert done.returncode == 0
    assert (tmp_path / "err").read_text() == "engine torch, beam 1, length penalty 1\n"


def test_a_reader_that_leaves_while_stdin_stays_open(spawn, model):
    with spawn("translate", model, *REFERENCE, "--quiet") as process:
        ask(process, PAIRS[0][0])
        process.stdout.close()
        process.stdin.write(f"{PAIRS[1][0]}\n".encode())
        process.stdin.flush()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


# Scoring and averaging.


def test_score_files(run, tmp_path):
    hypotheses, references = [target for _, target in PAIRS], [target.replace("der", "ein") for _, target in PAIRS]
    paths = write_lines(tmp_path / "hyp", hypotheses), write_lines(tmp_path / "ref", references)
    result = run("score", *paths, "--json")
    rows = {row["name"]: row for row in map(json.loads, result.out.splitlines())}
    assert result.code == 0
    assert rows["BLEU"]["score"] == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert rows["BLEU"]["signature"].startswith("nrefs:1")
    assert [line.split()[0] for line in run("score", *paths, "--moses", "de").out.splitlines()] == [
        "BLEU",
        "chrF2",
        "TER",
        "BLEU-moses-lc",
    ]


def test_score_of_a_model(run, tmp_path, model, translator):
    files = write_pairs(tmp_path, "test", PAIRS)
    result = run("score", *files, "--model", model, "--threads", "1", "-o", tmp_path / "out", "--json")
    rows = {row["name"]: row["score"] for row in map(json.loads, result.out.splitlines())}
    outputs = translator.translate([source for source, _ in PAIRS])
    assert rows["BLEU"] == sacrebleu.corpus_bleu(outputs, [[target for _, target in PAIRS]]).score
    assert rows["perplexity"] > 1
    assert (tmp_path / "out").read_text().splitlines() == outputs


def test_score_of_unequal_files(fails, tmp_path):
    paths = write_lines(tmp_path / "hyp", ["a", "b"]), write_lines(tmp_path / "ref", ["a"])
    said = fails(2, "score", *paths)
    assert "hyp has 2 lines" in said
    assert "ref has 1" in said
    assert "no such file" in fails(2, "score", tmp_path / "none", paths[0])


def test_average(run, fails, tmp_path, model):
    assert run("average", model, "--last", "2", "-o", tmp_path / "avg").code == 0
    assert run("translate", tmp_path / "avg", write_lines(tmp_path / "in", ["a"]), *REFERENCE).code == 0
    assert "99 asked for" in fails(2, "average", model, "--last", "99", "-o", tmp_path / "none")
    fails(2, "average", model, "--last", "0", "-o", tmp_path / "none")


def test_help_is_quick(spawn):
    """Under 0.4 s on an idle machine; three tries, with room for a busy one."""
    best = 9.0
    for _ in range(3):
        began = time.monotonic()
        assert spawn("train", "--help").communicate()[0]
        best = min(best, time.monotonic() - began)
    assert best < 0.8


@pytest.mark.parametrize("more", [[], ["--workers", "2"]])
def test_a_text_is_not_replaced_by_its_translation(run, model, tmp_path, more):
    (tmp_path / "in").write_text("The old horse hears.\n")
    result = run("translate", model, tmp_path / "in", "-o", tmp_path / "in", *more)
    assert (result.code, "cannot be written to" in result.err) == (2, True)
    (tmp_path / "link").symlink_to(tmp_path / "in")
    assert run("translate", model, tmp_path / "in", "-o", tmp_path / "link", *more).code == 2
    assert run("score", "--model", model, tmp_path / "in", tmp_path / "in", "-o", tmp_path / "in").code == 2
    assert (tmp_path / "in").read_text() == "The old horse hears.\n"


def test_a_file_may_stand_behind_options(run, model, tmp_path):
    (tmp_path / "in").write_text("The old horse hears.\n")
    before = run("translate", model, tmp_path / "in", "--beam-size", "1")
    behind = run("translate", model, "--beam-size", "1", tmp_path / "in")
    assert (behind.code, behind.out) == (0, before.out)
    assert before.out.strip()


def test_what_is_unknown_gets_a_hint(run):
    result = run("train", "--model.d_modle=3")
    assert result.code == 2
    assert "--model.d_modle=3; did you mean --model.d_model?" in result.err
    assert "undivided train --help" in result.err
    assert "unrecognized arguments: three" in run("translate", "one", "two", "three").err


def test_an_output_that_is_a_folder(run, model, tmp_path):
    (tmp_path / "in").write_text("The old horse hears.\n")
    (tmp_path / "out").mkdir()
    result = run("translate", model, tmp_path / "in", "-o", tmp_path / "out")
    assert (result.code, f"{tmp_path / 'out'}: is a folder" in result.err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_an_output_in_no_directory(run, model, tmp_path):
    (tmp_path / "in").write_text("The old horse hears.\n")
    result = run("translate", model, tmp_path / "in", "-o", tmp_path / "none" / "out")
    assert (result.code, f"{tmp_path / 'none'}: no such directory" in result.err) == (2, True)


@pytest.mark.parametrize("verb", ["train", "translate", "look", "score", "plan"])
def test_no_flag_is_named_twice_in_the_help(capsys, verb):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    for line in capsys.readouterr().out.splitlines():
        names = [word.strip(",") for word in line.split() if word.startswith("--")] if line.startswith("  -") else []
        assert len(names) == len(set(names)), line


def test_a_file_where_the_model_should_go(run, tmp_path):
    for name in ("out", "a", "b"):
        (tmp_path / name).write_text("x\n")
    result = run("train", "--train", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "out")
    assert (result.code, "is a file; name a folder" in result.err) == (2, True)


def test_no_file_of_another_is_replaced_by_a_model(fails, tmp_path, files):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("dear")
    said = fails(2, "train", "--train", *files, "--out", tmp_path / "mine")
    assert "mine: the model would replace what is there (README.md); name a new folder with --out" in said
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["README.md"]


def test_a_byte_order_mark_is_no_text_on_stdin_either(spawn, model, translator):
    process = spawn("translate", model, "--threads", "1", "-", *REFERENCE)
    out, err = process.communicate(b"\xef\xbb\xbf" + f"{PAIRS[0][0]}\n".encode())
    assert process.returncode == 0, err
    assert out.decode() == f"{translator.translate(PAIRS[0][0])}\n"
    assert b"engine torch, beam" in err


def test_of_a_line_in_pieces_there_are_n_best_too(run, model, tmp_path):
    text = write_lines(tmp_path / "in", [" ".join(source for source, _ in PAIRS[:6]), PAIRS[0][0]])
    ran = run("translate", model, text, "--n-best", "3", *REFERENCE)
    assert [line.split("\t")[0] for line in ran.out.splitlines()] == ["1", "1", "1", "2", "2", "2"]


def test_an_interrupt_of_any_verb_ends_with_130(run, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("undivided.cli._call_verb", interrupt)
    assert run("plan", "--preset", "tiny").code == 130
