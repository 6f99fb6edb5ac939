"""What is protected comes out of a translation once each: checked, decoded again under a constraint, put back.

Importing this must not import torch.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from undivided.config import SearchConfig
from undivided.core.ids import EOS, RESERVED, TERM_MARKS
from undivided.data.subwords import Tokenizer
from undivided.formats.protection import Masked, unmask
from undivided.inference.drafts import DraftCount
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.translation import Translation

if TYPE_CHECKING:
    from torch import Tensor

    from undivided.inference.engines.torch import TorchEngine
    from undivided.inference.search import Constraint


BEGIN = RESERVED[0][0]
"""What every symbol begins with."""


def has_each_once(text: str, masked: Masked) -> bool:
    """Whether a translation has every symbol of its source once, and no other."""
    return all(text.count(symbol) == masked.text.count(symbol) for symbol in RESERVED)


def restore(found: Translation, masked: Masked) -> Translation:
    """A translation with what its symbols stand for; symbols that stand for nothing are left out.

    Tags that would not be well nested come in the order of the source.
    """
    return dataclasses.replace(
        found,
        text=_restore_text(found.text, masked),
        alternatives=tuple((_restore_text(text, masked), score) for text, score in found.alternatives),
    )


def _restore_text(text: str, masked: Masked) -> str:
    if BEGIN not in text:
        return text
    for mark in TERM_MARKS:
        text = text.replace(mark, "")
    # Symbols that the source itself has stay as they are.
    own = {symbol: symbol for symbol in RESERVED if symbol in masked.text} | dict(masked.items)
    tags = [(symbol, own[symbol]) for symbol in _order(text, [symbol for symbol in own if TAG.fullmatch(own[symbol])])]
    if tags and is_nested(list(own.values())) and not is_nested([tag for _, tag in tags]):
        in_order = [tag for tag in own.values() if TAG.fullmatch(tag)]
        own |= dict(zip((symbol for symbol, _ in tags), in_order, strict=False))
    return unmask(text, [(symbol, own.get(symbol, "")) for symbol in RESERVED])


TAG = re.compile(r"<(/?)([A-Za-z][^\s<>/]{0,60})[^<>]{0,300}>")


def is_nested(items: Sequence[str]) -> bool:
    """Whether the tags among some items close what they open; tags that stand alone are not looked at."""
    names = Counter(found[2] for each in items if (found := TAG.fullmatch(each)) and found[1])
    opened: list[str] = []
    for found in filter(None, map(TAG.fullmatch, items)):
        if not names[found[2]]:
            continue
        if not found[1]:
            opened.append(found[2])
        elif not opened or opened.pop() != found[2]:
            return False
    return not opened


def _order(text: str, symbols: Sequence[str]) -> list[str]:
    """Symbols in the order in which a text has them."""
    return sorted((symbol for symbol in symbols if symbol in text), key=text.index)


def mask_prefix(prefix: str, masked: Masked) -> str:
    """What a translation must begin with, in symbols where the source has them."""
    for symbol, text in masked.items:
        prefix = prefix.replace(text, symbol, 1)
    return prefix


class SymbolEngine:
    """The PyTorch engine under a constraint: every symbol of a source comes once in its translation."""

    is_parallel = has_shortlist = False
    drafts: DraftCount | None = None

    def __init__(self, reference: TorchEngine, tokenizer: Tokenizer) -> None:
        self.reference, self.name = reference, reference.name
        ours, theirs = tokenizer.source.symbols, tokenizer.target.symbols
        self.symbols = {ours[name]: theirs[name] for name in ours}
        """Of each symbol, its id in the source and in the target."""
        self.vocabulary = len(tokenizer.target)

    def search(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, prefixes: Sequence[Sequence[int]], keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """As every engine searches."""
        most = self.reference.model.config.position_limit

        def constrain(batch: Sequence[int]) -> Constraint:
            wanted = [{self.symbols[token] for token in sources[place] if token in self.symbols} for place in batch]
            lengths = [len(sources[place]) - 1 + config.max_extra for place in batch]
            limits = [min(length, most or length) for length in lengths]
            return each_once(wanted, frozenset(self.symbols.values()), limits, self.vocabulary)

        return self.reference.search(sources, config, prefixes, keys, constrain)


def each_once(wanted: Sequence[set[int]], symbols: frozenset[int], limits: Sequence[int], vocabulary: int) -> Constraint:
    """A constraint: of the `symbols`, each sentence gets those that are `wanted`, each once, before it ends.

    Where a sentence comes close to its limit of length, nothing else may follow until all are there.
    """
    import torch

    everything = sorted(symbols)

    def allowed(sentences: Tensor, tokens: Tensor) -> Tensor:
        result = torch.ones((*tokens.shape[:2], vocabulary), dtype=torch.bool)
        result[:, :, everything] = False
        for row, (sentence, beams) in enumerate(zip(sentences.tolist(), tokens.tolist(), strict=True)):
            for beam, sofar in enumerate(beams):
                missing = sorted(wanted[sentence] - set(sofar))
                if missing and len(sofar) + len(missing) + 1 >= limits[sentence]:
                    result[row, beam] = False
                result[row, beam, missing] = True
                if missing:
                    result[row, beam, EOS] = False
                elif len(sofar) + 1 >= limits[sentence]:
                    result[row, beam] = False
                    result[row, beam, EOS] = True
        return result.to(tokens.device)

    return allowed
