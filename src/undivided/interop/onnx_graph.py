"""An ONNX graph written node by node, and the few operations that a Transformer is made of.

Shapes carry the letters of `undivided.nn.attention`. Every function adds nodes to a graph and returns the name of their result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

OPSET, IR_VERSION = 17, 8
"""LayerNormalization came with opset 17; every runtime since 2022 reads it."""
FORBIDDEN = -1e9
"""What is added to the score of a position that may not be attended to: its weight becomes exactly 0."""


class Graph:
    """Nodes in the order in which they are computed, with their weights, inputs and outputs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def input(self, name: str, dtype: type, shape: Sequence[str | int]) -> str:
        """Declare an input; sizes that have a name may be any."""
        from onnx import helper

        self.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape)))
        return name

    def output(self, name: str, value: str, shape: Sequence[str | int]) -> None:
        """Declare an output, of type float32, with a value that was computed."""
        from onnx import TensorProto, helper

        self.rename(value, name)
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))

    def weight(self, name: str, value: Tensor | np.ndarray) -> str:
        """A constant under a name of its own; the same name again is the same constant."""
        if name not in self.weights:
            self.weights[name] = np.ascontiguousarray(value.detach().numpy() if isinstance(value, Tensor) else value)
        return name

    def number(self, value: float | Sequence[int]) -> str:
        """A small constant: a float32, or whole numbers."""
        array = np.array(value, np.float32 if isinstance(value, float) else np.int64)
        return self.weight(f"constant {array.dtype} {value}", array)

    def node(self, operation: str, inputs: Sequence[str], attributes: dict[str, Any] | None = None, results: int = 1) -> Any:
        """Add an operation: the name of its result, or a list of names where there are several."""
        from onnx import helper

        names = [f"{operation} {len(self.nodes)} {place}" for place in range(results)]
        self.nodes.append(helper.make_node(operation, list(inputs), names, **(attributes or {})))
        return names[0] if results == 1 else names

    def rename(self, value: str, name: str) -> str:
        """The same value under a name by which it can be found again."""
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [value], [name]))
        return name

    def to_bytes(self) -> bytes:
        """The file, after ONNX has checked it."""
        import onnx
        from onnx import helper, numpy_helper

        weights = [numpy_helper.from_array(value, name) for name, value in self.weights.items()]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, weights)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="undivided"
        )
        onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString())


def linear(graph: Graph, x: str, name: str, weight: Tensor, bias: Tensor | None) -> str:
    """xW + b of the last dimension."""
    product = graph.node("MatMul", [x, graph.weight(f"{name}.weight", weight.t())])
    return product if bias is None else graph.node("Add", [product, graph.weight(f"{name}.bias", bias)])


def layer_norm(graph: Graph, x: str, name: str, gain: Tensor, bias: Tensor, epsilon: float) -> str:
    """LayerNorm over the last dimension."""
    parts = [x, graph.weight(f"{name}.weight", gain), graph.weight(f"{name}.bias", bias)]
    return graph.node("LayerNormalization", parts, {"axis": -1, "epsilon": epsilon})


def activate(graph: Graph, x: str, kind: str) -> str:
    """The non-linearity of a feed-forward layer."""
    if kind == "relu":
        return graph.node("Relu", [x])
    if kind == "swiglu":
        gate, rest = graph.node("Split", [x], {"axis": -1}, results=2)
        return graph.node("Mul", [activate(graph, gate, "swish"), rest])
    if kind == "swish":
        return graph.node("Mul", [x, graph.node("Sigmoid", [x])])
    if kind == "gelu":
        share = graph.node("Erf", [graph.node("Div", [x, graph.number(math.sqrt(2.0))])])
    else:
        cube = graph.node("Mul", [graph.node("Mul", [graph.node("Mul", [x, x]), x]), graph.number(0.044715)])
        inside = graph.node("Mul", [graph.node("Add", [x, cube]), graph.number(math.sqrt(2.0 / math.pi))])
        share = graph.node("Tanh", [inside])
    return graph.node("Mul", [graph.node("Mul", [x, graph.node("Add", [share, graph.number(1.0)])]), graph.number(0.5)])


def split_heads(graph: Graph, x: str, heads: int, width: int) -> str:
    """`B T (H K)` → `B H T K`."""
    apart = graph.node("Reshape", [x, graph.number([0, 0, heads, width])])
    return graph.node("Transpose", [apart], {"perm": [0, 2, 1, 3]})


def attend(graph: Graph, query: str, key: str, value: str, mask: str, widths: tuple[int, int, int]) -> str:
    """Eq. 1 of each head, joined: queries `B H T K` → `B T (H V)`. The mask is added to the scores. [paper 3.2.1, Eq. 1]

    `widths` are the number of heads, d_k and d_v.
    """
    heads, d_k, d_v = widths
    scaled = graph.node("Mul", [query, graph.number(d_k**-0.5)])
    scores = graph.node("MatMul", [scaled, graph.node("Transpose", [key], {"perm": [0, 1, 3, 2]})])
    weights = graph.node("Softmax", [graph.node("Add", [scores, mask])], {"axis": -1})
    joined = graph.node("Transpose", [graph.node("MatMul", [weights, value])], {"perm": [0, 2, 1, 3]})
    return graph.node("Reshape", [joined, graph.number([0, 0, heads * d_v])])


def size(graph: Graph, x: str, axis: int) -> str:
    """One size of a tensor, as a row of one number."""
    return graph.node("Gather", [graph.node("Shape", [x]), graph.number([axis])])


def count_up(graph: Graph, first: str, end: str) -> str:
    """`first, first + 1, … end − 1`, from rows of one number."""
    parts = [graph.node("Squeeze", [each]) for each in (first, end)]
    return graph.node("Range", [*parts, graph.number(1)])


def forbid(graph: Graph, allowed: str) -> str:
    """A mask that is True at what may be attended to, as numbers to add to the scores."""
    return graph.node("Where", [allowed, graph.number(0.0), graph.number(FORBIDDEN)])
