"""Export a translator to ONNX: encoder, decoder with its cache, subwords, and loops that translate in Python and JavaScript."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undivided.artifact import Artifact
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.inference.engines.ctranslate2 import position_count
from undivided.interop.foreign import Reasons
from undivided.interop.onnx_model import Writer
from undivided.interop.parity import compare_logits
from undivided.interop.vocabulary import Vocabulary
from undivided.models import Transformer

MOST_BYTES = 2_000_000_000
"""A file of ONNX is one message of protobuf, which ends at 2 GB."""

EXAMPLE = '''"""Translate lines from stdin greedily: python translate.py < in.txt"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import sentencepiece

here = Path(__file__).resolve().parent
config = json.loads((here / "config.json").read_text())
encoder, decoder = (onnxruntime.InferenceSession(str(here / name)) for name in ("encoder.onnx", "decoder.onnx"))
source, target = (sentencepiece.SentencePieceProcessor(str(here / name)) for name in ("source.spm", "target.spm"))


def encode(text):
    code, mark, rest = text.partition("<<")  # of a model for several languages: >>deu<< Text
    if text.startswith(">>") and source.piece_to_id(code + mark) != source.unk_id():
        return [source.piece_to_id(code + mark), *encode(rest)]
    return [*map(source.piece_to_id, source.encode(text, out_type=str)), config["end"]]


def translate_ids(rows):
    src = np.zeros((len(rows), max(map(len, rows))), np.int64)  # 0 is padding
    for place, row in enumerate(rows):
        src[place, : len(row)] = row
    state = dict(zip([each.name for each in encoder.get_outputs()], encoder.run(None, {"src": src})))
    for each in decoder.get_inputs():
        if each.name.startswith("past."):
            state[each.name] = np.zeros((len(rows), each.shape[1], 0, each.shape[3]), np.float32)
    past = [f"past.{each.name}" for each in decoder.get_outputs()[1:]]
    found = np.full((len(rows), 1), config["start"])
    limits = [min(len(row) - 1 + config["max_extra"], config["positions"]) for row in rows]
    while found.shape[1] <= max(limits) and not (found == config["end"]).any(axis=1).all():
        logits, *longer = decoder.run(None, {**state, "tokens": found[:, -1:]})
        state.update(zip(past, longer))
        logits[:, :, config["never"]] = -np.inf
        found = np.concatenate([found, logits.argmax(axis=2)], axis=1)
    rows = [row[:limit] for row, limit in zip(found[:, 1:].tolist(), limits)]
    return [row[: row.index(config["end"])] if config["end"] in row else row for row in rows]


if __name__ == "__main__":
    for line in sys.stdin:
        print(target.decode(translate_ids([encode(line.rstrip("\\n"))])[0]))
