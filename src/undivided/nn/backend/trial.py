"""Run by `build` in a process of its own: does a library just built compute what it should on this processor?

python -I trial.py LIBRARY
"""

from __future__ import annotations

import ctypes
import math
import sys

WIDTH, ROWS = 40, 3


def main(path: str) -> int:
    """0 where LayerNorm(x + y) and a softmax agree with plain Python."""
    kernels = ctypes.CDLL(path)
    floats = ctypes.c_float * (ROWS * WIDTH)
    x = [math.sin(i) for i in range(ROWS * WIDTH)]
    y = [math.cos(i) for i in range(ROWS * WIDTH)]
    total, out, facts = floats(), floats(), floats()
    ones, none = floats(*[1.0] * WIDTH), floats()
    size = ctypes.c_int64(ROWS), ctypes.c_int64(WIDTH)
    no_dropout = ctypes.c_uint64(1), ctypes.c_int32(0), ctypes.c_float(1)
    kernels.add_norm(floats(*x), floats(*y), *size, *no_dropout, ones, none, ctypes.c_float(0), total, out, facts)
    for row in range(ROWS):
        both = [x[i] + y[i] for i in range(row * WIDTH, (row + 1) * WIDTH)]
        mean = sum(both) / WIDTH
        spread = math.sqrt(sum((each - mean) ** 2 for each in both) / WIDTH)
        if any(abs((each - mean) / spread - out[row * WIDTH + i]) > 1e-4 for i, each in enumerate(both)):
            return 1
    logits, labels, found = floats(*x), (ctypes.c_int64 * ROWS)(0, 1, 2), (ctypes.c_double * 2)()
    kernels.softmax_loss(logits, labels, *size, ctypes.c_float(1), none, found)
    sums = [math.log(sum(math.exp(each) for each in x[row * WIDTH : (row + 1) * WIDTH])) for row in range(ROWS)]
    return 0 if abs(sum(sums) - found[0]) < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
