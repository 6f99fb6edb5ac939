"""`undivided import` and `export`: models from and to other engines."""

from __future__ import annotations

import argparse
from typing import Any

from undivided.cli.options import add_quiet
from undivided.core.console import Console

FORMATS = ("marian", "ctranslate2", "argos", "onnx", "bergamot")
WEIGHTS = ("float32", "int16", "int8")


def add_import(verbs: Any) -> None:
    """`undivided import`."""
    verb = verbs.add_parser(
        "import",
        help="make a model folder from a model of another engine",
        description="Read a translator of another engine and write it as a model folder: Hugging Face Marian folders (OPUS-MT), "
        "Marian's own .npz and .bin files (Firefox), fairseq and OpenNMT-py checkpoints, CTranslate2 folders, Argos packages; "
        "GPT-2, BERT and ViT. "
        "Nothing in them is run. The result is compared with the other engine where that is installed.",
    )
    verb.add_argument("path", help="a folder, an .argosmodel, .npz or .bin file, or owner/name on a Hugging Face hub (extra: hub)")
    verb.add_argument("out", help="the new model folder")
    verb.add_argument(
        "--target-lang",
        default="",
        metavar="CODE",
        help="of a model for several target languages: the one that is meant, as the model names it (>>deu<< is deu)",
    )
    verb.add_argument("--license", default="", metavar="NAME", help="the licence of the model, where its card names none")
    add_quiet(verb)
    verb.set_defaults(run=run_import)


def run_import(options: argparse.Namespace) -> None:
    """Import a model."""
    from undivided.interop.door import import_model

    import_model(options.path, options.out, Console(options.quiet), options.license, options.target_lang)


def add_export(verbs: Any) -> None:
    """`undivided export`."""
    verb = verbs.add_parser(
        "export",
        help="write a translator for another engine",
        description="Write a translator as other engines read it, run it there on sample sentences, and compare. What the other "
        "engine cannot express is refused with every reason.",
    )
    verb.add_argument("model", help="a model folder")
    verb.add_argument("out", help="the new folder, or for argos the new .argosmodel file")
    verb.add_argument("--to", required=True, choices=FORMATS, help="the engine")
    verb.add_argument(
        "--weights",
        default="",
        choices=WEIGHTS,
        help="how CTranslate2 and Argos store weights (default: float32), and Bergamot (int8 or float32; default: int8)",
    )
    add_quiet(verb)
    verb.set_defaults(run=run_export)


def run_export(options: argparse.Namespace) -> None:
    """Export a model."""
    from undivided.interop.export import export_model

    export_model(options.model, options.out, options.to, Console(options.quiet), options.weights)
