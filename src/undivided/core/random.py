"""Random bits as a function of a key: the same on every machine, in every process, in any order."""

from __future__ import annotations

import hashlib

import numpy as np


def random_bits(count: int, *key: int) -> np.ndarray:
    """`count` random 64-bit numbers that depend on the key alone, on every machine and in every release."""
    seed = hashlib.sha256(repr(key).encode()).digest()
    return np.random.Philox(key=np.frombuffer(seed[:16], dtype=np.uint64)).random_raw(count)


def mix_bits(numbers: np.ndarray) -> np.ndarray:
    """Hash 64-bit numbers one by one (the mixer of SplitMix64): similar inputs give unrelated outputs."""
    result = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    result = (result ^ (result >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return result ^ (result >> np.uint64(31))
