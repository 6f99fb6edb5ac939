"""The signature of every C function, once, so that ctypes passes each argument as wide as C reads it.

Only the standard library is imported: `trial` reads this file in a process of its own.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_double, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p
from typing import Any


class HeadView(ctypes.Structure):
    """Where the heads of a tensor lie: the first number, and strides in floats."""

    _fields_ = [("at", c_void_p), ("batch", c_int64), ("row", c_int64), ("head", c_int64)]


class AttentionShape(ctypes.Structure):
    """The sizes of an attention, its mask (None: all may attend) and its scale."""

    _fields_ = [
        *((name, c_int64) for name in ("batch", "heads", "queries", "keys", "width", "value_width")),
        ("mask", c_void_p),
        ("mask_batch", c_int64),
        ("mask_row", c_int64),
        ("scale", c_float),
    ]


class Int8Product(ctypes.Structure):
    """Packed weights of a product, and its bias (None: no bias)."""

    _fields_ = [
        *((name, c_void_p) for name in ("packed", "scales", "offsets", "bias")),
        *((name, c_int64) for name in ("outputs", "depth")),
    ]
    held: Any


class Int8Norm(ctypes.Structure):
    """The weights of a LayerNorm."""

    _fields_ = [("gain", c_void_p), ("shift", c_void_p)]


class Int8Layer(ctypes.Structure):
    """A layer of an encoder or decoder."""

    _fields_ = [
        *((name, Int8Product) for name in ("qkv", "output", "query", "key_value", "across", "inner", "outer")),
        *((name, Int8Norm) for name in ("attention_norm", "across_norm", "feed_forward_norm")),
    ]


class Int8Stack(ctypes.Structure):
    """An encoder or decoder: its sizes, its layers, and the norm after them."""

    held: Any
    """What its addresses point to, so that it stays."""

    _fields_ = [
        *((name, c_int64) for name in ("layers", "width", "heads", "inner_width", "pre", "activation")),
        ("epsilon", c_float),
        ("layer", c_void_p),
        ("last_norm", Int8Norm),
    ]


class Int8Past(ctypes.Structure):
    """Where keys and values of all positions so far are, and at which position each row's token is."""

    held: Any
    """What its addresses point to, so that it stays."""

    _fields_ = [("positions", c_int64), *((name, c_void_p) for name in ("blocks", "counts", "places", "at"))]


class Int8Memory(ctypes.Structure):
    """Where keys and values of the encoder's output are."""

    held: Any
    """What its addresses point to, so that it stays."""

    _fields_ = [("tokens", c_int64), ("keys_values", c_void_p), ("starts", c_void_p), ("lengths", c_void_p)]


_HEADS, _SHAPE, _SUMS = POINTER(HeadView), POINTER(AttentionShape), POINTER(c_double)
_MASK = (c_uint64, c_int32, c_float)
_PRODUCT, _STACK, _PAST, _MEMORY = (POINTER(each) for each in (Int8Product, Int8Stack, Int8Past, Int8Memory))
_LOSS = (c_void_p, c_void_p, c_int64, c_int64, c_float, c_void_p, _SUMS)

SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "dropout": (None, (c_void_p, c_void_p, c_void_p, c_int64, *_MASK)),
    "add_norm": (c_int, (c_void_p, c_void_p, c_int64, c_int64, *_MASK, c_void_p, c_void_p, c_float, *(c_void_p,) * 3)),
    "add_norm_backward": (c_int, (*(c_void_p,) * 3, c_int64, c_int64, *_MASK, *(c_void_p,) * 5)),
    "bias_relu": (None, (c_void_p, c_void_p, c_int64, c_int64)),
    "bias_relu_backward": (None, (*(c_void_p,) * 4, c_int64, c_int64)),
    "softmax_loss": (c_int, _LOSS),
    "softmax_loss_bfloat16": (c_int, (*_LOSS, c_void_p)),
    "consistent_loss": (c_int, (*(c_void_p,) * 3, c_int64, c_int64, c_int32, c_float, c_float, _SUMS, c_void_p)),
    "attend": (c_int, (_SHAPE, *(_HEADS,) * 4, c_void_p)),
    "attend_backward": (c_int, (_SHAPE, *(_HEADS,) * 3, c_void_p, *(_HEADS,) * 4)),
    "attend_cached": (
        c_int,
        (c_void_p, c_int64, _HEADS, _HEADS, c_void_p, c_int64, c_int64, c_void_p, *(c_int64,) * 7, c_float, c_void_p),
    ),
    "int8_pack": (None, (c_void_p, c_int64, c_int64, *(c_void_p,) * 3)),
    "int8_linear": (c_int, (c_void_p, c_int64, _PRODUCT, c_int32, *(c_void_p,) * 3)),
    "int8_encode": (c_int, (_STACK, c_void_p, c_void_p, c_int64)),
    "int8_read": (c_int, (_STACK, c_void_p, c_int64, c_void_p)),
    "int8_step": (c_int, (_STACK, c_void_p, c_int64, _PAST, _MEMORY)),
    "top_tokens": (None, (c_void_p, *(c_int64,) * 4, *(c_void_p,) * 3)),
}
"""What each function returns and takes. Those that can fail return a status, which becomes an exception."""


def declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """The same library, its functions with their signatures."""
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
        if result is not None:
            function.errcheck = _raise_failure
    return library


def _raise_failure(status: int, function: Any, arguments: tuple[Any, ...]) -> None:
    """The statuses of `c/vectors.h` as exceptions."""
    if status == 1:
        raise MemoryError(f"out of memory in {function.__name__}")
    if status == 3:
        raise OSError(f"{function.__name__}: this processor has no such instructions")
    if status:
        raise IndexError(f"{function.__name__}: a label or row lies outside its table")
