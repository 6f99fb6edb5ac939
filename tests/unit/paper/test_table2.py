import gzip
import hashlib
import io
import shlex
import tarfile
from pathlib import Path

import pytest
import torch

from samples import drawn_points, flags, sentences
from undivided.cli import main
from undivided.config import build_recipe
from undivided.config.yaml_file import read_yaml
from undivided.models import make_model
from undivided.models.cost import PAPER_GPUS, PAPER_HOURS, SUSTAINED, paper_cost
from undivided.paper.table2.cost import PAPER, sustained_here, training_cost
from undivided.paper.table2.table import Run, compound_split_bleu, cost_table, split_compounds, write_report
from undivided.paper.table2.wmt import PUBLISHED, SIZES, TRAIN, Prepared, held_out, sgm_lines

RECIPES = Path(__file__).parents[3] / "recipes"


@pytest.mark.parametrize("preset", ["base", "big"])
def test_the_papers_costs_are_time_times_gpus_times_rate(preset):
    published = next(row.cost_de for row in PAPER if row.name == f"Transformer ({preset})")
    assert paper_cost(PAPER_HOURS[preset], PAPER_GPUS, SUSTAINED["P100"]) == pytest.approx(published, rel=0.02)


def test_counted_costs_are_below_what_the_machines_could_have_done():
    rows = [line.split("|") for line in cost_table().splitlines()[2:]]
    assert [row[1].strip() for row in rows] == ["base", "big"]
    assert all(0.1 < int(row[7].strip().rstrip("%")) / 100 < 1 for row in rows)
    base = build_recipe({"preset": "base"})
    assert training_cost(base.model, 37_000, 10, 25_000, 30) == 10 * training_cost(base.model, 37_000, 1, 25_000, 30)


def test_the_rate_of_a_product_is_measured():
    assert sustained_here(torch.device("cpu"), size=64, seconds=0.01) > 1e6


def test_compounds_are_split_at_hyphens():
    assert split_compounds("das Text-Format - x") == "das Text ##AT##-##AT## Format - x"
    assert split_compounds("An-und-Ab") == "An ##AT##-##AT## und ##AT##-##AT## Ab"


def test_tokenised_bleu_splits_german_compounds_only():
    ours, references = ["Das ist ein Text-Format für alle Fälle."], ["Das ist ein Ton-Format für alle Fälle."]
    split, whole = (compound_split_bleu(ours, references, lang) for lang in ("de", "fr"))
    assert split.score > whole.score > 0
    assert "compounds-split" in split.signature
    assert "compounds" not in whole.signature
    assert compound_split_bleu(references, references, "de").score == pytest.approx(100.0)
    assert compound_split_bleu(["a b"], ["c d"], "de").score == 0.0


@pytest.mark.parametrize("pair", ["de", "fr"])
@pytest.mark.parametrize("size", ["base", "big"])
def test_the_shipped_recipes_are_the_papers(pair, size):
    recipe = build_recipe(read_yaml(RECIPES / f"wmt14-en-{pair}-{size}.yaml"))
    assert (recipe.data.target_lang, recipe.tokens.vocab_size) == (pair, {"de": 37_000, "fr": 32_000}[pair])
    assert (recipe.tokens.kind, recipe.tokens.joint, recipe.batches.tokens) == ("bpe", True, 25_000)
    assert (recipe.train.average, recipe.train.max_steps) == {"base": (5, 100_000), "big": (20, 300_000)}[size]
    assert (recipe.search.beam_size, recipe.search.length_penalty, recipe.search.max_extra) == (4, 0.6, 50)
    dropout = {("de", "base"): 0.1, ("de", "big"): 0.3, ("fr", "base"): 0.1, ("fr", "big"): 0.1}
    assert recipe.model.dropout == dropout[pair, size]
    assert recipe.train.keep_last >= recipe.train.average
    assert (recipe.train.optimizer, recipe.train.schedule, recipe.train.warmup_steps, recipe.train.label_smoothing) == (
        "adam", "paper", 4000, 0.1,
    )  # fmt: skip
    with torch.device("meta"):
        model = make_model(recipe.model, recipe.tokens.vocab_size, recipe.tokens.vocab_size)
    weights = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    assert weights == pytest.approx({"base": 65, "big": 213}[size], rel=0.08)


