"""A Transformer in 8 bits for our own kernels: its packed weights in one file, read where they lie, and the calls that run it.

Importing this must not import torch: a translation by such a model begins at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from undivided.core.files import read_json
from undivided.core.ids import EOS
from undivided.nn.library import load_library
from undivided.nn.library.signatures import Int8Layer, Int8Memory, Int8Norm, Int8Past, Int8Product, Int8Stack

ARRAYS, LAYOUT = "arrays.bin", "layout.json"
PANEL, QUAD = 64, 4
"""Outputs that lie side by side in packed weights, and inputs that one instruction multiplies and adds."""
WIDE = 16
"""Heads are as wide as a multiple of this."""
ALIGNMENT, LARGE_PAGE = 64, 1 << 21
ACTIVATIONS = {"relu": 0, "swish": 1}
"""What the kernels compute between the products of a feed-forward."""
MOST_LOGITS = 1 << 21
"""Logits that are held at once."""

Arrays = dict[str, np.ndarray]


def pack(weight: np.ndarray) -> Arrays:
    """Weights `outputs × inputs`, float32 → 8 bits, as the kernels read them."""
    weight = np.ascontiguousarray(weight, dtype=np.float32)
    outputs, depth = weight.shape
    panels = -(-outputs // PANEL) * PANEL
    packed = np.empty(panels * (-(-depth // QUAD) * QUAD), dtype=np.int8)
    scales, offsets = np.empty(panels, dtype=np.float32), np.empty(panels, dtype=np.int32)
    _kernels().int8_pack(weight.ctypes.data, outputs, depth, packed.ctypes.data, scales.ctypes.data, offsets.ctypes.data)
    return {"packed": packed, "scales": scales, "offsets": offsets, "shape": np.array([outputs, depth])}


def works() -> bool:
    """Whether this processor has the instructions, and what comes out is near the product."""
    if load_library() is None:
        return False
    x, weight = (np.sin(np.arange(1.0, 1 + math.prod(shape))).reshape(shape).astype(np.float32) for shape in ((9, 50), (70, 50)))
    arrays = Holder(pack(weight))
    try:
        return bool(np.abs(multiply(x, arrays.product("")) - x @ weight.T).max() < 0.1)
    except OSError:
        return False


def multiply(x: np.ndarray, weights: Int8Product) -> np.ndarray:
    """xW + b: rows of `depth` numbers → rows of `outputs`."""
    if x.dtype != np.float32 or not x.flags.c_contiguous or x.shape[1:] != (weights.depth,):
        raise ValueError(f"a product needs contiguous float32 rows of {weights.depth} numbers, not {x.dtype} {x.shape}")
    out = np.empty((len(x), weights.outputs), dtype=np.float32)
    room, scales = np.empty(len(x) * (weights.depth + QUAD), dtype=np.uint8), np.empty(len(x), dtype=np.float32)
    _kernels().int8_linear(x.ctypes.data, len(x), weights, 0, room.ctypes.data, scales.ctypes.data, out.ctypes.data)
    return out


def write_arrays(folder: Path, arrays: Arrays, facts: dict[str, Any]) -> None:
    """All arrays in one file, each where memory is read best, and where each one is."""
    places, end = {}, 0
    with (folder / ARRAYS).open("wb") as stream:
        for name, array in arrays.items():
            stream.write(bytes(-end % ALIGNMENT))
            end += -end % ALIGNMENT
            places[name] = [end, array.dtype.str, list(array.shape)]
            end += stream.write(np.ascontiguousarray(array).tobytes())
    (folder / LAYOUT).write_text(json.dumps({"facts": facts, "arrays": places}) + "\n", encoding="utf-8")


def read_arrays(folder: Path) -> tuple[Arrays, dict[str, Any]]:
    """The arrays as they lie in the file, and the facts beside them."""
    layout = read_json(folder / LAYOUT)
    held = _read(folder / ARRAYS)
    arrays = {}
    for name, (start, kind, shape) in layout["arrays"].items():
        size = math.prod(shape) * np.dtype(kind).itemsize
        arrays[name] = held[start : start + size].view(np.ndarray).view(kind).reshape(shape)
    return arrays, layout["facts"]


def _read(path: Path) -> np.ndarray:
    """The bytes of a file, in large pages where the system has them: weights are read again for every token."""
    size = path.stat().st_size
    held = mmap.mmap(-1, size + LARGE_PAGE)
    with contextlib.suppress(AttributeError, OSError):
        held.madvise(mmap.MADV_HUGEPAGE)
    room = np.frombuffer(held, dtype=np.uint8)
    begin = -room.ctypes.data % LARGE_PAGE
    room = room[begin : begin + size]
    with path.open("rb") as stream:
        if stream.readinto(room.data) != size:
            raise OSError(f"{path} was cut while it was read")
    return room


class Holder:
    """Arrays by name, and the structures that tell the kernels where they are. It must live as long as a stack or a norm."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    def product(self, name: str) -> Int8Product:
        """The packed weights of this name; nothing where a layer has none."""
        prefix = f"{name}." if name else ""
        if f"{prefix}packed" not in self.arrays:
            return Int8Product()
        places = (self._place(f"{prefix}{part}") for part in ("packed", "scales", "offsets", "bias"))
        found = Int8Product(*places, *map(int, self.arrays[f"{prefix}shape"]))
        found.held = self.arrays
        return found

    def norm(self, name: str) -> Int8Norm:
        """The weights of a norm; nothing where there is none."""
        return Int8Norm(self._place(f"{name}.gain"), self._place(f"{name}.shift"))

    def stack(self, name: str, facts: dict[str, Any]) -> Int8Stack:
        """An encoder or decoder."""
        layers = (Int8Layer * facts[f"{name}_layers"])()
        for number in range(len(layers)):
            for field in Int8Layer._fields_:
                part = f"{name}.{number}.{field[0]}"
                setattr(layers[number], field[0], self.product(part) if field[1] is Int8Product else self.norm(part))
        stack = Int8Stack(
            layers=len(layers),
            layer=ctypes.addressof(layers),
            last_norm=self.norm(f"{name}.last_norm"),
            **{each: facts[each] for each in ("width", "heads", "inner_width", "pre", "activation", "epsilon")},
        )
        stack.held = layers
        return stack

    def _place(self, name: str) -> int | None:
        array = self.arrays.get(name)
        return None if array is None else int(array.ctypes.data)


