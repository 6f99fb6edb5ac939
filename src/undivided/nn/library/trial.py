"""Run by `library` in a process of its own: does a library just built compute what it should on this processor?

python -I trial.py LIBRARY
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

WIDTH, ROWS = 40, 3


def load_signatures() -> Any:
    """The module beside this file, without importing the package and PyTorch with it."""
    spec = importlib.util.spec_from_file_location("signatures", Path(__file__).with_name("signatures.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(path: str) -> int:
    """0 where LayerNorm(x + y) and a softmax agree with plain Python."""
    kernels = load_signatures().declare(ctypes.CDLL(path))
    floats = ctypes.c_float * (ROWS * WIDTH)
    x = [math.sin(i) for i in range(ROWS * WIDTH)]
    y = [math.cos(i) for i in range(ROWS * WIDTH)]
    total, out, stats = floats(), floats(), floats()
    ones, none = floats(*[1.0] * WIDTH), floats()
    kernels.add_norm(floats(*x), floats(*y), ROWS, WIDTH, 1, 0, 1.0, ones, none, 0.0, total, out, stats)
    for row in range(ROWS):
        both = [x[i] + y[i] for i in range(row * WIDTH, (row + 1) * WIDTH)]
        mean = sum(both) / WIDTH
        spread = math.sqrt(sum((each - mean) ** 2 for each in both) / WIDTH)
        if any(abs((each - mean) / spread - out[row * WIDTH + i]) > 1e-4 for i, each in enumerate(both)):
            return 1
    logits, labels, sums = floats(*x), (ctypes.c_int64 * ROWS)(0, 1, 2), (ctypes.c_double * 2)()
    kernels.softmax_loss(logits, labels, ROWS, WIDTH, 1.0, none, sums)
    normalisers = [math.log(sum(math.exp(each) for each in x[row * WIDTH : (row + 1) * WIDTH])) for row in range(ROWS)]
    return 0 if abs(sum(normalisers) - sums[0]) < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
