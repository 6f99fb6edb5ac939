"""Several models as one: at every step the mean of their probabilities. [paper 6.1, Table 2]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from undivided.models.contract import DecoderState, Memory, Seq2Seq


@dataclass
class EnsembleState:
    """What each model remembers between steps."""

    members: list[DecoderState]

    def select(self, sentences: Tensor, parents: Tensor) -> EnsembleState:
        """The state of chosen sentences (`B'`) and, of each, chosen beams (`B' W'`)."""
        return EnsembleState([member.select(sentences, parents) for member in self.members])


class Ensemble(nn.Module):
    """All that search asks of a model, answered by several that share their subwords."""

    def __init__(self, members: Sequence[Seq2Seq]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        # The shortest positions bound them all.
        self.config = min((member.config for member in members), key=lambda each: each.position_limit or 1 << 62)
        self.output_weight = members[0].output_weight

    def _models(self) -> list[Seq2Seq]:
        return [member for member in self.members if isinstance(member, Seq2Seq)]

    def encode(self, src: Tensor, src_mask: Tensor | None) -> list[Memory]:
        """Source ids `B S` → a memory of each model."""
        return [member.encode(src, src_mask) for member in self._models()]

    def start(self, memories: Sequence[Memory]) -> EnsembleState:
        """The state before the first step."""
        return EnsembleState([member.start(memory) for member, memory in zip(self._models(), memories, strict=True)])

    def step(self, state: EnsembleState, tokens: Tensor) -> Tensor:
        """One more token for each sentence and beam, `B W` → log of the mean probability of the next, `B W V`."""
        steps = zip(self._models(), state.members, strict=True)
        scores = [member.step(own, tokens).float().log_softmax(dim=-1) for member, own in steps]
        return torch.stack(scores).logsumexp(dim=0) - torch.tensor(float(len(scores))).log()
