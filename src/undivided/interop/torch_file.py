"""Read the tensors of a PyTorch checkpoint without unpickling it.

Such a file is a pickle, that is, a program for a small machine. Here its instructions are read one by one, and only those are
followed that build dictionaries of tensors; every other one, and every name of a function but PyTorch's own few, is refused.
"""

from __future__ import annotations

import math
import pickletools
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from undivided.core.errors import InputError

MAX_PROGRAM_BYTES = 64 << 20
MOST_VIEWS = 4
"""Different views of the same numbers may be so many times as large, and no more."""
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
DTYPES = {
    "FloatStorage": torch.float32, "HalfStorage": torch.float16, "BFloat16Storage": torch.bfloat16, "DoubleStorage": torch.float64,
    "LongStorage": torch.int64, "IntStorage": torch.int32, "ShortStorage": torch.int16, "CharStorage": torch.int8,
    "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
}  # fmt: skip
ORDERED, TENSOR, PARAMETER = "collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"
NAMES = {ORDERED, TENSOR, PARAMETER, *(f"torch {name}" for name in DTYPES)}


class Storage(NamedTuple):
    """The numbers of one or several tensors."""

    dtype: torch.dtype
    key: str
    length: int


class StoredTensor(NamedTuple):
    """A view of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class _Name(str):
    """A function or class that the program names."""


class Inert:
    """An object of a class that is not known here: what it was made from, and never the class itself."""

    def __init__(self, name: str) -> None:
        self.name, self.state = name, dict[str, Any]()


class _Mark:
    """The start of a run of values on the stack."""


_MARK = _Mark()


class _Machine:
    """Follows the instructions that build plain values."""

    def __init__(self, inert: bool = False) -> None:
        """With `inert`, names that are not allowed to run become data instead of errors."""
        self.inert = inert
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, stream: BinaryIO | bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(stream):
            if opcode.name == "STOP":
                return self.stack.pop()
            self.follow(opcode.name, argument)
        raise ValueError("it ends before it is complete")

    def follow(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _IGNORED:
            return
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name in _VALUES:
            stack.append(argument)
        elif name in _MEMORY:
            self.remember(name, argument)
        elif name in _CONTAINERS:
            self.collect(name)
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            stack.append(self.named(argument))
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop()))
        elif name == "REDUCE" or (name == "NEWOBJ" and self.inert):
            arguments, function = stack.pop(), stack.pop()
            known = not self.inert or function in NAMES
            stack.append(_build(function, arguments) if known else Inert(str(function)))
        elif name == "BUILD":
            state = stack.pop()  # of a dictionary its attributes, such as the versions of its modules
            if isinstance(stack[-1], Inert) and isinstance(state, dict):
                stack[-1].state.update({str(key): value for key, value in state.items()})
        else:
            raise ValueError(f"it holds the instruction {name}, which no table of tensors needs")

    def remember(self, name: str, argument: Any) -> None:
        if name in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self.memo[int(argument)])
        else:
            self.memo[len(self.memo) if name == "MEMOIZE" else int(argument)] = self.stack[-1]

    def collect(self, name: str) -> None:
        stack = self.stack
        if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            _as_dict(stack[-1])[key] = value
        elif name == "APPEND":
            value = stack.pop()
            _as_list(stack[-1]).append(value)
        else:
            self.gather(name)

    def named(self, argument: Any) -> _Name:
        if argument is None:
            name, module = self.stack.pop(), self.stack.pop()
            argument = f"{module} {name}"
        if argument not in NAMES and not self.inert:
            raise ValueError(f"it asks for {str(argument).replace(' ', '.')!r}, which is not allowed to run")
        return _Name(argument)

    def gather(self, name: str) -> None:
        place = max(place for place, value in enumerate(self.stack) if value is _MARK)
        values = self.stack[place + 1 :]
        del self.stack[place:]
        pairs = zip(values[::2], values[1::2], strict=False)
        if name == "APPENDS":
            _as_list(self.stack[-1]).extend(values)
        elif name == "SETITEMS":
            _as_dict(self.stack[-1]).update(pairs)
        else:
            self.stack.append(dict(pairs) if name == "DICT" else values if name == "LIST" else tuple(values))


_IGNORED = {"PROTO", "FRAME"}
_MEMORY = {"BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE", "BINGET", "LONG_BINGET", "GET"}
_CONTAINERS = {"TUPLE1", "TUPLE2", "TUPLE3", "TUPLE", "LIST", "DICT", "APPEND", "APPENDS", "SETITEM", "SETITEMS"}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_DICT": dict, "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple, "MARK": lambda: _MARK,
}  # fmt: skip
_VALUES = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT", "BINUNICODE", "SHORT_BINUNICODE",
    "BINUNICODE8", "UNICODE", "BINSTRING", "SHORT_BINSTRING", "STRING", "BINBYTES", "SHORT_BINBYTES",
}  # fmt: skip


def _as_dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, Inert):
        return {}
    if type(value) is not dict:
        raise ValueError("it stores an item in something that is no dictionary")
    return value


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, Inert):
        return []
    if type(value) is not list:
        raise ValueError("it appends to something that is no list")
    return value


def _storage(value: Any) -> Storage:
    kind, dtype, key, _, count = value[:5]
    if kind != "storage" or not isinstance(dtype, _Name):
        raise ValueError("a storage of an unknown kind")
    return Storage(DTYPES[dtype.removeprefix("torch ")], str(key), int(count))


def _build(function: Any, arguments: Any) -> Any:
    match function if isinstance(function, _Name) else None:
        case name if name == ORDERED:
            return dict(*arguments)
        case name if name == TENSOR:
            storage, offset, shape, stride = arguments[:4]
            if not isinstance(storage, Storage):
                raise ValueError("a tensor without numbers")
            return StoredTensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, stride)))
        case name if name == PARAMETER:
            return arguments[0]
        case _:
            raise ValueError("it calls something that is no function of PyTorch")


def read_torch_file(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint, by name; of nested dictionaries the names are joined with dots."""
    return _read(path, _Machine, "")[0]


