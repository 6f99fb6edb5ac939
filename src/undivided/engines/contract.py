"""The contract that every engine keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from undivided.config import SearchConfig
from undivided.search import Hypothesis


class Engine(Protocol):
    """Turns source ids into target ids."""

    name: str
    side_by_side: bool
    """Whether it works on several calls at once, in threads of its own."""
    has_shortlist: bool

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]],
        keys: Sequence[int],
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The n best translations of each source, as (its place, hypotheses), in whatever order they are done.

        Sources end with `</s>`; `prefixes` are what translations must begin with; `keys` tell samples apart.
        """
