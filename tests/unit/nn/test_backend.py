"""The seam to fast arithmetic: signatures agree with the C files, what does not fit is refused, and variants do without kernels."""

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from undivided.config import ModelConfig
from undivided.nn import attention as attention_module
from undivided.nn import library
from undivided.nn.attention import MultiHeadAttention
from undivided.nn.backend import DropoutMask, kernel_attention, kernels, memory, why_no_kernels
from undivided.nn.backend.memory import address, cached_heads, packed_heads
from undivided.nn.layers import Residual
from undivided.nn.library.signatures import (
    POINTER,
    SIGNATURES,
    AttentionShape,
    HeadView,
    Int8Layer,
    Int8Memory,
    Int8Norm,
    Int8Past,
    Int8Product,
    Int8Stack,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_uint64,
    c_void_p,
    declare,
)

pytestmark = pytest.mark.skipif(bool(why_no_kernels()), reason=f"no kernels: {why_no_kernels()}")

C_TYPES = {
    "void": None, "int": c_int, "int32_t": c_int32, "int64_t": c_int64, "uint64_t": c_uint64, "float": c_float,
    "float *": c_void_p, "int64_t *": c_void_p, "uint8_t *": c_void_p, "uint16_t *": c_void_p, "void *": c_void_p,
    "int8_t *": c_void_p, "int32_t *": c_void_p, "int8_layer *": c_void_p, "float **": c_void_p, "int8_product": Int8Product,
    "int8_norm": Int8Norm, "int8_product *": POINTER(Int8Product), "int8_stack *": POINTER(Int8Stack),
    "int8_past *": POINTER(Int8Past), "int8_memory *": POINTER(Int8Memory),
    "double *": POINTER(c_double), "head_view *": POINTER(HeadView), "attention_shape *": POINTER(AttentionShape),
}  # fmt: skip


def exported_functions():
    """The functions of the C files that are not static: name → (what it returns, what it takes), as C writes types."""
    found = {}
    for path in library.SOURCES:
        for result, name, arguments in re.findall(r"^(int|void) (\w+)\(([^)]*)\) \{", path.read_text(), flags=re.MULTILINE):
            types = []
            for argument in arguments.split(","):
                kind, star, _ = re.fullmatch(r"\s*(?:const )?(\w+) (\*?)(\w+)\s*", argument).groups()
                types.append(f"{kind} {star}".strip())
            found[name] = result, types
    return found


def test_every_exported_function_has_the_signature_that_c_has():
    exported = exported_functions()
    assert set(exported) == set(SIGNATURES)
    for name, (result, arguments) in exported.items():
        declared = SIGNATURES[name]
        assert declared == (C_TYPES[result], tuple(C_TYPES[kind] for kind in arguments)), name


def test_structures_have_the_fields_that_c_has():
    text = "".join(path.read_text() for path in library.SOURCES)
    structures = {
        "head_view": HeadView, "attention_shape": AttentionShape, "int8_product": Int8Product, "int8_norm": Int8Norm,
        "int8_layer": Int8Layer, "int8_stack": Int8Stack, "int8_past": Int8Past, "int8_memory": Int8Memory,
    }  # fmt: skip
    for name, structure in structures.items():
        body = re.sub(r"/\*.*?\*/", "", re.search(r"typedef struct \{([^}]*)\} " + name, text).group(1), flags=re.DOTALL)
        fields = []
        for line in filter(str.strip, body.split(";")):
            kind, names = re.fullmatch(r"\s*(?:const )?(\w+) (.*)", line, flags=re.DOTALL).groups()
            for each in names.split(","):
                fields.append((each.strip(" *"), c_void_p if "*" in each else C_TYPES[kind]))
        assert fields == structure._fields_


def test_every_allocation_is_checked():
    """What malloc and its kind return is looked at before it is used."""
    for path in library.SOURCES:
        text = path.read_text()
        for name in re.findall(r"\*(\w+) = (?:malloc|aligned_alloc|allocate_zeros)\(", text):
            assert re.search(rf"if \(!?{name}\)", text), (path.name, name)


