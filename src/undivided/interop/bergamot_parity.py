"""Run an export for Marian or Bergamot by its own engine, where one is installed, and compare."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from undivided.artifact import Artifact
from undivided.config import SearchConfig
from undivided.core.errors import UndividedError
from undivided.core.ids import EOS
from undivided.data.subword_proto import read_parts
from undivided.inference.search import forced_scores, search
from undivided.interop.parity import compare_scores
from undivided.interop.vocabulary import MASKED

SENTENCES, ROUNDED, MADE_UP = 8, 32, 64
"""Sentences that are compared, the same of weights in 8 bits, and those on which the inputs of products are measured."""
ALLOWED = 0.15
"""The most that 8 bits may cost a token's log-probability on average, in nats."""
UNIGRAM = 1
MODEL_TYPE = 3
"""Of a sentencepiece model: how it splits text."""
SECONDS = 600

MARIAN = """
import json, sys
from pymarian import Translator
options, lines = json.load(sys.stdin)
print("RESULT" + json.dumps(Translator(**options).translate(lines)))
"""

FIREFOX = """
import json, sys
from pathlib import Path
from fxtranslate import Translator
files, lines = json.load(sys.stdin)
translator = Translator(*(Path(name).read_bytes() for name in files))
print("RESULT" + json.dumps([translator.translate(line) for line in lines]))
"""


def sample_rows(artifact: Artifact, count: int = MADE_UP) -> list[list[int]]:
    """Made-up sentences of words that the model can read, always the same."""
    source, bias = artifact.tokenizer.source, artifact.model.output_bias
    words = torch.arange(EOS + 1, len(source))
    if artifact.recipe.model.tie == "all" and bias is not None:
        words = words[bias[EOS + 1 :] > MASKED / 2]
    chance = torch.Generator().manual_seed(len(source))
    lengths = torch.randint(3, 20, (count,), generator=chance).tolist()
    return [[*words[torch.randint(len(words), (each,), generator=chance)].tolist(), EOS] for each in lengths]


def run_peer(script: str, given: Any, python: str | Path = sys.executable) -> list[Any]:
    """What a script prints in a process of its own, since its engine ends the process where something is wrong."""
    try:
        ran = subprocess.run(
            [python, "-P", "-c", script], input=json.dumps(given), capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise UndividedError(f"the other engine did not end within {SECONDS} seconds") from None
    if "RESULT" not in ran.stdout:
        raise UndividedError(f"the other engine failed: {' '.join(ran.stderr.split())[-300:]}")
    found: list[Any] = json.loads(ran.stdout.partition("RESULT")[2])
    return found


def marian_options(folder: Path, names: Sequence[str], beam: int, normalize: float) -> dict[str, Any]:
    """How Marian is asked to read pieces and to write pieces, with their scores."""
    return {
        "models": [str(folder / "model.npz")], "vocabs": [str(folder / names[0]), str(folder / names[-1])], "beam_size": beam,
        "normalize": normalize, "n_best": True, "cpu_threads": 1, "quiet": True, "max_length_factor": 3, "mini_batch": 16,
        "no_spm_encode": True, "no_spm_decode": True, "allow_special": True,
    }  # fmt: skip


def parse_n_best(answers: Sequence[str], count: int) -> list[list[tuple[list[str], float]]]:
    """The hypotheses of each sentence: their pieces, and their log-probability."""
    found: list[list[tuple[list[str], float]]] = [[] for _ in range(count)]
    for number, text, score, _ in (line.split(" ||| ") for answer in answers for line in answer.splitlines()):
        found[int(number)].append((text.split(), float(score.removeprefix("F0= "))))
    return found


def compare_with_marian(
    artifact: Artifact, folder: Path, names: Sequence[str], python: str | Path = sys.executable
) -> dict[str, Any]:
    """The log-probabilities that Marian gives its own translations, beside ours."""
    if python == sys.executable and importlib.util.find_spec("pymarian") is None:
        return {"runtime": "none", "reason": "pymarian is not installed"}
    rows = sample_rows(artifact, SENTENCES)
    source, target = artifact.tokenizer.source, artifact.tokenizer.target
    given = [marian_options(folder, names, 1, 0.0), [" ".join(source.pieces(row[:-1])) for row in rows]]
    answers = parse_n_best(run_peer(MARIAN, given, python), len(rows))
    ids = {piece: token for token, piece in enumerate(target.pieces(range(len(target))))}
    ours, theirs = [], []
    for row, ((pieces, total), *_) in zip(rows, answers, strict=True):
        tokens = [ids[piece] for piece in pieces]
        # What is cut at its limit, which is that of the longest sentence, has no end.
        ended = [EOS] if len(tokens) < 3 * max(map(len, rows)) else []
        ours.append([sum(forced_scores(artifact.model, [row], [tokens + ended], torch.device("cpu"))[0])])
        theirs.append([total])
    return compare_scores(ours, theirs, "Marian")


def compare_rounded(artifact: Artifact, folder: Path, names: Sequence[str], python: str | Path = sys.executable) -> dict[str, Any]:
    """What 8 bits cost: the log-probability that our model gives the translations of Firefox's engine, beside its own."""
    if python == sys.executable and importlib.util.find_spec("fxtranslate") is None:
        return {"runtime": "none", "reason": "fxtranslate is not installed"}
    if splits_by_merges(artifact.tokenizer.source.model):
        return {"runtime": "none", "reason": "fxtranslate splits text by unigram models only (tokens.kind unigram)"}
    source, target = artifact.tokenizer.source, artifact.tokenizer.target
    texts = source.decode([row[:-1] for row in sample_rows(artifact, ROUNDED)])
    rows = source.encode(texts)
    # Without the shortlist, which was not made for what is made up.
    files = [str(folder / name) for name in ("model.intgemm8.bin", names[0], names[-1])]
    written = target.encode(run_peer(FIREFOX, [files, texts], python))
    cpu = torch.device("cpu")
    best = [each[0].tokens for each in search(artifact.model, rows, SearchConfig(beam_size=1), cpu)]
    own = forced_scores(artifact.model, rows, [[*each, EOS] for each in best], cpu)
    given = forced_scores(artifact.model, rows, written, cpu)
    means = [sum(map(sum, each)) / sum(map(len, each)) for each in (own, given)]
    if not means[0] - means[1] <= ALLOWED:
        raise UndividedError(
            f"Firefox's engine computes something else: its translations have {means[1]:.3f} nats a token in our model, our own "
            f"{means[0]:.3f}; {ALLOWED} less is allowed; try --weights float32"
        )
    return {"runtime": "fxtranslate", "sentences": len(rows), "mean_difference": max(0.0, means[0] - means[1])}


def splits_by_merges(model: bytes) -> bool:
    """Whether a subword model is no unigram model."""
    return read_parts(model).trainer.get(MODEL_TYPE, UNIGRAM) != UNIGRAM
