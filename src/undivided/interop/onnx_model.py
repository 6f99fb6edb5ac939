"""A Transformer as two ONNX graphs: the encoder, and one step of the decoder with its cache.

The encoder reads `src` and gives what every step needs of it: `memory.mask`, and for each decoder layer `memory.key.N` and
`memory.value.N`. The decoder reads `tokens`, those, and the past of each layer (`past.key.N`, `past.value.N`, of length 0 at
first); it gives `logits`, and `key.N` and `value.N`, which are the past of the next step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from undivided.core.ids import PAD
from undivided.interop.onnx_graph import (
    Graph,
    activate,
    attend,
    count_up,
    forbid,
    layer_norm,
    linear,
    size,
    split_heads,
)  # fmt: skip
from undivided.models import Transformer
from undivided.nn.layers import Embedding


class Writer:
    """Writes the graphs of one model; `positions` is the length of the longest sequence that they can read."""

    def __init__(self, model: Transformer, positions: int) -> None:
        self.model, self.config, self.positions = model, model.config, positions
        self.widths = (self.config.n_heads, self.config.key_width, self.config.value_width)

    def encoder(self) -> Graph:
        """Source ids `B S`, padded with 0 → what the decoder needs of them."""
        graph = Graph("encoder")
        src = graph.input("src", np.int64, ["batch", "source"])
        real = graph.node("Not", [graph.node("Equal", [src, graph.number(PAD)])])
        mask = graph.node("Unsqueeze", [forbid(graph, real), graph.number([1, 2])])  # B 1 1 S
        seen, span = mask, (graph.number([0]), size(graph, src, 1))
        if self.config.window:
            places = count_up(graph, *span)
            seen = graph.node("Add", [mask, self._window(graph, places, places)])
        x = self._embed(graph, src, span, self.model.source_embedding, "source_embedding")
        for number, layer in enumerate(self.model.encoder):
            x = self._layer(graph, x, layer, f"encoder.{number}", [(None, seen)])
        x = self._final_norm(graph, x, self.model.encoder_norm, "encoder_norm")
        graph.output("memory.mask", mask, ["batch", 1, 1, "source"])
        layers: Any = self.model.decoder
        for number, layer in enumerate(layers):
            both = self._project(graph, x, layer.cross_attention.key_value, f"decoder.{number}.cross_attention.key_value")
            for name, part, width in zip(("key", "value"), self._split(graph, both, 2), self.widths[1:], strict=True):
                graph.output(f"memory.{name}.{number}", part, ["batch", self.widths[0], "source", width])
        return graph

    def decoder(self) -> Graph:
        """The next tokens `B T` and the past → logits `B T V` and the longer past."""
        graph = Graph("decoder")
        tokens = graph.input("tokens", np.int64, ["batch", "target"])
        mask = graph.input("memory.mask", np.float32, ["batch", 1, 1, "source"])
        read, past = (
            [self._past(graph, name, length, number) for number in range(self.config.decoder_layers)]
            for name, length in (("memory", "source"), ("past", "past"))
        )
        before = size(graph, past[0][0], 2)
        end = graph.node("Add", [before, size(graph, tokens, 1)])
        seen = self._causal(graph, count_up(graph, before, end), count_up(graph, graph.number([0]), end))
        x = self._embed(graph, tokens, (before, end), self.model.target_embedding, "target_embedding")
        for number, layer in enumerate(self.model.decoder):
            x = self._layer(graph, x, layer, f"decoder.{number}", [(past[number], seen), (read[number], mask)])
        x = self._final_norm(graph, x, self.model.decoder_norm, "decoder_norm")
        self._logits(graph, x, tokens)
        # Outputs stand in the order of the inputs that they become.
        for number in range(self.config.decoder_layers):
            for name, width in zip(("key", "value"), self.widths[1:], strict=True):
                value = f"decoder.{number}.self_attention.{name}"
                graph.output(f"{name}.{number}", value, ["batch", self.widths[0], "longer", width])
        return graph

    def _past(self, graph: Graph, name: str, length: str, number: int) -> tuple[str, str]:
        """Keys and values of a layer, as inputs."""
        heads, d_k, d_v = self.widths
        key = graph.input(f"{name}.key.{number}", np.float32, ["batch", heads, length, d_k])
        return key, graph.input(f"{name}.value.{number}", np.float32, ["batch", heads, length, d_v])

    def _causal(self, graph: Graph, here: str, places: str) -> str:
        """Each of the positions `here` may attend to itself and those before it, within the window if there is one."""
        own = graph.node("Unsqueeze", [here, graph.number([1])])
        mask = forbid(graph, graph.node("LessOrEqual", [places, own]))
        return graph.node("Add", [mask, self._window(graph, here, places)]) if self.config.window else mask

    def _window(self, graph: Graph, here: str, places: str) -> str:
        """Who is near enough, `T S`. [paper 4]"""
        apart = graph.node("Abs", [graph.node("Sub", [graph.node("Unsqueeze", [here, graph.number([1])]), places])])
        return forbid(graph, graph.node("LessOrEqual", [apart, graph.number(self.config.window // 2)]))

    def _embed(self, graph: Graph, ids: str, span: tuple[str, str], embedding: Embedding, name: str) -> str:
        """Ids → vectors × scale + the positions of a span. [paper 3.4, 3.5]"""
        table = graph.weight(self._table_name(embedding.weight, name), embedding.weight)
        x = graph.node("Mul", [graph.node("Gather", [table, ids]), graph.number(float(embedding.scale))])
        positions = embedding.positions
        if positions is None or positions.kind == "none":
            return x
        rows = graph.node("Slice", [graph.weight("positions", positions.rows(self.positions)), *span, graph.number([0])])
        if not positions.concatenated:
            return graph.node("Add", [x, rows])
        spread = graph.node("Expand", [rows, graph.node("Shape", [x])])
        return linear(graph, graph.node("Concat", [x, spread], {"axis": -1}), "positions.project", positions.project.weight, None)

    def _table_name(self, weight: Tensor, name: str) -> str:
        """A matrix that is tied to the output layer is stored once."""
        return "output_weight" if weight is self.model.output_weight else name

    def _layer(self, graph: Graph, x: str, layer: Any, name: str, contexts: list[tuple[tuple[str, str] | None, str]]) -> str:
        """One layer: self-attention, attention to the memory if there is one, feed-forward. [paper 3.1]

        `contexts` are for each attention the keys and values that are known already, and its mask.
        """

        def attend_self(x: str) -> str:
            past, mask = contexts[0]
            return self._self_attention(graph, x, layer.self_attention, f"{name}.self_attention", past, mask)

        def attend_memory(x: str) -> str:
            read, mask = contexts[1]
            assert read is not None
            query = self._project(graph, x, layer.cross_attention.query, f"{name}.cross_attention.query")
            found = attend(graph, split_heads(graph, query, *self.widths[:2]), *read, mask, self.widths)
            return self._project(graph, found, layer.cross_attention.output, f"{name}.cross_attention.output")

        def feed_forward(x: str) -> str:
            part = layer.feed_forward
            inner = self._project(graph, x, part.inner, f"{name}.feed_forward.inner")
            return self._project(graph, activate(graph, inner, part.activation), part.outer, f"{name}.feed_forward.outer")

        sublayers = [attend_self, attend_memory, feed_forward] if len(contexts) == 2 else [attend_self, feed_forward]
        for number, (sublayer, residual) in enumerate(zip(sublayers, layer.residuals, strict=True)):
            norm = f"{name}.residuals.{number}.norm"
            if residual.pre:
                x = graph.node("Add", [x, sublayer(self._norm(graph, x, residual.norm, norm))])
            else:
                x = self._norm(graph, graph.node("Add", [x, sublayer(x)]), residual.norm, norm)
        return x

    def _self_attention(self, graph: Graph, x: str, part: Any, name: str, past: tuple[str, str] | None, mask: str) -> str:
        """Attention to the sequence itself; with a past, to that too."""
        query, key, value = self._split(graph, self._project(graph, x, part.qkv, f"{name}.qkv"), 3)
        if past is not None:
            joined = [graph.node("Concat", [old, new], {"axis": 2}) for old, new in zip(past, (key, value), strict=True)]
            key, value = (graph.rename(each, f"{name}.{kind}") for each, kind in zip(joined, ("key", "value"), strict=True))
        return self._project(graph, attend(graph, query, key, value, mask, self.widths), part.output, f"{name}.output")

    def _split(self, graph: Graph, stacked: str, count: int) -> list[str]:
        """Queries, keys and values, or keys and values alone, that were projected together, each `B H T K`."""
        heads, d_k, d_v = self.widths
        widths = [d_k, d_k, d_v][-count:]
        parts = graph.node("Split", [stacked, graph.number([heads * width for width in widths])], {"axis": -1}, results=count)
        return [split_heads(graph, part, heads, width) for part, width in zip(parts, widths, strict=True)]

    def _project(self, graph: Graph, x: str, part: nn.Linear, name: str) -> str:
        return linear(graph, x, name, part.weight, part.bias)

    def _norm(self, graph: Graph, x: str, norm: Any, name: str) -> str:
        return layer_norm(graph, x, name, norm.weight, norm.bias, norm.eps)

    def _final_norm(self, graph: Graph, x: str, norm: nn.Module, name: str) -> str:
        return self._norm(graph, x, norm, name) if isinstance(norm, nn.LayerNorm) else x

    def _logits(self, graph: Graph, x: str, tokens: str) -> None:
        """States `B T D` → logits `B T V` by the matrix of the embeddings, as it lies there. [paper 3.4]"""
        vocabulary, width = self.model.output_weight.shape
        rows = graph.node("Reshape", [x, graph.number([-1, width])])
        parts = [rows, graph.weight("output_weight", self.model.output_weight)]
        if self.model.output_bias is not None:
            parts.append(graph.weight("output_bias", self.model.output_bias))
        product = graph.node("Gemm", parts, {"transB": 1})
        shape = graph.node("Concat", [graph.node("Shape", [tokens]), graph.number([vocabulary])], {"axis": 0})
        graph.output("logits", graph.node("Reshape", [product, shape]), ["batch", "target", vocabulary])
