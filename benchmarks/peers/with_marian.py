"""Marian itself (pymarian): its own training of our batches' text, and ready-made pieces in, pieces out.

It reads and writes files only, so a piece of training is a run of its own, of which its log says how long the updates took.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from pymarian import Translator
from worker import read_batches, serve

UPDATE = re.compile(r"Up\. \d+ .*?\* ([\d,]+).*? : Time ([\d.]+)s")
"""Of a line of the log: the target tokens of an update, and its seconds."""


class Training:
    """Batches are of Marian's own making, of the same text, about as many tokens each; weights are its own, of the same sizes."""

    def __init__(self, job: dict) -> None:
        self.job, self.batches = job, read_batches(job)
        self.kept = tempfile.TemporaryDirectory(prefix="marian-")
        self.home = Path(self.kept.name)
        words = ["</s>", "<unk>", *(f"t{token}" for token in range(4, job["vocabulary"]))]
        (self.home / "vocab.yml").write_text(json.dumps({word: place for place, word in enumerate(words)}), encoding="utf-8")

    def likelihood(self) -> float:
        return math.nan

    def train(self, first: int, count: int) -> float:
        """Seconds for these batches, by the pace of all updates but the first, which makes room for the others."""
        chosen = self.batches[first : first + count]
        for name, side in (("source", 0), ("target", 1)):
            rows = [row for batch in chosen for row in batch[side]]
            lines = [" ".join(f"t{token}" for token in row if token >= 4) for row in rows]
            # Read twice, so that there is something behind the first update.
            (self.home / name).write_text("\n".join(lines * 2) + "\n", encoding="utf-8")
        tokens = sum(len(row) for batch in chosen for row in batch[1])
        options = self.options(first, max(1, tokens // count))
        (self.home / "train.yml").write_text(json.dumps(options), encoding="utf-8")
        # In a process of its own, which it ends when it is done.
        code = "import sys, _pymarian; _pymarian.main(['train', '--config', sys.argv[1]])"
        subprocess.run([sys.executable, "-c", code, str(self.home / "train.yml")], check=True, capture_output=True)
        log = (self.home / f"{first}.log").read_text(encoding="utf-8")
        updates = [(int(labels.replace(",", "")), float(seconds)) for labels, seconds in UPDATE.findall(log)][1:]
        if not updates:
            raise RuntimeError("Marian's log tells of no update behind the first")
        return tokens * sum(seconds for _, seconds in updates) / sum(labels for labels, _ in updates)

    def options(self, first: int, words: int) -> dict:
        """Of a run: post-norm, one embedding, dropout where the others have it, Adam."""
        shape, files, threads = self.job["model"], [str(self.home / "source"), str(self.home / "target")], self.job["threads"]
        return {
            "type": "transformer", "model": str(self.home / f"{first}.npz"), "train-sets": files,
            "vocabs": [str(self.home / "vocab.yml")] * 2, "dim-vocabs": [self.job["vocabulary"]] * 2,
            "dim-emb": shape["d_model"], "enc-depth": shape["encoder_layers"], "dec-depth": shape["decoder_layers"],
            "transformer-heads": shape["n_heads"], "transformer-dim-ffn": shape["d_ff"], "transformer-ffn-activation": "relu",
            "tied-embeddings-all": True, "transformer-postprocess-emb": "d", "transformer-postprocess": "dan",
            "transformer-dropout": shape["dropout"], "label-smoothing": self.job["smoothing"], "optimizer": "adam",
            "optimizer-params": [0.9, 0.98, 1e-9], "learn-rate": 0.0001, "seed": 1, "cpu-threads": threads, "sync-sgd": True,
            "mini-batch": 1000, "mini-batch-words": words, "maxi-batch": 100, "maxi-batch-sort": "trg", "max-length": 500,
            "after": "1e", "disp-freq": "1u", "save-freq": "1000000u", "workspace": 2048, "quiet": True,
            "log": str(self.home / f"{first}.log"), "overwrite": True, "tempdir": str(self.home),
        }  # fmt: skip


class Translating:
    """Options come by a file: as keywords, empty ones fail."""

    def __init__(self, job: dict) -> None:
        pieces = json.loads(Path(job["pieces"]).read_text(encoding="utf-8"))
        self.ids = {piece: token for token, piece in enumerate(pieces)}
        options = {
            "models": [job["marian"] + "/model.npz"], "vocabs": [job["marian"] + "/vocab.yml"] * 2, "beam-size": job["beam"],
            "normalize": 0, "word-penalty": 0, "max-length-factor": 3, "cpu-threads": job["threads"], "mini-batch": 32,
            "maxi-batch": 100, "maxi-batch-sort": "src", "workspace": 512, "quiet": True, "quiet-translation": True,
        }  # fmt: skip
        if job["rounded"]:
            options |= {"gemm-type": "packed8", "optimize": True}
        with tempfile.TemporaryDirectory(prefix="marian-") as home:
            path = Path(home) / "decoder.yml"
            path.write_text(json.dumps(options), encoding="utf-8")
            self.translator = Translator(config=str(path))

    def translate(self, sources: list[list[str]]) -> list[list[int]]:
        found = self.translator.translate([" ".join(pieces) for pieces in sources])
        return [[self.ids[piece] for piece in line.split()] for line in found]


if __name__ == "__main__":
    serve(Training, Translating)
