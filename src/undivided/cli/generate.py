"""`undivided generate`: text or images from a prompt."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undivided.cli.options import add_compute, search_options
from undivided.cli.streams import input_text, open_output
from undivided.config import CHUNK_LINES, SearchConfig
from undivided.config.flags import add_settings
from undivided.core.errors import InputError
from undivided.core.process import argument_text

if TYPE_CHECKING:
    from undivided.inference.generate import Generator
    from undivided.inference.search_settings import SearchChanges


MOST_DRAWINGS = 1000
"""Prompts whose drawings fit into one image."""


def add_generate(verbs: Any) -> None:
    """`undivided generate`."""
    verb = verbs.add_parser(
        "generate",
        help="continue a prompt with a decoder_only model, or draw it with a drawing model",
        description="Continue each prompt with text, one line for each of --n-best; or with a drawing model, write a PNG of what "
        "the prompt says, several images side by side. Search and sampling settings (--sample, --top-p, …) default to the model's.",
    )
    verb.add_argument("model", help="the folder of a decoder_only or drawing model")
    verb.add_argument(
        "prompt", nargs="+", help="text to continue, or to draw; several are done in turn; - reads one from each line of stdin"
    )
    verb.add_argument("-o", "--output", default="-", metavar="OUT", help="a text file, or for images a .png file (default: stdout)")
    verb.add_argument("--scale", type=int, default=1, metavar="N", help="enlarge images N times (default: 1)")
    add_settings(verb, SearchConfig, without={"shortlist", "sentences"}, default="the model's own")
    add_compute(verb, None)
    verb.set_defaults(run=run_generate)


def run_generate(options: argparse.Namespace) -> None:
    """Continue or draw the prompts."""
    search = search_options(options)
    if not 1 <= options.scale <= 64:
        raise InputError(f"--scale: {options.scale} is not from 1 to 64")
    from undivided.data.subwords import to_one_line
    from undivided.inference.generate import Generator

    generator = Generator(options.model, options.device, options.threads, options.trust)
    prompts = (text for each in options.prompt for text in (input_text("-") if each == "-" else [argument_text(each)]))
    if generator.draws:
        _draw(generator, list(islice(prompts, MOST_DRAWINGS + 1)), options, search)
        return
    first = 0
    with open_output(options.output) as out:
        while chunk := list(islice(prompts, CHUNK_LINES)):
            for row in generator.text(chunk, first, **search):
                out.writelines(f"{to_one_line(each.text)}\n" for each in row)
            out.flush()
            first += len(chunk)


def _draw(generator: Generator, prompts: list[str], options: argparse.Namespace, search: SearchChanges) -> None:
    if Path(options.output).suffix.lower() != ".png":
        raise InputError(f"{options.model} draws images: name a .png file with -o")
    if not 0 < len(prompts) <= MOST_DRAWINGS:
        raise InputError(f"from 1 to {MOST_DRAWINGS:,} prompts can be drawn at once")
    from undivided.core.files import write_atomic
    from undivided.data.images import contact_sheet, encode_png

    images = generator.images(prompts, **search)
    if images.shape[1] > 1 and len(images) > 1:
        raise InputError("a model with colours draws one image at a time; give one prompt and --n-best 1")
    if len(images) > 1:
        picture = contact_sheet(images[:, 0], len(images) // len(prompts), options.scale)
    else:
        whole = images[0, 0] if images.shape[1] == 1 else images[0].transpose(1, 2, 0)
        picture = whole.repeat(options.scale, axis=0).repeat(options.scale, axis=1)
    write_atomic(Path(options.output), encode_png(picture))