def sgm(lines):
    body = "".join(f'<seg id="{number}">{line}</seg>\n' for number, line in enumerate(lines, 1))
    return f'<srcset setid="x"><doc docid="y">\n<p>\n{body}</p></doc></srcset>\n'.replace("dog", "d&amp;g")


def write_archive(path, members):
    mode = "w:gz" if path.suffix == ".tgz" else "w"
    with tarfile.open(path, mode) as tar:
        for name, text in members.items():
            content = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
            info = tarfile.TarInfo(f"folder/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def write_wmt(folder, target, sizes):
    """The files of WMT 2014 with made-up sentences in them, so many pairs a corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    members = {}
    for seed, (corpus, size) in enumerate(zip(TRAIN[target], sizes, strict=True), 1):
        pairs = sentences(size, seed)
        for side, name in enumerate(corpus[1:]):
            members.setdefault(corpus.archive, {})[name] = "".join(f"{pair[side]}\n" for pair in pairs)
    for seed, corpus in enumerate(held_out(target).values(), 50):
        pairs = sentences(12, seed)
        for side, names in enumerate(corpus[1:]):
            members.setdefault(corpus.archive, {})[names.split("|")[-1]] = sgm([pair[side] for pair in pairs])
    for archive, files in members.items():
        write_archive(folder / archive, files)
    return folder


SMALL = flags({
    "tokens": {"vocab_size": 330},
    "batches": {"tokens": 500},
    "model": {"d_model": 16, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1},
    "train": {"max_steps": 12, "save_every": 2, "threads": 1, "device": "cpu"},
    "search": {"max_extra": 5},
})  # fmt: skip
"""What makes a shipped recipe run in a moment; all else stays as shipped."""

THOUSANDTH = {"de": [1920, 2399, 201], "fr": [2008, 3244, 12887, 183, 22520]}
"""Pairs of every corpus, in the order of the published files: a thousandth of theirs."""


def table2(target, folder, *more):
    """The command on a shipped recipe with small settings."""
    recipe = RECIPES / f"wmt14-en-{target}-base.yaml"
    return ["paper", "table2", recipe, "--data", folder / "wmt", "--out", folder / "out", *SMALL, *more]


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("target", ["de", "fr"])
def test_the_whole_table_on_a_thousandth_of_the_size(run, tmp_path, target):
    """The shipped recipes as they are but for a small model, vocabulary and number of steps; a thousandth of the pairs."""
    sizes = THOUSANDTH[target]
    data = write_wmt(tmp_path / "wmt", target, sizes)
    result = run(*table2(target, tmp_path))
    assert result.code == 0, result.err
    for corpus, size in zip(TRAIN[target], sizes, strict=True):
        assert f"{size:,} pairs of {corpus.source} and {corpus.target}" in result.err
    text = {part: (tmp_path / "out" / "data" / f"{part}.en").read_text().splitlines() for part in ("train", "valid", "test")}
    assert [len(text[part]) for part in ("train", "valid", "test")] == [sum(sizes), 12, 12]
    assert not any("&amp;" in line or "<seg" in line for line in text["test"])
    report = (tmp_path / "out" / "report.md").read_text()
    for expected in (
        "| BLEU-tokenised |",
        "`nrefs:1\\|case:mixed",
        "## Trained here",
        "average of the last 5 checkpoints",
        "| Transformer (big) |",
        "beam 4, α 0.6. Every line was translated as one sentence, by PyTorch",
        {"de": "4.5 million pairs", "fr": "40.8 million pairs; the paper says 36 million"}[target],
    ):
        assert expected in report
    for path in data.iterdir():
        assert f"| {path.name} | `{sha256(path)}` | " in report
    again = run(*table2(target, tmp_path), "--checksums", tmp_path / "out" / "data" / "sha256.txt")
    assert again.code == 0, again.err
    assert "already trained" in again.err


def test_lines_are_translated_whole_by_pytorch(run, tmp_path, monkeypatch):
    from undivided.inference.translator import Translator

    seen, stream = [], Translator.stream
    monkeypatch.setattr(
        Translator, "stream", lambda self, *given, **more: seen.append((self.engine.name, more)) or stream(self, *given, **more)
    )
    write_wmt(tmp_path / "wmt", "de", [40, 40, 40])
    result = run(*table2("de", tmp_path))
    assert result.code == 0, result.err
    engine, options = seen[-1]
    assert engine == "torch"
    assert options["sentences"] is False


def test_under_torchrun_it_says_what_to_type_instead(run, tmp_path, monkeypatch):
    write_wmt(tmp_path / "wmt", "de", [40, 40, 40])
    with monkeypatch.context() as torchrun:
        torchrun.setenv("WORLD_SIZE", "2")
        said = run(*table2("de", tmp_path))
    assert said.code == 2
    assert not (tmp_path / "out").exists()
    prepare, train, score = (shlex.split(line) for line in said.err.splitlines()[1:])
    assert "in one process, not in 2" in said.err
    prepared = run(*prepare[1:])
    assert prepared.code == 0, prepared.err
    assert [shlex.split(line) for line in prepared.out.splitlines()] == [train, score]
    assert not (tmp_path / "out" / "model").exists()
    assert train[:5] == ["torchrun", "--nproc-per-node", "gpu", "-m", "undivided"]
    trained = run(*train[5:])
    assert trained.code == 0, trained.err
    scored = run(*score[1:])
    assert scored.code == 0, scored.err
    assert "already trained" in scored.err
    assert "BLEU" in scored.out


@pytest.mark.parametrize("facts", [{}, {"processes": 8}])
def test_every_process_that_trained_costs(tmp_path, facts):
    recipe = build_recipe({"preset": "base", "data": {"source_lang": "en", "target_lang": "de"}})
    known = {"seconds": 60.0, "parameters": 1, "vocabulary": 9, "steps": 1, "device": "cpu", "weights": "w", "target_tokens": 30}
    ran = Run(recipe, known | facts, [], 2e9, Prepared({}, {}, {}))
    write_report(ran, tmp_path / "r.md", [])
    series, points = 4, sum(1 for row in PAPER for cost in (row.cost_de, row.cost_fr) if cost)
    assert drawn_points(tmp_path / "r-cost.svg") == points + series  # the legend shows one of each
    devices = facts.get("processes", 1)
    assert ran.cost == pytest.approx(60 * 2e9 * devices)
    report = (tmp_path / "r.md").read_text()
    assert ("8 devices × 2 GFLOPS" if facts else "1 device × 2 GFLOPS") in report
    assert ("one is assumed" in report) is not bool(facts)


def test_files_that_are_missing_damaged_or_others(run, tmp_path):
    command = table2("de", tmp_path)
    assert "no such folder" in run(*command).err
    data = write_wmt(tmp_path / "wmt", "de", [5, 5, 5])
    (data / "dev.tgz").unlink()
    (data / "training-parallel-nc-v9.tgz").unlink()
    said = run(*command).err
    assert "dev.tgz is missing" in said
    assert "training-parallel-nc-v9.tgz is missing" in said
    assert not (tmp_path / "out").exists()
    write_wmt(data, "de", [5, 5, 5])
    (data / "training-parallel-commoncrawl.tgz").write_bytes(b"no archive")
    assert "commoncrawl.tgz: damaged" in run(*command).err
    write_archive(data / "training-parallel-commoncrawl.tgz", {"commoncrawl.de-en.en": "a\nb\n", "commoncrawl.de-en.de": "a\n"})
    assert "has 2 lines, but commoncrawl.de-en.de 1" in run(*command).err
    write_archive(data / "training-parallel-commoncrawl.tgz", {"commoncrawl.de-en.en": "a\nb\n"})
    assert "contains no commoncrawl.de-en.de" in run(*command).err


def test_a_list_of_checksums_binds_as_far_as_it_goes(run, tmp_path):
    data = write_wmt(tmp_path / "wmt", "de", [5, 5, 5])
    right = {path.name: sha256(path) for path in sorted(data.iterdir())}
    wrong = right | dict.fromkeys(("dev.tgz", "test-full.tgz"), "0" * 64)

    def prepared(sums):
        (tmp_path / "sums").write_text("".join(f"{value} *there/{name}\n" for name, value in sums.items()))
        return run(*table2("de", tmp_path, "--prepare-only", "--checksums", tmp_path / "sums"))

    before = prepared(wrong)
    assert before.code == 2
    assert not (tmp_path / "out").exists()
    some = prepared({"dev.tgz": right["dev.tgz"].upper()})
    assert some.code == 0, some.err
    assert "test-full.tgz: not in" in some.err
    assert "dev.tgz: not in" not in some.err
    for name in right:
        (data / name).unlink()
    assert prepared(right).code == 0
    after = prepared(wrong)
    assert after.code == 2
    for said, remedy in (
        (before.err, "download it again"),
        (after.err, f"download it again and remove {tmp_path / 'out' / 'data'}"),
    ):
        for name in ("dev.tgz", "test-full.tgz"):
            assert f"{name}: sha256 is {right[name]}, but {tmp_path / 'sums'} says {'0' * 64}; {remedy}\n" in said
    assert "cannot be read" in run(*table2("de", tmp_path, "--checksums", tmp_path / "none")).err


def test_published_checksums_warn_and_the_report_lists_what_was_checked(run, tmp_path, monkeypatch):
    data = write_wmt(tmp_path / "wmt", "de", [40, 40, 40])
    ours, published = sha256(data / "training-parallel-nc-v9.tgz"), PUBLISHED["sha256"]["training-parallel-nc-v9.tgz"]
    md5 = hashlib.md5((data / "test-full.tgz").read_bytes()).hexdigest()
    monkeypatch.setitem(PUBLISHED["md5"], "test-full.tgz", md5)
    monkeypatch.setitem(
        PUBLISHED["sha256"], "training-parallel-europarl-v7.tgz", sha256(data / "training-parallel-europarl-v7.tgz")
    )
    (tmp_path / "sums").write_text(f"{sha256(data / 'training-parallel-commoncrawl.tgz')}  training-parallel-commoncrawl.tgz\n")
    for _ in range(2):
        said = run(*table2("de", tmp_path, "--checksums", tmp_path / "sums"))
        assert said.code == 0, said.err
        assert f"training-parallel-nc-v9.tgz: its sha256 is {ours}, the published one is {published}" in said.err
        assert "dev.tgz: not checked" in said.err
        assert "commoncrawl.tgz: its" not in said.err
    report = (tmp_path / "out" / "report.md").read_text()
    rows = {cells[1].strip(): cells[3].strip() for cells in (line.split("|") for line in report.splitlines()) if len(cells) == 5}
    assert {name: rows[name] for name in (path.name for path in data.iterdir())} == {
        "training-parallel-europarl-v7.tgz": "as published (sha256)",
        "training-parallel-commoncrawl.tgz": "as in --checksums",
        "training-parallel-nc-v9.tgz": f"differs: sha256 {ours}, published {published}",
        "dev.tgz": "not checked: no published checksum",
        "test-full.tgz": "as published (md5)",
    }


def test_text_of_another_pair_is_not_taken_for_this_one(run, tmp_path):
    write_wmt(tmp_path / "wmt", "de", [5, 5, 5])
    assert run(*table2("de", tmp_path, "--prepare-only")).code == 0
    write_wmt(tmp_path / "wmt", "fr", [5, 5, 5, 5, 5])
    said = run(*table2("fr", tmp_path, "--prepare-only"))
    assert said.code == 2
    assert "another language pair; choose another --out" in said.err


def test_only_costs_without_a_recipe(run, tmp_path):
    result = run("paper", "table2", "--report", tmp_path / "t.md")
    assert result.code == 0, result.err
    assert "3.28e+18" in result.out
    assert "## Trained here" not in (tmp_path / "t.md").read_text()
    assert "go together" in run("paper", "table2", "--data", tmp_path).err
    assert "needs a recipe" in run("paper", "table2", "--prepare-only").err


def test_the_help_says_that_french_is_more_than_in_the_paper(capsys):
    with pytest.raises(SystemExit):
        main(["paper", "table2", "--help"])
    assert SIZES["fr"] in " ".join(capsys.readouterr().out.split())


def test_another_pair_is_not_in_the_table(run, tmp_path):
    said = run(*table2("de", tmp_path, "--data.target_lang", "ko")).err
    assert "en–de, en–fr, not en–ko" in said


def test_segments_of_sgml():
    stream = io.BytesIO('<seg id="1"> A &lt;b&gt;\n c </seg><SEG>ü</SEG>'.encode())
    assert list(sgm_lines(stream)) == [b"A <b> c", "ü".encode()]
