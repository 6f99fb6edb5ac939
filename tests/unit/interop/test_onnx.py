"""Translators go out to ONNX: onnxruntime computes the same, and the loops beside them translate as we do."""

import io
import json
import random
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece
import torch

from marian_models import WORDS, sentences
from undivided.cli import main
from undivided.config import SearchConfig
from undivided.core.errors import InputError
from undivided.data.subword_proto import read_pieces, reorder_pieces
from undivided.data.subwords import Subwords
from undivided.inference.search import search
from undivided.interop import onnx_model
from undivided.interop.export import export_model
from undivided.interop.onnx_out import onnx_logits

from test_marian_out import make_translator  # isort: skip

KINDS = {
    "paper": {},
    "pre-norm, biases, window": {"model.norm": "pre", "model.attention_bias": True, "model.window": 6},
    "learned positions, gelu": {"model.positions": "learned", "model.max_positions": 64, "model.activation": "gelu"},
    "untied, swiglu, own widths": {"model.tie": "none", "model.activation": "swiglu", "model.d_k": 5, "model.d_v": 7},
    "separate, gelu_tanh, output bias": {
        "model.tie": "target", "tokens.joint": False, "model.activation": "gelu_tanh", "model.output_bias": True,
    },
    "concatenated, swish, halves": {
        "model.join_positions": "concatenate", "model.activation": "swish", "model.positions": "halves",
    },
}  # fmt: skip


@pytest.fixture
def made():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    return make_translator


@pytest.mark.parametrize("kind", KINDS)
def test_onnxruntime_computes_and_writes_the_same(kind, made, tmp_path, console):
    ours = made(tmp_path / "ours", KINDS[kind])
    export_model(tmp_path / "ours", tmp_path / "out", "onnx", console)
    rows = ours.tokenizer.source.encode([*sentences(10, 9), "Ж", ""])
    runtime = onnx_logits(tmp_path / "out")
    read = [2, *range(40, 60)]
    for row in rows[:4]:
        with torch.inference_mode():
            states = ours.model.decode(ours.model.encode(torch.tensor([row]), None), torch.tensor([read]))
            assert torch.allclose(runtime(row, read), ours.model.logits(states)[0], atol=1e-4)
    config = SearchConfig(beam_size=1, max_extra=ours.recipe.search.max_extra)
    greedy = [found[0].tokens for found in search(ours.model, rows, config, torch.device("cpu"))]
    loop = runpy.run_path(str(tmp_path / "out" / "translate.py"))["translate_ids"]
    assert loop(rows) == greedy


def test_the_loop_in_python_runs_by_itself(made, tmp_path, console):
    ours = made(tmp_path / "ours", {"data.source_lang": "en", "data.target_lang": "xx"})
    export_model(tmp_path / "ours", tmp_path / "out", "onnx", console)
    lines = sentences(2, 5)
    program = [sys.executable, tmp_path / "out" / "translate.py"]
    found = subprocess.run(program, check=False, input="\n".join(lines) + "\n", capture_output=True, encoding="utf-8", timeout=120)
    assert found.returncode == 0, found.stderr
    best = search(ours.model, ours.tokenizer.source.encode(lines), SearchConfig(beam_size=1), torch.device("cpu"))
    assert found.stdout.splitlines() == ours.tokenizer.target.decode([each[0].tokens for each in best])
    assert "# en → xx" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_a_graph_that_computes_something_else_fails_and_leaves_nothing(made, tmp_path, monkeypatch, capsys):
    made(tmp_path / "ours", {})
    right = onnx_model.attend

    def unscaled(graph, query, key, value, mask, widths):
        return right(graph, query, key, value, mask, (widths[0], 1, widths[2]))

    monkeypatch.setattr(onnx_model, "attend", unscaled)
    assert main(["export", str(tmp_path / "ours"), str(tmp_path / "out"), "--to", "onnx"]) == 1
    said = capsys.readouterr().err
    assert "onnxruntime computes something else: sample sentence 1" in said
    assert "step 1: logits differ by" in said
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_without_the_extra_it_says_what_to_install(made, tmp_path, monkeypatch, console):
    made(tmp_path / "ours", {})
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"pip install 'undivided\[onnx\]'"):
        export_model(tmp_path / "ours", tmp_path / "out", "onnx", console)
    assert not (tmp_path / "out").exists()


def test_what_has_no_graph_is_refused(made, tmp_path, console):
    made(tmp_path / "ours", {"model.kind": "recurrent", "model.d_ff": 2048, "model.n_heads": 8})
    with pytest.raises(InputError, match="it is a recurrent model"):
        export_model(tmp_path / "ours", tmp_path / "out", "onnx", console)


READ = """
import { Subwords } from "SUBWORDS";
import { readFile } from "node:fs/promises";
const subwords = new Subwords(await readFile(process.argv[2]));
const lines = JSON.parse(await readFile(process.argv[3], "utf8"));
console.log(JSON.stringify(lines.map((line) => [subwords.encode(line), subwords.decode(subwords.encode(line))])));
"""
ODD = ["", "  ", " a", "a  b ", "▁", "a ▁ b▁", "Ж한語", "ﬁ ① ｱ", "e\u0301", "\u00a0x\u3000y", "🏳️‍🌈 x", "a\tb", "<0x41></s><unk>"]
OURS = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True}


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize(
    "settings", [OURS, {}, {"user_defined_symbols": ["ab", ">>deu<<"]}, None], ids=["ours", "theirs", "symbols", "by name"]
)
@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_subwords_in_javascript_are_those_of_sentencepiece(kind, settings, tmp_path):
    model = io.BytesIO()
    chance = random.Random(4)
    by_name = ["Ж", "語🏳"] if settings is None else []
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*sentences(300, 1), "äé한語. fi 1"]), model_writer=model, model_type=kind, vocab_size=400,
        hard_vocab_limit=False, pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2, **(settings or {}),
    )  # fmt: skip
    # An imported vocabulary may have what its sentencepiece model has not.
    content = reorder_pieces(model.getvalue(), [*(piece.text for piece in read_pieces(model.getvalue())), *by_name])
    (tmp_path / "a.spm").write_bytes(content)
    made_up = ["".join(chance.choices(["ab", " ", "  ", *"▁äé한語ﬁ①\u00a0\u0301\u200d🏳.x", *WORDS], k=9)) for _ in range(150)]
    lines = [*sentences(50, 3), *ODD, *made_up, ">>deu<< The dog.", ">>xxx<< The"]
    (tmp_path / "lines.json").write_text(json.dumps(lines))
    module = Path(onnx_model.__file__).with_name("onnx_web") / "subwords.mjs"
    (tmp_path / "read.mjs").write_text(READ.replace("SUBWORDS", module.as_uri()))
    command = ["node", tmp_path / "read.mjs", tmp_path / "a.spm", tmp_path / "lines.json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
    subwords = Subwords(content)
    rows = [row[:-1] for row in subwords.encode(lines)]
    assert not by_name or any(len(subwords) - 1 in row for row in rows)
    assert [ids for ids, _ in found] == rows
    assert [text for _, text in found] == subwords.decode(rows)