'''

README = """# {title}

A translator for [ONNX](https://onnx.ai) runtimes{licence}.

```sh
pip install onnxruntime sentencepiece && python translate.py < in.txt
npm install onnxruntime-web && node translate.mjs < in.txt
npm install onnxruntime-web && python -m http.server --bind 127.0.0.1   # then open index.html there
```

`translate.py` and `translate.mjs` are greedy loops to read and change; `subwords.mjs` reads the sentencepiece models in JavaScript.

- `encoder.onnx` reads `src` (int64, batch × source; each row ends with {end} and is padded with 0), and gives `memory.mask` and,
  for each decoder layer N, `memory.key.N` and `memory.value.N`.
- `decoder.onnx` reads `tokens` (int64, batch × new tokens; {start} first), what the encoder gave, and `past.key.N`,
  `past.value.N`. It gives `logits` (batch × new tokens × vocabulary), and `key.N`, `value.N`, which are the next `past`.

Batch and lengths may be any, up to {positions} tokens; `past.key.N` begins as batch × {heads} × 0 × {d_k}, `past.value.N` as
batch × {heads} × 0 × {d_v}. All are float32 except ids. The tokens {never} are never written (`config.json`).
"""


def export_onnx(artifact: Artifact, folder: Path) -> dict[str, Any]:
    """Write the folder; the record of how onnxruntime computes beside us."""
    _check_installed()
    _check_expressible(artifact)
    model = artifact.model
    assert isinstance(model, Transformer)
    config = _config(artifact)
    writer = Writer(model, config["positions"])
    for name, graph in (("encoder.onnx", writer.encoder()), ("decoder.onnx", writer.decoder())):
        write_atomic(folder / name, graph.to_bytes())
    for name, side in (("source.spm", artifact.tokenizer.source), ("target.spm", artifact.tokenizer.target)):
        write_atomic(folder / name, side.model)
    write_atomic(folder / "config.json", json.dumps(config, indent=2) + "\n")
    write_atomic(folder / "translate.py", EXAMPLE)
    for part in sorted(resources.files("undivided.interop").joinpath("onnx_web").iterdir(), key=lambda part: part.name):
        write_atomic(folder / part.name, part.read_bytes())
    write_atomic(folder / "README.md", _readme(artifact, config))
    sides = tuple(_same_ids(len(side)) for side in (artifact.tokenizer.source, artifact.tokenizer.target))
    return compare_logits(model, (sides[0], sides[1]), onnx_logits(folder), "onnxruntime")


def _check_installed() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise InputError(f"--to onnx needs onnx and onnxruntime ({error}): pip install 'undivided[onnx]'") from None


def _check_expressible(artifact: Artifact) -> None:
    """Refuse what has no graph here, with every reason."""
    reasons = Reasons("cannot be exported to ONNX")
    reasons.check(isinstance(artifact.model, Transformer), f"it is a {artifact.recipe.model.kind} model")
    reasons.check(artifact.recipe.model.source_eos, "its encoder does not read the </s> behind a source (model.source_eos)")
    kind = artifact.recipe.model.decoder_self
    reasons.check(kind == "attention", f"a decoder without self-attention (model.decoder_self {kind})")
    bytes_ = sum(4 * each.numel() for each in artifact.model.parameters())
    reasons.check(bytes_ < MOST_BYTES, f"its weights have {bytes_ / 1e9:.1f} GB, and a file of ONNX at most 2")
    reasons.refuse()


def _config(artifact: Artifact) -> dict[str, Any]:
    """What the loops need to know."""
    model = artifact.recipe.model
    return {
        "decoder_layers": model.decoder_layers, "n_heads": model.n_heads, "d_k": model.key_width, "d_v": model.value_width,
        "start": BOS, "end": EOS, "never": [PAD, UNK, BOS], "max_extra": artifact.recipe.search.max_extra,
        "positions": position_count(model), "source": artifact.recipe.data.source_lang, "target": artifact.recipe.data.target_lang,
    }  # fmt: skip


def _readme(artifact: Artifact, config: dict[str, Any]) -> str:
    languages = [language for language in (config["source"], config["target"]) if language]
    named = artifact.facts.get("license")
    return README.format(
        title=" → ".join(languages) or "A translator", licence=f", licence: {named}" if named else "",
        heads=config["n_heads"], never=", ".join(map(str, config["never"])),
        **{name: config[name] for name in ("start", "end", "positions", "d_k", "d_v")},
    )  # fmt: skip


def _same_ids(size: int) -> Vocabulary:
    """The vocabulary keeps its ids."""
    return Vocabulary([""] * size, list(range(size)), [False] * size)


def onnx_logits(folder: Path) -> Callable[[Sequence[int], Sequence[int]], Tensor]:
    """What onnxruntime computes, as its users call it: step by step with the cache, in a batch whose other row is longer."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    encoder, decoder = (
        onnxruntime.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"])
        for name in ("encoder.onnx", "decoder.onnx")
    )
    given = [each.name for each in encoder.get_outputs()]
    past = [(f"past.{each.name}", each.shape) for each in decoder.get_outputs()[1:]]

    def logits(source: Sequence[int], read: Sequence[int]) -> Tensor:
        batch = np.array([[*source, PAD, PAD], [*source[:2], *source]], np.int64)
        state = dict(zip(given, encoder.run(None, {"src": batch}), strict=True))
        state |= {name: np.zeros((len(batch), shape[1], 0, shape[3]), np.float32) for name, shape in past}
        found = []
        for token in read:
            first, *longer = decoder.run(None, state | {"tokens": np.full((len(batch), 1), token, np.int64)})
            state |= {name: value for (name, _), value in zip(past, longer, strict=True)}
            found.append(torch.from_numpy(first[0, 0]))
        return torch.stack(found)

    return logits