class Int8Model:
    """The encoder, and the decoder step by step."""

    def __init__(self, folder: Path) -> None:
        arrays, self.facts = read_arrays(folder)
        self.held = Holder(arrays)
        self.encoder, self.decoder = self.held.stack("encoder", self.facts), self.held.stack("decoder", self.facts)
        self.draft = self.held.stack("draft", self.facts) if self.facts.get("draft_layers") else None
        """The draft decoder, where the model has one."""
        self.output = Output(self.held.product("output"))
        self.positions = arrays["positions"]
        self.tables = arrays["source"], arrays["target"]

    def embed(self, side: int, tokens: np.ndarray, positions: np.ndarray | int) -> np.ndarray:
        """Embeddings × √d_model + positions. [paper 3.4, 3.5]"""
        x = self.tables[side][tokens]
        x *= self.facts["scale"]
        x += self.positions[positions]
        return x

    def narrow(self, tokens: np.ndarray) -> Output:
        """An output layer for some of the tokens alone, which are in ascending order."""
        arrays = self.held.arrays
        depth = self.output.product.depth
        quads = -(-depth // QUAD)
        panels = -(-len(tokens) // PANEL)
        rows = np.zeros((panels * PANEL, quads, QUAD), dtype=np.int8)
        rows[: len(tokens)] = arrays["output.packed"].reshape(-1, quads, PANEL, QUAD)[tokens // PANEL, :, tokens % PANEL]
        chosen: Arrays = {"packed": np.ascontiguousarray(rows.reshape(panels, PANEL, quads, QUAD).transpose(0, 2, 1, 3))}
        padded = np.concatenate([tokens, np.zeros(panels * PANEL - len(tokens), dtype=tokens.dtype)])
        chosen |= {part: arrays[f"output.{part}"][padded] for part in ("scales", "offsets")}
        if "output.bias" in arrays:
            chosen["bias"] = arrays["output.bias"][padded]
        return Output(Holder(chosen | {"shape": np.array([len(tokens), depth])}).product(""), tokens)

    def encode(self, sources: Sequence[Sequence[int]]) -> Memory:
        """Sources → keys and values that every decoder layer reads."""
        return self.encode_for([self.decoder], sources)[0]

    def encode_for(self, stacks: Sequence[Int8Stack], sources: Sequence[Sequence[int]]) -> list[Memory]:
        """The same for several decoders, each with keys and values of its own."""
        lengths = np.array([len(row) for row in sources], dtype=np.int64)
        x = self.embed(0, np.concatenate([np.asarray(row) for row in sources]), np.concatenate([np.arange(n) for n in lengths]))
        _kernels().int8_encode(self.encoder, x.ctypes.data, lengths.ctypes.data, len(lengths))
        memories = []
        for stack in stacks:
            keys_values = np.empty((stack.layers, len(x), 2 * stack.width), dtype=np.float32)
            _kernels().int8_read(stack, x.ctypes.data, len(x), keys_values.ctypes.data)
            memories.append(Memory(keys_values, np.cumsum(lengths) - lengths, lengths))
        return memories

    def step(self, past: Past, memory: Memory, owners: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """One more token of every hypothesis, each of the sentence that owns it → states `rows × width`."""
        x = self.embed(1, tokens, past.length)
        past.extend(len(tokens), self.decoder)
        reach = memory.of(owners)
        _kernels().int8_step(self.decoder, x.ctypes.data, len(x), past.view(), reach)
        return x

    def read(
        self, stack: Int8Stack, slots: Slots, memory: Memory, owners: np.ndarray, at: np.ndarray, tokens: np.ndarray
    ) -> np.ndarray:
        """Tokens at any positions of the sentences that own them, in this decoder → states `rows × width`."""
        x = self.embed(1, tokens, at)
        reach = memory.of(owners)
        _kernels().int8_step(stack, x.ctypes.data, len(x), slots.view(owners, at, stack), reach)
        return x


class Output(NamedTuple):
    """The output layer, of all tokens or of some."""

    product: Int8Product
    tokens: np.ndarray | None = None


class Memory:
    """What hypotheses read of the sources."""

    def __init__(self, keys_values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
        self.keys_values, self.starts, self.lengths = keys_values, starts, lengths

    def of(self, owners: np.ndarray) -> Int8Memory:
        """Where the hypotheses of these sentences read."""
        rows = np.ascontiguousarray(self.starts[owners]), np.ascontiguousarray(self.lengths[owners])
        found = Int8Memory(self.keys_values.shape[1], self.keys_values.ctypes.data, *(each.ctypes.data for each in rows))
        found.held = rows
        return found


class Past:
    """Keys and values of all positions so far. They stay where they were written; `places` tell which are whose."""

    def __init__(self) -> None:
        self.blocks: list[np.ndarray] = []
        self.places = np.empty((0, 0), dtype=np.int64)

    @property
    def length(self) -> int:
        """Positions so far."""
        return len(self.blocks)

    def extend(self, rows: int, stack: Int8Stack) -> None:
        """Room for one more position of every hypothesis."""
        self.blocks.append(np.empty((stack.layers, rows, 2 * stack.width), dtype=np.float32))
        own = np.arange(rows)[:, None]
        self.places = np.concatenate([self.places, own], axis=1) if self.places.size else own

    def select(self, rows: np.ndarray) -> None:
        """Go on with these hypotheses."""
        self.places = self.places[rows]

    def view(self) -> Int8Past:
        """As the kernels read it."""
        places = np.ascontiguousarray(self.places)
        return _view(self.blocks, places, np.full(len(places), self.length - 1))


class Slots:
    """Keys and values of a batch of sentences, one slot for each position, which may be written again."""

    def __init__(self, sentences: int) -> None:
        self.sentences = sentences
        self.blocks: list[np.ndarray] = []

    def view(self, owners: np.ndarray, at: np.ndarray, stack: Int8Stack) -> Int8Past:
        """As the kernels read it, where these sentences get tokens at these positions."""
        while len(self.blocks) <= at.max():
            self.blocks.append(np.empty((stack.layers, self.sentences, 2 * stack.width), dtype=np.float32))
        places = np.repeat(owners[:, None], len(self.blocks), axis=1)
        return _view(self.blocks, places, np.ascontiguousarray(at))


def _view(blocks: Sequence[np.ndarray], places: np.ndarray, at: np.ndarray) -> Int8Past:
    """Blocks of keys and values of all positions; which row of each is whose; where each row's token is."""
    addresses = (ctypes.c_void_p * len(blocks))(*(block.ctypes.data for block in blocks))
    counts = np.array([block.shape[1] for block in blocks], dtype=np.int64)
    parts = counts, places, at
    found = Int8Past(len(blocks), ctypes.addressof(addresses), *(part.ctypes.data for part in parts))
    found.held = addresses, *parts
    return found


def top_tokens(states: np.ndarray, layer: Output, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities and ids of the most probable next tokens from `</s>` on, best first, `rows × count`."""
    output = layer.product
    count = min(count, output.outputs)
    first_token = EOS if layer.tokens is None else 0
    scores, tokens = np.empty((len(states), count), dtype=np.float32), np.empty((len(states), count), dtype=np.int64)
    blocks = np.empty(output.outputs // 64 + 1, dtype=np.float32)
    step = max(1, MOST_LOGITS // output.outputs)
    for first in range(0, len(states), step):
        logits = multiply(states[first : first + step], output)
        _kernels().top_tokens(
            logits.ctypes.data, len(logits), output.outputs, first_token, count, blocks.ctypes.data, scores[first:].ctypes.data,
            tokens[first:].ctypes.data,
        )  # fmt: skip
    return scores, tokens if layer.tokens is None else layer.tokens[tokens]


def log_probability(states: np.ndarray, output: Int8Product, tokens: np.ndarray) -> np.ndarray:
    """The log-probability of one given token for each row."""
    logits = multiply(states, output)
    highest = logits.max(axis=1)
    normalisers = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1, dtype=np.float64))
    return logits[np.arange(len(logits)), tokens] - normalisers


def _kernels() -> ctypes.CDLL:
    found = load_library()
    assert found is not None
    return found
