"""The shortlist of a run: learned once from its token store and kept beside it, because it depends on the corpus alone."""

from __future__ import annotations

from contextlib import suppress

import safetensors.numpy

from undivided.artifact.load import read_shortlist
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.data.shortlist import Shortlist, learn_shortlist
from undivided.data.store import Store

NAME = "shortlist-1.safetensors"
"""The number changes with the way shortlists are learned: one that another release learned is not used."""


def load_or_learn_shortlist(store: Store, source: int, target: int) -> Shortlist:
    """The shortlist for vocabularies of these sizes: read from the store's folder, which is named by content, or learned."""
    path = store.folder / NAME
    with suppress(InputError):
        return read_shortlist(path, source, target)
    shortlist = learn_shortlist(store, source, target)
    write_atomic(path, safetensors.numpy.save({"common": shortlist.common, "likely": shortlist.likely}))
    return shortlist
