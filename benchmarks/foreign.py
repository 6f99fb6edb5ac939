"""Foreign engines that run an exported folder through their own API: logits of given tokens, and translations."""

from __future__ import annotations

import functools
import itertools
import json
import runpy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from undivided.artifact import Artifact
from undivided.config import SearchConfig
from undivided.core.ids import BOS, EOS, PAD
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.search import BeamSearch, search
from undivided.interop.onnx_out import onnx_logits

Rows = list[list[int]]


def by_length(sources: Rows, size: int) -> Iterator[list[int]]:
    """Places of sources in batches of similar length."""
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    yield from (order[start : start + size] for start in range(0, len(order), size))


def by_source_length(sources: Rows) -> list[list[int]]:
    """Places of sources that are equally long."""
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    return [list(places) for _, places in itertools.groupby(order, key=lambda place: len(sources[place]))]


def our_search(artifact: Artifact, sources: Rows, beams: int, penalty: float) -> list[Hypothesis]:
    """The best hypothesis for each source, by our own search."""
    config = SearchConfig(beam_size=beams, length_penalty=penalty, length_norm="length", max_extra=artifact.recipe.search.max_extra)
    found: dict[int, Hypothesis] = {}
    for places in by_length(sources, 64):
        results = search(artifact.model, [sources[each] for each in places], config, torch.device("cpu"))
        found |= {place: best[0] for place, best in zip(places, results, strict=True)}
    return [found[place] for place in range(len(sources))]


def our_translations(artifact: Artifact, sources: Rows, beams: int, penalty: float) -> Rows:
    """Their tokens alone."""
    return [each.tokens for each in our_search(artifact, sources, beams, penalty)]


class Transformers:
    """`AutoModelForSeq2SeqLM`, `MarianTokenizer`, `generate`."""

    name, penalty, measure = "transformers", 1.0, "logits"

    def __init__(self, folder: Path, artifact: Artifact) -> None:
        import transformers
        from transformers import AutoModelForSeq2SeqLM, MarianTokenizer

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self.model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        self.tokenizer = MarianTokenizer.from_pretrained(folder)
        source, target = artifact.tokenizer.source, artifact.tokenizer.target
        both = [self.tokenizer.encoder, getattr(self.tokenizer, "target_encoder", self.tokenizer.encoder)]
        self.ids = [
            [table.get(piece, -1) for piece in side.pieces(range(len(side)))]
            for table, side in zip(both, (source, target), strict=True)
        ]
        self.ids[1][BOS] = self.model.config.decoder_start_token_id
        self.back = {theirs: ours for ours, theirs in enumerate(self.ids[1]) if ours > BOS}

    def differences(self, source: list[int], read: list[int], ours: Tensor) -> float:
        inputs = torch.tensor([[self.ids[0][token] for token in source]]), torch.tensor([[self.ids[1][token] for token in read]])
        with torch.inference_mode():
            theirs = self.model(input_ids=inputs[0], decoder_input_ids=inputs[1]).logits[0]
        kept = torch.tensor([token >= 0 for token in self.ids[1]])
        return float((ours[:, kept] - theirs[:, torch.tensor(self.ids[1])[kept]]).abs().max())

    def translate(self, lines: list[str], sources: Rows, beams: int, extra: int) -> Rows:
        found: list[list[int]] = [[] for _ in lines]
        for places in by_length(sources, 64):
            batch = self.tokenizer([lines[place] for place in places], return_tensors="pt", padding=True)
            limit = max(len(sources[place]) for place in places) - 1 + extra
            with torch.inference_mode():
                rows = self.model.generate(**batch, num_beams=beams, length_penalty=self.penalty, max_new_tokens=limit).tolist()
            for place, row in zip(places, rows, strict=True):
                tokens = [self.back[token] for token in row[1:] if self.back.get(token, EOS) != EOS]
                found[place] = tokens[: len(sources[place]) - 1 + extra]
        return found


class CTranslate2:
    """`ctranslate2.Translator`, and sentencepiece with the models beside it."""

    # Its beam search stops when as many hypotheses have ended as there are beams, whatever could still win. Without a length
    # penalty nothing can, so every implementation finds the same.
    name, penalty, measure = "CTranslate2", 0.0, "log-probabilities"

    def __init__(self, folder: Path, artifact: Artifact) -> None:
        import ctranslate2
        import sentencepiece

        self.translator = ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=1)
        self.source = sentencepiece.SentencePieceProcessor(str(folder / "source.spm"))
        target = artifact.tokenizer.target
        self.sides = [side.pieces(range(len(side))) for side in (artifact.tokenizer.source, target)]
        self.back = {piece: token for token, piece in enumerate(self.sides[1])}

    def differences(self, source: list[int], read: list[int], ours: Tensor) -> float:
        wanted = [*read[1:], EOS]
        words = [self.sides[0][token] for token in source[:-1]], [self.sides[1][token] for token in read[1:]]
        theirs = torch.tensor(self.translator.score_batch([words[0]], [words[1]])[0].log_probs)
        return float((ours.log_softmax(dim=-1)[range(len(wanted)), wanted] - theirs).abs().max())

    def translate(self, lines: list[str], sources: Rows, beams: int, extra: int) -> Rows:
        tokens = [self.source.encode(line, out_type=str) for line in lines]
        found: list[list[int]] = [[] for _ in lines]
        for places in by_length(sources, 64):
            limit = max(len(sources[place]) for place in places) - 1 + extra
            results = self.translator.translate_batch(
                [tokens[place] for place in places], beam_size=beams, length_penalty=self.penalty, disable_unk=True,
                min_decoding_length=0,
                max_decoding_length=limit, suppress_sequences=[["<pad>"], ["<s>"]],
            )  # fmt: skip
            for place, result in zip(places, results, strict=True):
                words = result.hypotheses[0][: len(sources[place]) - 1 + extra]
                found[place] = [self.back[piece] for piece in words]
        return found