def test_what_fails_in_c_is_an_exception():
    called = declare(library.load_library()).add_norm
    for status, kind in ((0, None), (1, MemoryError), (2, IndexError)):
        if kind is None:
            assert called.errcheck(status, called, ()) is None
        else:
            with pytest.raises(kind, match="add_norm"):
                called.errcheck(status, called, ())


def test_memory_that_is_not_there_is_an_exception():
    """More than any machine has is asked for, before anything is read or written."""
    much, c = 1 << 52, memory.kernels()
    with pytest.raises(MemoryError, match="add_norm"):
        c.add_norm(0, 0, 0, much, 0, 0, 1.0, 0, 0, 1e-5, 0, 0, 0)
    with pytest.raises(MemoryError, match="add_norm_backward"):
        c.add_norm_backward(0, 0, 0, 0, much, 0, 0, 1.0, 0, 0, 0, 0, 0)
    shape, view = AttentionShape(0, 1, much, 0, 16, 16, None, 0, 0, 1.0), HeadView(0, 0, 0, 0)
    with pytest.raises(MemoryError, match="attend"):
        c.attend(shape, view, view, view, view, 0)
    with pytest.raises(MemoryError, match="attend_backward"):
        c.attend_backward(shape, view, view, view, 0, view, view, view, view)
    with pytest.raises(MemoryError, match="attend_cached"):
        c.attend_cached(0, 0, view, view, 0, 0, 0, None, 0, 0, 0, much, 16, 16, 16, 1.0, 0)


