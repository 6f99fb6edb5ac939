"""Models in Marian's own format: Marian itself (`pymarian`, in a venv of its own) gives the same translations and probabilities.

python -m venv .venv-peers/pymarian && .venv-peers/pymarian/bin/pip install pymarian==1.12.42
"""

import json
import subprocess
from pathlib import Path

import pytest
import torch

from marian_models import make_npz, sentences
from undivided.config import SearchConfig
from undivided.core.console import Console
from undivided.core.ids import BOS, EOS
from undivided.inference.search import search
from undivided.interop.door import import_model

PYTHON = Path(__file__).parents[2] / ".venv-peers" / "pymarian" / "bin" / "python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="pymarian is not in .venv-peers/pymarian")

SCRIPT = """
import json, sys
from pymarian import Translator
options, lines = json.load(sys.stdin)
print("RESULT" + json.dumps(Translator(**options).translate(lines)))
"""

KINDS = {
    "post-norm, shared": {},
    "separate": {"tie": "target"},
    "untied, relu": {"tie": "none", "activation": "relu"},
}


def by_marian(folder, beam, rows):
    """The n best of each row of pieces: pieces, and their log-probability as a sum."""
    vocabularies = sorted(str(path) for path in folder.glob("vocab*"))
    options = {
        "models": [str(folder / "model.npz")], "vocabs": [vocabularies[0], vocabularies[-1]], "beam_size": beam, "normalize": 1,
        "n_best": True, "cpu_threads": 1, "quiet": True, "max_length_factor": 10,
    }  # fmt: skip
    given = json.dumps([options, [" ".join(row) for row in rows]])
    ran = subprocess.run([PYTHON, "-c", SCRIPT], input=given, capture_output=True, text=True, check=False)
    assert "RESULT" in ran.stdout, ran.stderr[-2000:]
    answers = json.loads(ran.stdout.partition("RESULT")[2])
    found: list[list[tuple[list[str], float]]] = [[] for _ in rows]
    for number, text, score, _ in (line.split(" ||| ") for answer in answers for line in answer.splitlines()):
        found[int(number)].append((text.split(), float(score.removeprefix("F0= "))))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_marian_gives_the_same_probabilities(kind, tmp_path):
    """Greedy translations are equal; whatever else its beam finds has the same probability here."""
    make_npz(tmp_path / "theirs", yaml_vocabulary=True, **KINDS[kind])
    ours = import_model(tmp_path / "theirs", tmp_path / "ours", Console(quiet=True))
    source, target = ours.tokenizer.source, ours.tokenizer.target
    rows = source.encode(sentences(30, 8))
    split = [source.pieces(row[:-1]) for row in rows]
    ids = {piece: token for token, piece in enumerate(target.pieces(range(len(target))))}
    worst, lengths = 0.0, set()
    for row, answers in zip(rows, by_marian(tmp_path / "theirs", 4, split)):
        for pieces, score in answers:
            end = [EOS] if len(pieces) < 10 * len(row) else []
            tokens = torch.tensor([[BOS, *(ids[piece] for piece in pieces), *end]])
            read = tokens[:, : len(pieces) + len(end)]
            with torch.inference_mode():
                logits = ours.model.logits(ours.model.decode(ours.model.encode(torch.tensor([row]), None), read))
            worst = max(worst, abs(float(logits.log_softmax(-1)[0].gather(1, tokens[0, 1:, None]).sum()) - score))
            lengths.add(len(pieces))
    assert len(lengths) > 3
    assert worst < 2e-3, "nats of a sentence of up to a hundred tokens, of which Marian prints six digits"
    config = SearchConfig(beam_size=1, max_extra=60)
    found = search(ours.model, rows, config, torch.device("cpu"))
    greedy = [target.pieces(each[0].tokens) for each in found if each[0].finished]
    assert len(greedy) > 20
    assert greedy == [each[0][0] for each, own in zip(by_marian(tmp_path / "theirs", 1, split), found) if own[0].finished]
