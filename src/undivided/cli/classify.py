"""`undivided classify`: the classes of lines or images."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undivided.cli.options import add_compute
from undivided.cli.streams import input_text, open_output
from undivided.config import CHUNK_LINES
from undivided.core.console import Console, LimitedWarnings
from undivided.core.errors import InputError

if TYPE_CHECKING:
    from undivided.inference.classify import Class, Classifier


def add_classify(verbs: Any) -> None:
    """`undivided classify`."""
    verb = verbs.add_parser(
        "classify",
        help="the class of each line of text or each image",
        description="For every line of text or every image, print its class, a tab and the probability; an empty line stays empty. "
        "Images come as an IDX file, such as those of MNIST, or as pictures, such as PNG; they are resized to what the model was "
        "trained on. The model decides which of the two it reads.",
    )
    verb.add_argument("model", help="folder of a vision model, or of an encoder_only model fine-tuned on classes")
    verb.add_argument("file", nargs="*", default=["-"], help="text (default: stdin), an IDX file or pictures")
    verb.add_argument("-o", "--output", default="-", metavar="OUT", help="file for the classes (default: stdout)")
    add_compute(verb, None)
    verb.set_defaults(run=run_classify)


def run_classify(options: argparse.Namespace) -> None:
    """Print a class for each line or image."""
    missing = [name for name in options.file if name != "-" and not Path(name).exists()]
    if missing:
        raise InputError(f"{', '.join(missing)}: no such file")
    from undivided.inference.classify import Classifier

    classifier, remarks = Classifier(options.model, options.device, options.threads, options.trust), LimitedWarnings(Console())
    with open_output(options.output) as out:
        for name in options.file:
            for number, found in enumerate(_classify(classifier, name), 1):
                if found.cut:
                    where = f"{'stdin' if name == '-' else name}, line {number}"
                    remarks.add(f"{where}: longer than {classifier.longest:,} subwords; only its first part was classified")
                out.write(f"{found.name}\t{found.probability:.4f}\n" if found.name else "\n")
    remarks.close()


def _classify(classifier: Classifier, name: str) -> Iterator[Class]:
    """Classify what a file holds, text line by line; an error names the file."""
    where = "stdin" if name == "-" else name
    if classifier.reads_images:
        from undivided.data.images import read_images

        if name == "-":
            raise InputError("stdin: this model classifies images; name an IDX file or pictures")
        try:
            images = read_images(name)
            wanted, given = (f"{c} × {y} × {x}" for c, y, x in (classifier.image_shape, images.shape[1:]))
            if wanted != given:
                Console().say(f"{name}: made {wanted} (channels × height × width), as in training; it is {given}")
            yield from classifier.images(images)
            return
        except InputError as error:
            raise InputError(str(error) if name in str(error) else f"{where}: {error}") from None
    try:
        lines = input_text(name)
        while chunk := list(islice(lines, CHUNK_LINES)):
            yield from classifier.texts(chunk)
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None
