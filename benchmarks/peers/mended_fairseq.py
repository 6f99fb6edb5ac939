"""What keeps fairseq 0.12.2 from being imported today, mended before it is; run as a script, a command of fairseq follows.

python mended_fairseq.py train|generate|preprocess ARGUMENTS
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys

import numpy
import torch

_plain = dataclasses.dataclass


def _with_hash(kind=None, /, **options):
    """fairseq and hydra give dataclasses as defaults of fields, which Python refuses since 3.11 unless they have a hash."""
    if kind is None:
        return functools.partial(_with_hash, **options)
    old = kind.__module__.split(".")[0] in ("fairseq", "hydra") and not options.get("frozen")
    return _plain(kind, **(options | {"unsafe_hash": True} if old else options))


dataclasses.dataclass = _with_hash

for name, kind in {"float": float, "int": int, "bool": bool, "object": object}.items():
    if name not in numpy.__dict__:
        setattr(numpy, name, kind)  # names that numpy has dropped

if __name__ == "__main__":
    # Its checkpoints are pickles; those that it reads here it wrote itself.
    torch.load = functools.partial(torch.load, weights_only=False)
    command = sys.argv.pop(1)
    layer = importlib.import_module("fairseq.modules.transformer_layer").TransformerEncoderLayerBase
    plain = layer.__init__

    def slow(self, *arguments, **named):
        """Its own short cut for encoders that were never trained in this process asks torch for what that no longer takes."""
        plain(self, *arguments, **named)
        self.ever_training = True

    layer.__init__ = slow
    importlib.import_module(f"fairseq_cli.{command}").cli_main()
