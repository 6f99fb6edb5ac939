"""One sentence on its way through a model, and everything that can be seen of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undivided.artifact import Artifact
from undivided.config import SearchConfig
from undivided.core.console import plural
from undivided.core.errors import InputError
from undivided.core.ids import EOS
from undivided.data.batches import Batch, make_batch
from undivided.data.subwords import SPACE_MARK, Subwords, to_one_line
from undivided.inference.hypothesis import length_penalty
from undivided.look.beam import follow
from undivided.look.result import Candidate, Facts, Lens, Look, Numbers, Step, Token, Use, frozen
from undivided.look.saliency import saliency
from undivided.look.space import space
from undivided.models import Memory, Seq2Seq
from undivided.nn.attention import MultiHeadAttention, attention_hook

CANDIDATES, LENS = 10, 5
"""How many tokens are kept of a prediction, and of what a layer would predict."""


def capture(artifact: Artifact, text: str, target: str | None = None, config: SearchConfig | None = None) -> Look:
    """See a text, and its translation (the model's own, or the `target` that is forced on it), inside a model.

    The translation is found as always, unwatched; then one teacher-forced pass over it is watched.
    """
    config = config if config is not None else artifact.recipe.search
    src, forced = _ids(artifact, text, target, config)
    subwords = artifact.tokenizer.target
    model = cast(nn.Module, artifact.model)
    device = next(model.parameters()).device
    best, branches = follow(artifact.model, src, config, device, subwords)
    own = to_one_line(subwords.decode([best.tokens])[0])
    tgt = forced if forced is not None else [*best.tokens, *([EOS] if best.finished else [])]
    with torch.inference_mode(mode=False):
        batch = make_batch([src], [tgt]).to(device)
    with torch.inference_mode():
        seen = passed(artifact.model, batch)
        steps, log_probability = _steps(artifact.model, seen, batch, subwords)
        where = space(artifact, src, tgt, seen.memory.states)
    by_source, by_target = saliency(artifact.model, batch)
    source = tokens(artifact.tokenizer.source, src)
    return Look(
        text=text,
        translation=own if target is None else target,
        forced=target is not None,
        own=own,
        score=best.score if target is None else log_probability / float(length_penalty(len(tgt), config.length_penalty)),
        log_probability=best.log_probability if target is None else log_probability,
        finished=best.finished,
        source=source,
        steps=steps,
        encoder=seen.attention("encoder", len(src), len(src)),
        decoder=seen.attention("decoder", len(tgt), len(tgt)),
        cross=seen.attention("cross", len(tgt), len(src)),
        beam=branches,
        saliency_source=by_source,
        saliency_target=by_target,
        space=where,
        facts=_facts(artifact, config),
    )


def _ids(artifact: Artifact, text: str, target: str | None, config: SearchConfig) -> tuple[list[int], list[int] | None]:
    """The ids of what is looked at, or one message about all that stands against it."""
    faults: list[str] = []
    rows: list[list[int] | None] = []
    longest = artifact.recipe.data.max_length
    for name, line, subwords in (("text", text, artifact.tokenizer.source), ("target", target, artifact.tokenizer.target)):
        if line is None:
            rows.append(None)
            continue
        if not line.strip():
            faults.append(f"the {name} is empty: there is nothing to look at")
        if "\n" in line or "\r" in line:
            faults.append(f"the {name} has several lines: look at one at a time")
        ids = subwords.encode([line])[0]
        rows.append(ids)
        if len(ids) > longest:
            count = plural(len(ids), "subword")
            faults.append(f"the {name} has {count}, more than the {longest} of training: look at a part of it")
    if config.sample:
        faults.append("a look follows beam search: it cannot be combined with sampling")
    if faults:
        raise InputError("; ".join(faults))
    return cast("list[int]", rows[0]), rows[1]


def tokens(subwords: Subwords, ids: Sequence[int]) -> tuple[Token, ...]:
    """Ids as subwords that know their word: words are what spaces part, as everywhere where words are counted."""
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
class Seen:
    """What a watcher saw of one pass: the weights of each attention in the order of the layers; memory and states."""

    model: nn.Module
    weights: dict[nn.Module, list[Tensor]] = field(default_factory=dict)
    states: Tensor = field(default_factory=lambda: torch.empty(0))  # B T D
    memory: Memory = field(default_factory=lambda: Memory(torch.empty(0), None))

    def __call__(self, owner: nn.Module, weights: Tensor) -> Tensor:
        """Be shown some weights; a model that decodes position by position shows a row at a time."""
        self.weights.setdefault(owner, []).append(weights)
        return weights

    def owners(self, use: Use) -> list[nn.Module]:
        """The attentions of one use, a layer each."""
        encoder = getattr(self.model, "encoder", None)
        inside = set(encoder.modules()) if isinstance(encoder, nn.Module) else set()
        return [owner for owner in self.weights if _use(owner, owner in inside) == use]

    def attention(self, use: Use, rows: int, columns: int) -> Numbers:
        """`L H rows columns`; no layers where a model has no such attention."""
        layers = [torch.cat(self.weights[owner], dim=-2)[0] for owner in self.owners(use)]
        if not layers:
            return frozen(torch.empty(0, 0, rows, columns))
        return frozen(torch.stack(layers))


def _use(owner: nn.Module, in_encoder: bool) -> Use:
    """Which use an attention is: self-attention reads all of `qkv` from one sequence; any other looks at the source."""
    if not isinstance(owner, MultiHeadAttention) or not hasattr(owner, "qkv"):
        return "cross"
    return "encoder" if in_encoder else "decoder"


def passed(model: Seq2Seq, batch: Batch) -> Seen:
    """One teacher-forced pass, watched."""
    seen = Seen(cast(nn.Module, model))
    with attention_hook(seen):
        seen.memory = model.encode(batch.src, None)
        seen.states = model.decode(seen.memory, batch.tgt_in)
    return seen


def _steps(model: Seq2Seq, seen: Seen, batch: Batch, subwords: Subwords) -> tuple[tuple[Step, ...], float]:
    """What was predicted at each position, by the model and by each of its layers; the log-probability of it all."""
    read, written = batch.tgt_in[0].tolist(), batch.tgt_out[0].tolist()
    scores = F.linear(seen.states[0], model.output_weight).float().log_softmax(dim=-1)  # T V
    own = scores.gather(1, batch.tgt_out[0, :, None])  # T 1
    ranks = (scores > own).sum(dim=1) + 1
    likely = _likeliest(scores, CANDIDATES, subwords)
    lenses = []
    for layer in model.decode_layers(seen.memory, batch.tgt_in):
        here = F.linear(layer[0], model.output_weight).float().log_softmax(dim=-1)
        chances = here.gather(1, batch.tgt_out[0, :, None])[:, 0].exp().tolist()
        lenses.append([Lens(*both) for both in zip(chances, _likeliest(here, LENS, subwords), strict=True)])
    sides = zip(tokens(subwords, read), tokens(subwords, written), strict=True)
    steps = tuple(
        Step(*side, float(own[place].exp()), int(ranks[place]), likely[place], tuple(layer[place] for layer in lenses))
        for place, side in enumerate(sides)
    )
    return steps, float(own.sum())


def _likeliest(scores: Tensor, count: int, subwords: Subwords) -> list[tuple[Candidate, ...]]:
    best, ids = scores.topk(min(count, scores.shape[-1]), dim=-1)
    return [
        tuple(Candidate(*each) for each in zip(row, subwords.pieces(row), chances, strict=True))
        for row, chances in zip(ids.tolist(), best.exp().tolist(), strict=True)
    ]


def _facts(artifact: Artifact, config: SearchConfig) -> Facts:
    model, data = artifact.recipe.model, artifact.recipe.data
    parameters = sum(each.numel() for each in artifact.model.parameters())
    return Facts(
        type(artifact.model).__name__, model.encoder_layers, model.decoder_layers, parameters, model.d_model,
        data.source_lang, data.target_lang, model.window, config.beam_size, config.length_penalty,
    )  # fmt: skip