class OnnxState:
    """Between steps of a beam search: what onnxruntime is given next."""

    def __init__(self, memory: dict[str, np.ndarray], past: dict[str, np.ndarray], beams: int) -> None:
        self.memory, self.past, self.beams = memory, past, beams

    def select(self, sentences: Tensor, parents: Tensor) -> OnnxState:
        rows = (sentences[:, None] * self.beams + parents).flatten().numpy()
        return OnnxState(
            {name: value[rows] for name, value in self.memory.items()}, {name: value[rows] for name, value in self.past.items()},
            parents.shape[1],
        )  # fmt: skip


class OnnxRuntime:
    """`onnxruntime.InferenceSession`; greedily with the loop that was exported, and our beam search over its steps."""

    name, penalty, measure = "onnxruntime", 1.0, "logits"

    def __init__(self, folder: Path, artifact: Artifact) -> None:
        import onnxruntime

        # The loop leaves the number of threads to onnxruntime, whose idle threads spin: on a busy machine one is faster.
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = functools.partial(onnxruntime.InferenceSession, sess_options=options)
        with mock.patch.object(onnxruntime, "InferenceSession", session):
            self.loop = runpy.run_path(str(folder / "translate.py"))
        self.encoder, self.decoder = self.loop["encoder"], self.loop["decoder"]
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.logits: Callable[..., Tensor] = onnx_logits(folder)
        self.outputs = [each.name for each in self.decoder.get_outputs()]

    def differences(self, source: list[int], read: list[int], ours: Tensor) -> float:
        return float((ours - self.logits(source, read)).abs().max())

    def step(self, state: OnnxState, tokens: Tensor) -> Tensor:
        """One more token for each sentence and beam, as our search asks."""
        feed = state.memory | state.past | {"tokens": tokens.reshape(-1, 1).numpy()}
        logits, *past = self.decoder.run(None, feed)
        state.past = {f"past.{name}": value for name, value in zip(self.outputs[1:], past, strict=True)}
        return torch.from_numpy(logits).view(*tokens.shape, -1)

    def translate(self, lines: list[str], sources: Rows, beams: int, extra: int) -> Rows:
        rows = [self.loop["encode"](line) for line in lines]
        found: list[list[int]] = [[] for _ in lines]
        for start in range(0, len(rows), 64):
            batch = rows[start : start + 64]
            found[start : start + 64] = self.loop["translate_ids"](batch) if beams == 1 else self._beams(batch, beams, extra)
        return found

    def _beams(self, rows: Rows, beams: int, extra: int) -> Rows:
        src = np.full((len(rows), max(map(len, rows))), PAD)
        for place, row in enumerate(rows):
            src[place, : len(row)] = row
        names = [each.name for each in self.encoder.get_outputs()]
        memory = dict(zip(names, self.encoder.run(None, {"src": src}), strict=True))
        heads, widths = self.config["n_heads"], {"key": self.config["d_k"], "value": self.config["d_v"]}
        past = {
            f"past.{name}": np.zeros((len(rows), heads, 0, widths[name.split(".")[0]]), np.float32) for name in self.outputs[1:]
        }
        limits = torch.tensor([len(row) - 1 + extra for row in rows])
        config = SearchConfig(beam_size=beams, length_penalty=self.penalty, length_norm="length", max_extra=extra)
        found = BeamSearch(self, OnnxState(memory, past, 1), limits, limits.new_empty(len(rows), 0), config).run()
        return [each[0].tokens for each in found]


ENGINES: dict[str, Any] = {"marian": Transformers, "ctranslate2": CTranslate2, "onnx": OnnxRuntime}
"""For each format the engine that it is made for."""


def first_difference(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> str:
    """Where two lists of translations differ first, in words; empty where they do not."""
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True), 1):
        if list(one) != list(other):
            step = next(
                (place for place, both in enumerate(zip(one, other, strict=False)) if both[0] != both[1]), min(len(one), len(other))
            )
            return f"sentence {number}, step {step + 1}"
    return ""
