"""Exports for Marian, Bergamot and Firefox in their own engines: Marian itself, Firefox's, and Bergamot's WASM in node.

python -m venv .venv-peers/pymarian && .venv-peers/pymarian/bin/pip install pymarian==1.12.42 fxtranslate==0.5.0
"""

import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from bergamot_models import python_of, random_model, trained_model
from samples import sentences
from undivided.artifact import save_artifact
from undivided.config import SearchConfig
from undivided.core.ids import EOS
from undivided.inference.search import search
from undivided.interop import bergamot_parity as parity
from undivided.interop.bergamot_out import export_bergamot

CPU = torch.device("cpu")
PYTHON = python_of("pymarian")
NODE = shutil.which("node")
WASM = Path(__file__).parents[2] / ".venv" / "web" / "node_modules" / "@browsermt" / "bergamot-translator" / "worker"
HERE = Path(__file__).parent
marian = pytest.mark.skipif(not PYTHON.exists(), reason="pymarian is not in .venv-peers/pymarian")
has_firefox = PYTHON.exists() and any(PYTHON.parents[1].glob("lib/*/site-packages/fxtranslate"))
firefox = pytest.mark.skipif(not has_firefox, reason="fxtranslate is not in .venv-peers/pymarian")
wasm = pytest.mark.skipif(NODE is None or not WASM.is_dir(), reason="needs node, and Bergamot's WASM: make bergamot")
LINES = 200


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    home = tmp_path_factory.mktemp("trained")
    artifact = trained_model(home)
    save_artifact(artifact, home / "model")
    return artifact


def our_search(artifact, rows, beam):
    config = SearchConfig(beam_size=beam, length_penalty=0.0, length_norm="length", max_extra=30)
    return [each[0] for start in range(0, len(rows), 50) for each in search(artifact.model, rows[start : start + 50], config, CPU)]


def check_the_same_pieces(artifact, folder, rows, least):
    """Greedy up to where we cut; with beam 4 those that end, at `least` so many: engines cut the others by rules of their own."""
    names = ["vocab.spm"] if artifact.recipe.model.tie == "all" else ["source.spm", "target.spm"]
    lines = [" ".join(artifact.tokenizer.source.pieces(row[:-1])) for row in rows]
    for beam in (1, 4):
        ours = our_search(artifact, rows, beam)
        options = parity.marian_options(folder, names, beam, 0.0) | {"max_length_factor": 12}
        theirs = [each[0][0] for each in parity.parse_n_best(parity.run_peer(parity.MARIAN, [options, lines], PYTHON), len(rows))]
        compared = 0
        for place, each in enumerate(ours):
            own, other = artifact.tokenizer.target.pieces(each.tokens), theirs[place]
            if each.finished or beam == 1:
                compared += 1
                assert own == (other if each.finished else other[: len(own)]), f"beam {beam}, sentence {place}"
        assert compared >= (len(rows) if beam == 1 else least)
    assert parity.compare_with_marian(artifact, folder, names, PYTHON)["largest_score_difference"] < 1e-3


@marian
@pytest.mark.parametrize("changes", [{}, {"decoder_self": "attention"}, {"tie": "target"}, {"tie": "none"}], ids=str)
def test_marian_writes_what_we_write_random(changes, translator, tmp_path):
    artifact = random_model(translator.artifact.tokenizer, **changes)
    export_bergamot(artifact, tmp_path, "float32")
    chance, size = random.Random(4), len(artifact.tokenizer.source)
    rows = [[*(chance.randrange(EOS + 1, size) for _ in range(chance.randrange(2, 12))), EOS] for _ in range(LINES)]
    check_the_same_pieces(artifact, tmp_path, rows, LINES // 2)


@marian
def test_marian_writes_what_we_write_trained(trained, tmp_path):
    export_bergamot(trained, tmp_path, "float32")
    rows = trained.tokenizer.source.encode([source for source, _ in sentences(LINES, seed=6)])
    check_the_same_pieces(trained, tmp_path, rows, LINES)


def check_near(artifact, texts, lines, references):
    """In 8 bits: how many translations are right, beside ours in float32."""
    rows = artifact.tokenizer.source.encode(lines)
    ours = artifact.tokenizer.target.decode([each.tokens for each in our_search(artifact, rows, 1)])
    right, theirs = (sum(one == other for one, other in zip(found, references)) for found in (ours, texts))
    assert right >= 0.95 * len(lines)
    assert theirs >= right - 0.02 * len(lines), f"{theirs} right, ours in float32 {right}"


@firefox
@pytest.mark.parametrize("with_shortlist", [True, False])
def test_firefox_translates_in_8_bits(with_shortlist, trained, tmp_path):
    export_bergamot(trained, tmp_path, "int8")
    lines, references = zip(*sentences(LINES, seed=6))
    names = ["model.intgemm8.bin", "vocab.spm", "vocab.spm", *(["lex.bin"] if with_shortlist else [])]
    texts = parity.run_peer(parity.FIREFOX, [[str(tmp_path / name) for name in names], lines], PYTHON)
    check_near(trained, texts, lines, references)


@firefox
def test_the_comparison_of_8_bits_finds_another_model(trained, translator, tmp_path):
    """Near for its own export; an error for the export of random weights."""
    export_bergamot(trained, tmp_path, "int8")
    assert parity.compare_rounded(trained, tmp_path, ["vocab.spm"], PYTHON)["mean_difference"] < parity.ALLOWED
    other = random_model(trained.tokenizer)
    (tmp_path / "other").mkdir()
    export_bergamot(other, tmp_path / "other", "int8")
    with pytest.raises(parity.UndividedError, match="Firefox's engine computes something else"):
        parity.compare_rounded(trained, tmp_path / "other", ["vocab.spm"], PYTHON)


@wasm
@pytest.mark.parametrize("kind", ["ssru", "attention"])
def test_bergamot_translates_in_a_browsers_arithmetic(kind, trained, tmp_path):
    """Its WASM module, loaded as its extension loads it, with the shortlist; also with an ordinary decoder."""
    artifact = trained if kind == "ssru" else trained_model(tmp_path / "attention", decoder_self="attention")
    (tmp_path / "out").mkdir()
    export_bergamot(artifact, tmp_path / "out", "int8")
    shutil.copytree(WASM, tmp_path / "worker")
    (tmp_path / "worker" / "package.json").write_text('{"type": "commonjs"}')
    lines, references = zip(*sentences(LINES, seed=6))
    command = [str(NODE), str(HERE / "bergamot.mjs"), str(tmp_path / "worker" / "translator-worker.js"), str(tmp_path / "out")]
    given = "".join(f"{line}\n" for line in lines)
    ran = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stderr[-2000:]
    check_near(artifact, ran.stdout.splitlines(), lines, references)
