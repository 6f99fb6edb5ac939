"""Follow one sentence through a model and record attention, predictions, beam search and embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from undivided.artifact import Artifact, SingleStackArtifact
from undivided.config import SearchConfig
from undivided.core.console import plural
from undivided.core.errors import InputError
from undivided.core.ids import EOS
from undivided.data.batches import PairBatch, make_batch
from undivided.data.subword_sampling import SPACE_MARK
from undivided.data.subwords import Subwords, to_one_line
from undivided.inference.hypothesis import length_penalty
from undivided.look.beam import search_with_tree
from undivided.look.result import Candidate, Facts, Lens, Look, Numbers, Step, Token, Use, to_readonly_array
from undivided.look.saliency import compute_saliency
from undivided.look.space import compute_space
from undivided.models import Memory, Seq2Seq
from undivided.nn.attention import MultiHeadAttention, attention_hook

CANDIDATES, LENS = 10, 5
"""How many candidates tokens are kept of a prediction, and of a layer's prediction (logit lens)."""


def capture(
    artifact: Artifact, text: str, target: str | None = None, config: SearchConfig | None = None, prefix: Sequence[int] = ()
) -> Look:
    """Follow a text and its translation (the model's own, or a given `target`) through a model.

    The translation is searched for as usual, among those that begin with the ids of `prefix`; then one teacher-forced pass over it
    is recorded.
    """
    config = config if config is not None else artifact.recipe.search
    src, forced = _ids(artifact, text, target, config)
    subwords = artifact.tokenizer.target
    model = cast(nn.Module, artifact.model)
    device = next(model.parameters()).device
    best, branches = search_with_tree(artifact.model, src, config, device, subwords, prefix)
    own = to_one_line(subwords.decode([best.tokens])[0])
    tgt = forced if forced is not None else [*best.tokens, *([EOS] if best.finished else [])]
    with torch.inference_mode(mode=False):
        batch = make_batch([src], [tgt]).to(device)
    with torch.inference_mode():
        recording = record_pass(artifact.model, batch)
        steps, log_probability = _steps(artifact.model, recording, batch, subwords)
        where = compute_space(artifact, src, tgt, recording.memory.states)
    by_source, by_target = compute_saliency(artifact.model, batch)
    source = to_tokens(artifact.tokenizer.source, src)
    return Look(
        text=text,
        translation=own if target is None else target,
        forced=target is not None,
        own=own,
        score=best.score
        if target is None
        else log_probability / float(length_penalty(len(tgt), config.length_penalty, config.length_norm)),
        log_probability=best.log_probability if target is None else log_probability,
        finished=best.finished,
        source=source,
        steps=steps,
        encoder=recording.attention("encoder", len(src), len(src)),
        decoder=recording.attention("decoder", len(tgt), len(tgt)),
        cross=recording.attention("cross", len(tgt), len(src)),
        beam=branches,
        saliency_source=by_source,
        saliency_target=by_target,
        space=where,
        facts=describe_facts(artifact, config),
    )


def _ids(artifact: Artifact, text: str, target: str | None, config: SearchConfig) -> tuple[list[int], list[int] | None]:
    """The ids of text and target; one error with every fault of them."""
    faults: list[str] = []
    rows: list[list[int] | None] = []
    longest = artifact.recipe.data.max_length
    for name, line, subwords in (("text", text, artifact.tokenizer.source), ("target", target, artifact.tokenizer.target)):
        if line is None:
            rows.append(None)
            continue
        if not line.strip():
            faults.append(f"the {name} is empty")
        if "\n" in line or "\r" in line:
            faults.append(f"the {name} has several lines; give one line")
        ids = subwords.encode([line])[0]
        rows.append(ids)
        if len(ids) > longest:
            count = plural(len(ids), "subword")
            faults.append(f"the {name} has {count}, but training had at most {longest} (data.max_length); give a shorter one")
    if config.sample:
        faults.append("look follows beam search, so sampling cannot be used")
    if faults:
        raise InputError("; ".join(faults))
    return cast("list[int]", rows[0]), rows[1]


def to_tokens(subwords: Subwords, ids: Sequence[int]) -> tuple[Token, ...]:
    """Ids as subwords that know their word; words are separated by spaces."""
    pieces = subwords.pieces(ids)
    groups: list[list[int]] = []
    for place, (token, piece) in enumerate(zip(ids, pieces, strict=True)):
        if token > EOS:
            if piece.startswith(SPACE_MARK) or not groups:
                groups.append([place])
            else:
                groups[-1].append(place)
    words = [group for group in groups if any(pieces[place].strip(SPACE_MARK) for place in group)]
    word_of = {place: number for number, group in enumerate(words) for place in group}
    return tuple(Token(token, pieces[place], word_of.get(place, -1)) for place, token in enumerate(ids))