def read_checkpoint(path: Path, weights: str) -> tuple[dict[str, Tensor], Any]:
    """The tensors of one dictionary of a checkpoint, and all of it as data, in which objects of unknown classes are inert."""
    return _read(path, lambda: _Machine(inert=True), weights)


def _read(path: Path, make: Callable[[], _Machine], weights: str) -> tuple[dict[str, Tensor], Any]:
    try:
        with path.open("rb") as stream:
            return (_read_zip if zipfile.is_zipfile(stream) else _read_legacy)(path, make, weights)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, IndexError, KeyError, TypeError, struct.error, zipfile.BadZipFile, RuntimeError, AttributeError) as error:
        raise InputError(f"{path}: no checkpoint of tensors alone, or damaged: {error}") from None


def _part(table: Any, weights: str) -> Any:
    """The dictionary of a checkpoint that holds the weights."""
    if not weights:
        return table
    if not isinstance(table, dict) or not isinstance(table.get(weights), dict):
        raise ValueError(f"it has no table {weights!r}")
    return table[weights]


def _read_zip(path: Path, make: Callable[[], _Machine], weights: str) -> tuple[dict[str, Tensor], Any]:
    with zipfile.ZipFile(path) as archive:
        programs = [
            entry for entry in archive.infolist() if entry.filename.count("/") == 1 and entry.filename.endswith("/data.pkl")
        ]
        if len(programs) != 1 or programs[0].file_size > MAX_PROGRAM_BYTES:
            raise ValueError("it has no data.pkl of a believable size")
        root, size = programs[0].filename.partition("/")[0], path.stat().st_size

        def load(storage: Storage) -> bytes:
            nonlocal size
            entry = archive.getinfo(f"{root}/data/{storage.key}")
            size -= entry.file_size  # PyTorch compresses nothing, so all entries together fit into the file
            if size < 0:
                raise ValueError(f"up to the entry {entry.filename} its entries claim more bytes than the file has")
            return archive.read(entry)

        table = make().run(archive.read(programs[0]))
        return _materialise(_part(table, weights), load), table


def _read_legacy(path: Path, make: Callable[[], _Machine], weights: str) -> tuple[dict[str, Tensor], Any]:
    """What PyTorch before 1.6 wrote: programs one after another, then the storages."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        if _Machine().run(stream) != LEGACY_MAGIC:
            raise ValueError("it does not begin as a checkpoint of PyTorch does")
        _Machine().run(stream), _Machine().run(stream)
        table = make().run(stream)
        keys = _Machine().run(stream)
        widths = {each.storage.key: each.storage.dtype.itemsize for each in _flatten(table).values()}
        contents: dict[str, bytes] = {}
        for key in keys:
            (count,) = struct.unpack("<q", stream.read(8))
            if not 0 <= count * widths[str(key)] <= size:
                raise ValueError(f"a storage claims {count:,} numbers, more than the file has")
            contents[str(key)] = stream.read(count * widths[str(key)])
        return _materialise(_part(table, weights), lambda storage: contents[storage.key]), table


def _flatten(value: Any, prefix: str = "") -> dict[str, StoredTensor]:
    """The tensors of a nested dictionary; anything else in it is left out."""
    if isinstance(value, StoredTensor):
        return {prefix: value}
    found: dict[str, StoredTensor] = {}
    if isinstance(value, Mapping):
        for key, part in value.items():
            found |= _flatten(part, f"{prefix}.{key}" if prefix else str(key))
    return found


def _materialise(table: Any, load: Callable[[Storage], bytes]) -> dict[str, Tensor]:
    """Tensors from the bytes of their storages, none larger than its storage; the same view under several names is one tensor."""
    storages: dict[str, Tensor] = {}
    views: dict[StoredTensor, Tensor] = {}
    result, copied = {}, 0
    for name, stored in _flatten(table).items():
        key = stored.storage.key
        if key not in storages:
            storages[key] = torch.frombuffer(bytearray(load(stored.storage)), dtype=stored.storage.dtype)
        last = stored.offset + sum((size - 1) * step for size, step in zip(stored.shape, stored.stride, strict=True))
        if min((stored.offset, *stored.shape, *stored.stride)) < 0 or last >= len(storages[key]):
            raise ValueError(f"{name} reaches past its storage")
        if math.prod(stored.shape) > len(storages[key]):
            raise ValueError(f"{name} claims {math.prod(stored.shape):,} numbers of a storage of {len(storages[key]):,}")
        if stored not in views:
            copied += math.prod(stored.shape) * stored.storage.dtype.itemsize
            if copied > MOST_VIEWS * sum(each.nbytes for each in storages.values()):
                raise ValueError(f"up to {name} its tensors are {MOST_VIEWS} times as large as what they are views of")
            views[stored] = torch.as_strided(storages[key], stored.shape, stored.stride, stored.offset).clone()
        result[name] = views[stored]
    return result
