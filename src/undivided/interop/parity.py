"""Run a model by its own runtime and by ours, and compare the logits: part of every import and export."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from undivided.config import SearchConfig
from undivided.core.errors import UndividedError
from undivided.core.ids import BOS, EOS
from undivided.inference.search import search
from undivided.interop.vocabulary import Vocabulary
from undivided.models import Seq2Seq

TOLERANCE = 1e-3
"""The largest difference of a logit that float32 arithmetic in another order explains."""
SENTENCES = 8

GREEDY = ("num_labels", "id2label", "label2id", "quantization_config")
"""Settings of a foreign config that `transformers` need not be given, and that may ask it for anything."""

Rows = list[list[int]]


def sample_sources(vocabulary: Vocabulary, count: int = SENTENCES) -> Rows:
    """Made-up sentences of tokens that the foreign model has too, always the same."""
    chance = torch.Generator().manual_seed(len(vocabulary.pieces))
    usable = torch.tensor([token for token in range(EOS + 1, len(vocabulary.rows)) if vocabulary.rows[token] >= 0])
    lengths = torch.randint(3, 15, (count,), generator=chance).tolist()
    return [[*usable[torch.randint(len(usable), (each,), generator=chance)].tolist(), EOS] for each in lengths]


def compare_logits(
    model: Seq2Seq,
    vocabularies: tuple[Vocabulary, Vocabulary],
    runtime: Callable[[Sequence[int], Sequence[int]], Tensor],
    name: str,
) -> dict[str, Any]:
    """The record of the comparison; an error names the first sentence and step that differ.

    `runtime` gives the logits `T V` of foreign source ids and foreign target ids, the start symbol first.
    """
    worst, steps = 0.0, 0
    kept = torch.tensor([not masked for masked in vocabularies[1].masked])
    rows = torch.tensor(vocabularies[1].rows)
    for number, source in enumerate(sample_sources(vocabularies[0]), 1):
        best = search(model, [source], SearchConfig(beam_size=1, max_extra=5), torch.device("cpu"))[0][0].tokens
        read = [BOS, *best]
        with torch.inference_mode():
            ours = model.logits(model.decode(model.encode(torch.tensor([source]), None), torch.tensor([read])))[0]
        theirs = runtime([vocabularies[0].rows[token] for token in source], [vocabularies[1].rows[token] for token in read])
        gaps = (ours[:, kept] - theirs[:, rows[kept]]).abs().amax(dim=1)
        wrong = (~(gaps <= TOLERANCE)).nonzero()
        if len(wrong):
            step = int(wrong[0])
            raise UndividedError(
                f"{name} computes something else: sample sentence {number}, step {step + 1}: "
                f"logits differ by {float(gaps[step]):.4g}"
            )
        worst, steps = max(worst, float(gaps.max())), steps + len(read)
    return {"runtime": name, "sentences": SENTENCES, "steps": steps, "largest_logit_difference": worst}


Scores = Sequence[Sequence[float]]
"""Log-probability of every token of every sample sentence's translation."""


def compare_scores(ours: Scores, theirs: Scores, name: str) -> dict[str, Any]:
    """The record of a comparison of log-probabilities; an error names the first sentence and step that differ."""
    worst = 0.0
    for gap, number, step in _gaps(ours, theirs):
        if not gap <= TOLERANCE:
            raise UndividedError(
                f"{name} computes something else: sample sentence {number}, step {step}: log-probabilities differ by {gap:.4g}"
            )
        worst = max(worst, gap)
    return {"runtime": name, "sentences": len(ours), "largest_score_difference": worst}


def compare_rounded_scores(ours: Scores, theirs: Scores, name: str, allowed: float) -> dict[str, Any]:
    """The same where the weights were rounded, so that it is the mean that counts; an error names where they differ most."""
    gaps = _gaps(ours, theirs)
    mean = sum(gap for gap, _, _ in gaps) / len(gaps)
    if not mean <= allowed:
        gap, number, step = max(gaps)
        raise UndividedError(
            f"{name} computes something else: log-probabilities differ by {mean:.4f} on average, {allowed} is allowed, and most at "
            f"sample sentence {number}, step {step}, by {gap:.4g}; try --weights float32"
        )
    return {"runtime": name, "sentences": len(ours), "mean_difference": mean}


def _gaps(ours: Scores, theirs: Scores) -> list[tuple[float, int, int]]:
    """How far apart the scores of each token are, with the numbers of its sentence and step."""
    return [
        (abs(one - other), number, step)
        for number, rows in enumerate(zip(ours, theirs, strict=True), 1)
        for step, (one, other) in enumerate(zip(*rows, strict=True), 1)
    ]


def transformers_runtime(theirs: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Callable[..., Tensor] | None:
    """The same weights in `transformers`, which is never asked to read a file; None where it is not installed."""
    if importlib.util.find_spec("transformers") is None:
        return None
    import transformers

    prefix = {"marian": "Marian", "pegasus": "Pegasus"}[theirs["model_type"]]
    kind = "MarianMTModel" if prefix == "Marian" else "PegasusForConditionalGeneration"
    given = {name: value for name, value in theirs.items() if name not in GREEDY}
    # A table of sinusoids: the sample sentences are short.
    given["max_position_embeddings"] = min(int(theirs.get("max_position_embeddings") or 1024), 1024)
    table = tensors.get("model.encoder.embed_positions.weight")
    if table is not None:
        given["max_position_embeddings"] = len(table)
    config = getattr(transformers, f"{prefix}Config")(**given)
    model = getattr(transformers, kind)(config)
    model.load_state_dict(dict(tensors), strict=False)
    model.tie_weights()
    return transformers_logits(model)


def transformers_logits(model: Any) -> Callable[..., Tensor]:
    """What a model of `transformers` computes."""
    model.eval()

    def logits(source: Sequence[int], read: Sequence[int]) -> Tensor:
        with torch.inference_mode():
            return model(input_ids=torch.tensor([list(source)]), decoder_input_ids=torch.tensor([list(read)])).logits[0]

    return logits
