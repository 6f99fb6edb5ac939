"""The common part of the adapters: each runs in its peer's venv and answers commands, one JSON object a line.

An adapter offers `Training` (step, likelihood) or `Translating` (translate) and hands them to `serve`. Ids are ours:
0 `<pad>`, 1 `<unk>`, 2 `<s>`, 3 `</s>`; rows end with `</s>`. Nothing but Python, numpy and (for most) torch may be needed here.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback

PAD, UNK, BOS, EOS = 0, 1, 2, 3

FAIRSEQ_NAMES = {
    **{f"self.{one}": f"self_attn.{one}_proj" for one in "qkv"},
    **{f"cross.{one}": f"encoder_attn.{one}_proj" for one in "qkv"},
    "self.out": "self_attn.out_proj",
    "cross.out": "encoder_attn.out_proj",
    "feed.inner": "fc1",
    "feed.outer": "fc2",
    "self.norm": "self_attn_layer_norm",
    "cross.norm": "encoder_attn_layer_norm",
    "feed.norm": "final_layer_norm",
}
"""Our parts in the words of fairseq, which Hugging Face's models share."""


class Ids:
    """Where a peer numbers the special tokens otherwise; all other ids are the same."""

    def __init__(self, pad: int, unk: int, bos: int, eos: int) -> None:
        self.pad, self.bos, self.eos = pad, bos, eos
        self.theirs = [pad, unk, bos, eos]

    def row(self, row: list[int]) -> list[int]:
        return [self.theirs[token] if token < 4 else token for token in row]

    def back(self, row: list[int]) -> list[int]:
        """Of an output, the ids of ours, without special tokens."""
        return [token for token in row if token >= 4]

    def matrix(self, embedding):
        found = embedding.clone()
        found[self.theirs] = embedding[:4]
        return found


def serve(training=None, translating=None) -> None:
    """Answer on what was stdout; whatever a library prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    kind = {"train": training, "translate": translating}[sys.argv[1]]
    state: list = [None, None]
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = _answer(state, kind, command)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _answer(state: list, kind, command: dict) -> dict:
    if command["do"] == "prepare":
        job = command["job"]
        if job.get("threads") and "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(job["threads"])
        state[:] = [kind(job), job]
        return {"likelihood": state[0].likelihood()} if hasattr(state[0], "likelihood") else {}
    worker, _ = state
    if command["do"] == "train" and hasattr(worker, "train"):
        return {"seconds": worker.train(command["first"], command["count"])}
    if command["do"] == "train":
        began = time.perf_counter()
        for number in range(command["first"], command["first"] + command["count"]):
            worker.step(number)
        return {"seconds": time.perf_counter() - began}
    if command["do"] == "translate":
        began = time.perf_counter()
        outputs = worker.translate(command["sources"])
        return {"seconds": time.perf_counter() - began, "outputs": outputs}
    if command["do"] == "one by one":
        times = []
        for source in command["sources"]:
            began = time.perf_counter()
            worker.translate([source])
            times.append(time.perf_counter() - began)
        return {"times": times}
    raise ValueError(f"no command {command['do']!r}")


def at_its_best(job: dict):
    """Within, products in bfloat16 where a job asks for that: PyTorch's own autocast."""
    import torch

    return torch.autocast("cpu", torch.bfloat16, enabled=bool(job.get("autocast")))


def compiled(job: dict, call):
    """A model's forward pass, compiled where a job asks for that; shapes are left open, since every batch has another."""
    import torch

    return torch.compile(call, dynamic=True) if job.get("compile") else call


def read_batches(job: dict) -> list[tuple[list[list[int]], list[list[int]]]]:
    """The batches that everybody trains on, as rows of ids: (sources, targets)."""
    with open(job["batches"], encoding="utf-8") as stream:
        return [(batch["sources"], batch["targets"]) for batch in json.load(stream)]


def padded(rows, pad: int = PAD, left: bool = False):
    """Rows of ids as one tensor."""
    import torch

    width = max(map(len, rows))
    filled = [[pad] * (width - len(row)) + list(row) if left else list(row) + [pad] * (width - len(row)) for row in rows]
    return torch.tensor(filled)


def shifted(rows, first: int = BOS, pad: int = PAD):
    """Target rows as the decoder reads them: behind `<s>`, without `</s>`."""
    return padded([[first, *row[:-1]] for row in rows], pad)


def by_length(sources, tokens: int):
    """Places in batches of like length, longest first, of at most so many padded source tokens."""
    order = sorted(range(len(sources)), key=lambda place: -len(sources[place]))
    start = 0
    while start < len(order):
        size = max(1, tokens // len(sources[order[start]]))
        yield order[start : start + size]
        start += size


class Weights:
    """Our weights by the parts that every implementation has; `fill` copies them into a peer's layer."""

    def __init__(self, path: str) -> None:
        import numpy
        import torch

        with numpy.load(path) as stored:
            self.tensors = {name: torch.from_numpy(stored[name]) for name in stored.files}
        shared = [name for name in self.tensors if name.endswith("embedding.weight") or name == "output_weight"]
        self.embedding = self.tensors[shared[0]]
        self.positions = self.tensors["positions"]

    def parts(self, side: str, number: int) -> dict:
        """Of one layer: (weight, bias) of q, k, v and out of each attention, of the feed-forward layers, of the norms."""
        prefix = f"{side}.{number}."
        own = {name[len(prefix) :]: tensor for name, tensor in self.tensors.items() if name.startswith(prefix)}

        def both(name: str):
            return own[f"{name}.weight"], own.get(f"{name}.bias")

        def split(name: str, labels: list[str]) -> dict:
            weight, bias = both(name)
            biases = bias.chunk(len(labels)) if bias is not None else [None] * len(labels)
            return dict(zip(labels, zip(weight.chunk(len(labels)), biases)))  # noqa: B905

        found = split("self_attention.qkv", ["self.q", "self.k", "self.v"])
        found["self.out"] = both("self_attention.output")
        norms = ["self.norm", "feed.norm"]
        if side == "decoder":
            found |= split("cross_attention.key_value", ["cross.k", "cross.v"])
            found["cross.q"], found["cross.out"] = both("cross_attention.query"), both("cross_attention.output")
            norms = ["self.norm", "cross.norm", "feed.norm"]
        found["feed.inner"], found["feed.outer"] = both("feed_forward.inner"), both("feed_forward.outer")
        for place, name in enumerate(norms):
            found[name] = both(f"residuals.{place}.norm")
        return found

    def fill(self, layers, side: str, names: dict[str, str]) -> None:
        """Copy into layers whose modules are found under `names`: our part → their path."""
        import torch

        with torch.no_grad():
            for number, layer in enumerate(layers):
                for part, (weight, bias) in self.parts(side, number).items():
                    module = layer.get_submodule(names[part])
                    module.weight.copy_(weight)
                    if bias is not None:
                        module.bias.copy_(bias)
