"""A processor without the instructions of our engine, simulated: other engines give the same results, and a sentence says which."""

import json

import pytest
import torch

from samples import sentences
from undivided.nn.backend import bfloat16, packed
from undivided.nn.backend.choice import supports_kernels

CODE = """
import json, sys
from undivided import InputError, Translator
from undivided.core.console import Console

class Said(Console):
    def say(self, text):
        lines.append(text)

folder, *sources = sys.argv[1:]
found = {}
for case, engine in (("auto", "auto"), ("torch", "torch"), ("int8", "int8"), ("without", "auto")):
    if case == "without":
        sys.modules["ctranslate2"] = None
    lines = []
    try:
        translator = Translator(folder, device="cpu", threads=1, engine=engine, console=Said())
        found[case] = translator.engine.name, translator.translate(sources), " ".join(lines)
    except InputError as error:
        found[case] = "refused", [], str(error)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def sources():
    return [source for source, _ in sentences(20, seed=21)]


@pytest.fixture(scope="module")
def found(model, python, sources):
    """What each engine says and gives where our kernels are off and PyTorch has no more than AVX2."""
    limits = {"UNDIVIDED_KERNELS": "0", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    return json.loads(python(CODE, str(model), *sources, **limits))


def test_auto_takes_another_engine_and_says_which_and_why(found):
    pytest.importorskip("ctranslate2")
    name, _, said = found["auto"]
    assert name.startswith("ctranslate2")
    assert "translating with CTranslate2, since the engine int8 cannot run this model: UNDIVIDED_KERNELS turns them off" in said


def test_without_that_it_is_pytorch_which_is_said_too(found):
    name, _, said = found["without"]
    assert name == "torch"
    assert "translating with PyTorch" in said
    assert "UNDIVIDED_KERNELS turns them off" in said
    assert "not installed" in said


def test_who_asks_for_our_engine_alone_is_refused_with_the_reason(found):
    name, _, said = found["int8"]
    assert name == "refused"
    assert "UNDIVIDED_KERNELS turns them off" in said


def test_the_results_are_the_same(found, translator, sources):
    assert supports_kernels(), "here, too, there must be kernels to compare with"
    right = translator.translate(sources)
    assert found["torch"][1] == found["without"][1] == right
    assert sum(one == other for one, other in zip(found["auto"][1], right, strict=True)) >= len(sources) - 2


def test_what_was_measured_with_all_instructions_does_not_hold_without(monkeypatch, tmp_path):
    """Whether bfloat16 pays is kept for each limit by itself."""
    measured = []
    monkeypatch.setattr(bfloat16, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(bfloat16, "_measure_in_a_process", lambda: measured.append(1) or (9.0 if len(measured) == 1 else 0.1))
    pays = bfloat16.bfloat16_pays.__wrapped__
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    assert pays()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert not pays()
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    assert pays()
    assert len(measured) == 2


def test_packed_weights_of_each_kind_are_tried_by_themselves(monkeypatch):
    """One that PyTorch refuses, or that gives other numbers, is not used; the other stays."""
    multiply = torch.nn.functional.linear

    def refusing(x, weight, bias, *_):
        if x.dtype is torch.bfloat16:
            raise RuntimeError("no such instructions")
        return multiply(x, weight, bias).relu()

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", lambda weight: weight)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", refusing)
    tried = packed.packing_works.__wrapped__
    assert tried()
    assert not tried(rounded=True)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", lambda x, weight, bias, *_: multiply(x, weight, bias))
    assert not tried()