@dataclass
class Recording:
    """One recorded pass: the attention weights of each layer, in the order of the layers; memory and states."""

    model: nn.Module
    weights: dict[nn.Module, list[Tensor]] = field(default_factory=dict)
    states: Tensor = field(default_factory=lambda: torch.empty(0))  # B T D
    memory: Memory = field(default_factory=lambda: Memory(torch.empty(0), None))

    def __call__(self, owner: nn.Module, weights: Tensor) -> Tensor:
        """Record some weights (an attention hook); a recurrent decoder calls it once per position."""
        self.weights.setdefault(owner, []).append(weights)
        return weights

    def owners(self, use: Use) -> list[nn.Module]:
        """The attention modules of one use, one for each layer."""
        encoder = getattr(self.model, "encoder", None)
        inside = set(encoder.modules()) if isinstance(encoder, nn.Module) else set()
        return [owner for owner in self.weights if _use(owner, owner in inside) == use]

    def attention(self, use: Use, rows: int, columns: int) -> Numbers:
        """The weights of one use, `L H rows columns`; no layers if the model has no such attention."""
        layers = [torch.cat(self.weights[owner], dim=-2)[0] for owner in self.owners(use)]
        if not layers:
            return to_readonly_array(torch.empty(0, 0, rows, columns))
        return to_readonly_array(torch.stack(layers))


def _use(owner: nn.Module, in_encoder: bool) -> Use:
    """The use of an attention module: self-attention computes `qkv` from one sequence, any other attends to the source."""
    if not isinstance(owner, MultiHeadAttention) or not hasattr(owner, "qkv"):
        return "cross"
    return "encoder" if in_encoder else "decoder"


def record_pass(model: Seq2Seq, batch: PairBatch) -> Recording:
    """Record one teacher-forced pass."""
    recording = Recording(cast(nn.Module, model))
    with attention_hook(recording):
        recording.memory = model.encode(batch.src, None)
        recording.states = model.decode(recording.memory, batch.tgt_in)
    return recording


def _steps(model: Seq2Seq, recording: Recording, batch: PairBatch, subwords: Subwords) -> tuple[tuple[Step, ...], float]:
    """The prediction at each position, by the model and by each of its layers; the log-probability of the whole target."""
    read, written = batch.tgt_in[0].tolist(), batch.tgt_out[0].tolist()
    scores = model.logits(recording.states[0]).float().log_softmax(dim=-1)  # T V
    own = scores.gather(1, batch.tgt_out[0, :, None])  # T 1
    ranks = (scores > own).sum(dim=1) + 1
    candidates = _top_candidates(scores, CANDIDATES, subwords)
    lenses = []
    for layer in model.decode_layers(recording.memory, batch.tgt_in):
        here = model.logits(layer[0]).float().log_softmax(dim=-1)
        chances = here.gather(1, batch.tgt_out[0, :, None])[:, 0].exp().tolist()
        lenses.append([Lens(*both) for both in zip(chances, _top_candidates(here, LENS, subwords), strict=True)])
    sides = zip(to_tokens(subwords, read), to_tokens(subwords, written), strict=True)
    steps = tuple(
        Step(*side, float(own[place].exp()), int(ranks[place]), candidates[place], tuple(layer[place] for layer in lenses))
        for place, side in enumerate(sides)
    )
    return steps, float(own.sum())


def _top_candidates(scores: Tensor, count: int, subwords: Subwords) -> list[tuple[Candidate, ...]]:
    best, ids = scores.topk(min(count, scores.shape[-1]), dim=-1)
    return [
        tuple(Candidate(*each) for each in zip(row, subwords.pieces(row), chances, strict=True))
        for row, chances in zip(ids.tolist(), best.exp().tolist(), strict=True)
    ]


def describe_facts(artifact: Artifact | SingleStackArtifact, config: SearchConfig) -> Facts:
    """Facts of the model and of the search."""
    model, data = artifact.recipe.model, artifact.recipe.data
    parameters = sum(each.numel() for each in artifact.model.parameters())
    return Facts(
        type(artifact.model).__name__, model.encoder_layers, model.decoder_layers, parameters, model.d_model,
        data.source_lang, data.target_lang, model.window, config.beam_size, config.length_penalty,
    )  # fmt: skip