@pytest.mark.parametrize("label", [-1, 7, 1 << 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_label_outside_the_vocabulary_is_refused_and_nothing_is_written(label, dtype):
    logits, labels = torch.randn(3, 7).to(dtype), torch.tensor([0, 6, label])
    before = logits.clone()
    with pytest.raises(IndexError, match="softmax_loss"):
        kernels.softmax_loss(logits, labels, 0.1, torch.ones(3, 1))
    with pytest.raises(IndexError, match="consistent_loss"):
        kernels.consistent_loss(logits, logits.clone(), labels, 0.1, 1.0)
    assert torch.equal(logits, before)


def test_a_place_outside_the_cache_is_refused():
    query, cache = torch.randn(2, 1, 32), torch.randn(2, 2, 3, 16)
    for row in (-1, 2):
        with pytest.raises(IndexError, match="attend_cached"):
            kernel_attention.attend_cached(query, cache, cache, torch.full((2, 3), row))
    with pytest.raises(ValueError, match="3 positions, but 4"):
        kernel_attention.attend_cached(query, cache, cache, torch.zeros(2, 4, dtype=torch.long))


def test_memory_of_another_type_order_or_size_is_refused():
    x = torch.randn(4, 6)
    assert address(x, 24) == x.data_ptr()
    for wrong in (x.double(), x.t(), x[:, :3], x[:3], x.to("meta")):
        with pytest.raises(ValueError, match="a kernel needs 24 contiguous"):
            address(wrong, 24)
    with pytest.raises(ValueError, match="heads"):
        packed_heads(torch.randn(1, 2, 32), 16, 2, 16)
    with pytest.raises(ValueError, match="cached heads"):
        cached_heads(torch.randn(1, 2, 3, 16).double(), 3)


def test_shapes_that_do_not_fit_are_refused():
    x, mask = torch.randn(2, 3, 16), DropoutMask(1, 64, 1.0)
    refused = [
        lambda: kernels.drop(x, mask, x[:1]),
        lambda: kernels.add_norm(x, x[:, :2], mask, nn.LayerNorm(16)),
        lambda: kernels.add_norm(x, x, mask, nn.LayerNorm(8)),
        lambda: kernels.linear_relu(x, torch.randn(8, 16), torch.randn(4)),
        lambda: kernels.softmax_loss(torch.randn(3, 5), torch.zeros(2, dtype=torch.long), 0.1, torch.ones(3)),
        lambda: kernels.softmax_loss(torch.randn(3, 5).double(), torch.zeros(3, dtype=torch.long), 0.1, torch.ones(3)),
        lambda: kernels.top_tokens(torch.randn(2, 9).double(), 2, 3),
        lambda: kernel_attention.attend(torch.randn(2, 3, 40), None, 1, (16, 16), None),
        lambda: kernel_attention.attend(torch.randn(2, 3, 30), None, 1, (10, 10), None),
        lambda: kernel_attention.attend(torch.randn(2, 3, 16), torch.randn(3, 4, 32), 1, (16, 16), None),
        lambda: kernel_attention.attend(torch.randn(2, 3, 48), None, 1, (16, 16), torch.ones(3, 3)),
    ]
    for call in refused:
        with pytest.raises(ValueError, match=r".+"):
            call()


@pytest.mark.parametrize("length", [5, 140])
def test_a_variant_of_attention_turns_the_kernels_off(monkeypatch, length):
    """As docs/variants.md says: change `attend`, and nothing else."""
    calls = []

    def uniform(query, key, value, mask=None, dropout=None, owner=None):
        calls.append(owner)
        return value.mean(dim=-2, keepdim=True).expand(*query.shape[:-1], -1)

    layer, x = MultiHeadAttention(ModelConfig(d_model=32, n_heads=2)), torch.randn(2, length, 32)
    if length == 5:
        original = attention_module.attend
        monkeypatch.setattr(attention_module, "attend", lambda *args: calls.append(len(args)) or original(*args))
        layer(x, None)
        calls = [each for each in calls if each != 4]
        assert calls == [], "Eq. 1 of a short sentence is computed by a kernel; 4 arguments are those of the trial"
    monkeypatch.setattr(attention_module, "attend", uniform)
    assert not attention_module.is_eq_1()
    calls.clear()
    values = layer.qkv(x)[..., 64:].mean(dim=1, keepdim=True).expand(-1, length, -1)
    torch.testing.assert_close(layer(x, None), layer.output(values))
    assert calls == [layer]


def test_no_fused_attention_stands_in_for_a_variant(monkeypatch):
    query, key, value = (torch.randn(1, 2, 140, 16) for _ in range(3))
    fused = []
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *args, **more: fused.append(1) or args[2])
    attention_module.attend_fused(query, key, value)
    assert fused == [1]
    monkeypatch.setattr(attention_module, "attend", lambda query, key, value, *_: value + 0.1)
    attention_module.attend_fused(query, key, value)
    assert fused == [1]


@pytest.mark.parametrize("edit", ["no scale", "no mask", "other softmax", "other shape"])
def test_edits_of_attend_are_noticed(monkeypatch, edit):
    def edited(query, key, value, mask=None, dropout=None, owner=None):
        scores = query @ key.transpose(-2, -1) * (1 if edit == "no scale" else query.shape[-1] ** -0.5)
        if mask is not None and edit != "no mask":
            scores = scores.masked_fill(~mask, -1e9)
        weights = (scores * 1.1 if edit == "other softmax" else scores).softmax(dim=-1)
        return (weights @ value)[..., :-1] if edit == "other shape" else weights @ value

    assert attention_module.is_eq_1()
    monkeypatch.setattr(attention_module, "attend", edited)
    assert not attention_module.is_eq_1()


def test_another_norm_is_used_as_it_is():
    """The kernel of LayerNorm(x + y) stands in for LayerNorm alone."""

    class Doubled(nn.LayerNorm):
        def forward(self, x):
            return 2 * super().forward(x)

    x = torch.randn(2, 3, 16)
    for norm in (Doubled(16), nn.LayerNorm(16, bias=False), nn.Identity()):
        layer = Residual(ModelConfig(d_model=16, dropout=0.0))
        layer.norm = norm
        torch.testing.assert_close(layer(x, torch.tanh), norm(x + torch.tanh(x)))


def test_every_source_is_in_the_package():
    assert {path.suffix for path in library.SOURCES} == {".c", ".h"}
    assert all(isinstance(path, Path) and path.parent.name == "c" for path in library.SOURCES)
