import gzip
import hashlib
import io
import tarfile

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from samples import sentences
from undivided.config import ModelConfig, build
from undivided.models import make_model
from undivided.paper.cost import PAPER, SUSTAINED, paper_cost, sustained_here, training_cost, work
from undivided.paper.table2 import compound_split_bleu, cost_table, split_compounds
from undivided.paper.wmt import TRAIN, held_out, sgm_lines


@pytest.mark.parametrize(("name", "hours"), [("Transformer (base)", 12.0), ("Transformer (big)", 84.0)])
def test_the_papers_costs_are_time_times_gpus_times_rate(name, hours):
    published = next(row.cost_de for row in PAPER if row.name == name)
    assert paper_cost(hours, 8, SUSTAINED["P100"]) == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"d_k": 3, "d_v": 5},
        {"activation": "swiglu", "encoder_layers": 3},
        {"norm": "pre", "tie": "none", "decoder_layers": 1},
        {"join_positions": "concatenate"},
    ],
    ids=str,
)
def test_the_count_from_shapes_is_torchs(changes):
    config = ModelConfig(
        **{"d_model": 16, "d_ff": 24, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0} | changes
    )
    model = make_model(config, 50, 50)
    src, tgt = torch.randint(4, 50, (3, 7)), torch.randint(4, 50, (3, 5))
    with FlopCounterMode(display=False) as counter:
        states = model.decode(model.encode(src, None), tgt)
        model.logits(states)
    assert counter.get_total_flops() == 2 * work(config, 50, 3, 7, 5).forward


def test_backward_costs_twice_as_much_as_forward():
    config = ModelConfig(d_model=16, d_ff=24, n_heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0)
    model = make_model(config, 50, 50)
    src, tgt = torch.randint(4, 50, (3, 7)), torch.randint(4, 50, (3, 5))
    with FlopCounterMode(display=False) as counter:
        model.logits(model.decode(model.encode(src, None), tgt)).sum().backward()
    assert counter.get_total_flops() == work(config, 50, 3, 7, 5).training_flops


def test_counted_costs_are_below_what_the_machines_could_have_done():
    rows = [line.split("|") for line in cost_table().splitlines()[2:]]
    assert [row[1].strip() for row in rows] == ["base", "big"]
    assert all(0.1 < int(row[7].strip().rstrip("%")) / 100 < 1 for row in rows)
    base = build({"preset": "base"})
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
    from pathlib import Path

    from undivided.settings import read_yaml

    recipe = build(read_yaml(Path(__file__).parents[2] / "recipes" / f"wmt14-en-{pair}-{size}.yaml"))
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


def write_wmt(folder, target, size):
    """The files of WMT 2014 with made-up sentences in them."""
    folder.mkdir(parents=True, exist_ok=True)
    members = {}
    for seed, corpus in enumerate(TRAIN[target], 1):
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


RECIPE = """
preset: base
data: {source_lang: en, target_lang: TARGET}
tokens: {vocab_size: 330}
batches: {tokens: 500}
model: {d_model: 16, d_ff: 32, n_heads: 2, encoder_layers: 1, decoder_layers: 1}
train: {max_steps: 12, warmup_steps: 4, save_every: 4, average: 2, threads: 1, validate_every: 1000}
search: {max_extra: 5}
"""


@pytest.mark.parametrize(("target", "size"), [("de", 1500), ("fr", 40)])
def test_the_whole_table_on_a_thousandth_of_the_size(run, tmp_path, target, size):
    data = write_wmt(tmp_path / "wmt", target, size)
    (tmp_path / "r.yaml").write_text(RECIPE.replace("TARGET", target))
    command = ["paper", "table2", tmp_path / "r.yaml", "--data", data, "--out", tmp_path / "out"]
    result = run(*command)
    assert result.code == 0, result.err
    assert f"{size:,} pairs of europarl-v7.{target}-en.en" in result.err
    text = {part: (tmp_path / "out" / "data" / f"{part}.en").read_text().splitlines() for part in ("train", "valid", "test")}
    assert [len(text[part]) for part in ("train", "valid", "test")] == [size * len(TRAIN[target]), 12, 12]
    assert not any("&amp;" in line or "<seg" in line for line in text["test"])
    report = (tmp_path / "out" / "report.md").read_text()
    for expected in (
        "BLEU-tokenised",
        "## Trained here",
        "average of the last 2 checkpoints",
        "| Transformer (big) |",
        "beam 4, α 0.6",
    ):
        assert expected in report
    sums = (tmp_path / "out" / "data" / "sha256.txt").read_text()
    assert hashlib.sha256((data / "dev.tgz").read_bytes()).hexdigest() in sums
    assert sums.strip() in report
    again = run(*command, "--checksums", tmp_path / "out" / "data" / "sha256.txt")
    assert again.code == 0, again.err
    assert "trained already" in again.err


def test_files_that_are_missing_damaged_or_others(run, tmp_path):
    (tmp_path / "r.yaml").write_text(RECIPE.replace("TARGET", "de"))
    command = ["paper", "table2", tmp_path / "r.yaml", "--out", tmp_path / "out", "--data"]
    assert "no such folder" in run(*command, tmp_path / "none").err
    data = write_wmt(tmp_path / "wmt", "de", 5)
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(data.iterdir())[:-1])
    (tmp_path / "sums").write_text(sums.replace(sums[:6], "000000", 1))
    said = run(*command, data, "--checksums", tmp_path / "sums")
    assert said.code == 2
    assert "dev.tgz: sha256 is" in said.err
    assert "training-parallel-nc-v9.tgz: not in" in said.err
    (data / "dev.tgz").unlink()
    (data / "training-parallel-nc-v9.tgz").unlink()
    said = run(*command, data).err
    assert "dev.tgz is not there" in said
    assert "training-parallel-nc-v9.tgz is not there" in said
    assert not (tmp_path / "out").exists()
    write_wmt(data, "de", 5)
    (data / "training-parallel-commoncrawl.tgz").write_bytes(b"no archive")
    assert "commoncrawl.tgz: damaged" in run(*command, data).err
    write_archive(data / "training-parallel-commoncrawl.tgz", {"commoncrawl.de-en.en": "a\nb\n", "commoncrawl.de-en.de": "a\n"})
    assert "has 2 lines, but commoncrawl.de-en.de 1" in run(*command, data).err
    write_archive(data / "training-parallel-commoncrawl.tgz", {"commoncrawl.de-en.en": "a\nb\n"})
    assert "holds no commoncrawl.de-en.de" in run(*command, data).err


def test_only_costs_without_a_recipe(run, tmp_path):
    result = run("paper", "table2", "--report", tmp_path / "t.md")
    assert result.code == 0, result.err
    assert "3.28e+18" in result.out
    assert "## Trained here" not in (tmp_path / "t.md").read_text()
    assert "go together" in run("paper", "table2", "--data", tmp_path).err


def test_another_pair_is_not_in_the_table(run, tmp_path):
    (tmp_path / "r.yaml").write_text(RECIPE.replace("TARGET", "ko"))
    said = run("paper", "table2", tmp_path / "r.yaml", "--data", tmp_path, "--out", tmp_path / "o").err
    assert "en–de, en–fr, not en–ko" in said


def test_segments_of_sgml():
    stream = io.BytesIO('<seg id="1"> A &lt;b&gt;\n c </seg><SEG>ü</SEG>'.encode())
    assert list(sgm_lines(stream)) == [b"A <b> c", "ü".encode()]
