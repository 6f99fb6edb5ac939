"""The verbs that use the relatives of the Transformer: generate, classify."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undivided.cli.options import Output, add_compute, input_lines, search_options
from undivided.config import SearchConfig
from undivided.config.flags import add_settings
from undivided.core.console import Console, LimitedWarnings, printable
from undivided.core.errors import InputError

if TYPE_CHECKING:
    from undivided.inference.classify import Class, Classifier
    from undivided.inference.generate import Generator


def add_generate(verbs: Any) -> None:
    """`undivided generate`."""
    verb = verbs.add_parser(
        "generate",
        help="go on from a prompt: text of a decoder_only model, an image of a drawing model",
        description="Text that goes on from the prompt, one line for each of --n-best; or with a model that draws, a PNG of what "
        "the prompt says, with several of them side by side. How text is chosen (--sample, --top-p, …) is as "
        "the model's recipe said, if not said here.",
    )
    verb.add_argument("model", help="the folder of a decoder_only or drawing model")
    verb.add_argument(
        "prompt", nargs="+", help="what to begin with, or to draw; several are done one after the other; - reads lines of stdin"
    )
    verb.add_argument("-o", "--output", default="-", metavar="OUT", help="a file of text, or for images a .png (default: stdout)")
    verb.add_argument("--scale", type=int, default=1, metavar="N", help="enlarge images so many times (default: 1)")
    add_settings(verb, SearchConfig, without={"shortlist", "sentences"}, default="the model's own")
    add_compute(verb, None)
    verb.set_defaults(run=run_generate)


def run_generate(options: argparse.Namespace) -> None:
    """Write or draw."""
    search = search_options(options)
    if not 1 <= options.scale <= 64:
        raise InputError(f"--scale: {options.scale} is not from 1 to 64")
    from undivided.data.subwords import to_one_line
    from undivided.inference.generate import Generator

    generator = Generator(options.model, options.device, options.threads)
    prompts = [text for each in options.prompt for text in (_stdin() if each == "-" else [each])]
    if generator.draws:
        return _draw(generator, prompts, options, search)
    found = generator.text(prompts, **search)
    with Output(options.output) as out:
        for row in found:
            for each in row:
                text = to_one_line(each.text)
                out.write((printable(text) if out.isatty() else text) + "\n")
    return None


def _stdin() -> list[str]:
    try:
        return [line.decode("utf-8") for line in input_lines("-")]
    except UnicodeDecodeError:
        raise InputError("stdin: not valid UTF-8 text") from None


def _draw(generator: Generator, prompts: list[str], options: argparse.Namespace, search: dict[str, Any]) -> None:
    if Path(options.output).suffix.lower() != ".png":
        raise InputError(f"{options.model} draws: name a file for the image that ends in .png with -o")
    from undivided.core.files import write_atomic
    from undivided.data.images import contact_sheet, encode_png

    images = generator.images(prompts, **search)
    if images.shape[1] > 1 and len(images) > 1:
        raise InputError("several images side by side are drawn in grey only; ask for one")
    if len(images) > 1:
        picture = contact_sheet(images[:, 0], len(images) // len(prompts), options.scale)
    else:
        whole = images[0, 0] if images.shape[1] == 1 else images[0].transpose(1, 2, 0)
        picture = whole.repeat(options.scale, axis=0).repeat(options.scale, axis=1)
    write_atomic(Path(options.output), encode_png(picture))


def add_classify(verbs: Any) -> None:
    """`undivided classify`."""
    verb = verbs.add_parser(
        "classify",
        help="the class of each line of text, or of each image",
        description="One line out for every line of text in, or for every image: the class and its probability, a tab between; "
        "an empty line stays empty. "
        "Images are an IDX file, as those of MNIST, or pictures such as PNG. Which of the two, the model knows.",
    )
    verb.add_argument("model", help="the folder of a vision model, or of an encoder_only model fine-tuned to classes")
    verb.add_argument("file", nargs="*", default=["-"], help="text (default: stdin), an IDX file, or pictures")
    verb.add_argument("-o", "--output", default="-", metavar="OUT", help="where the classes go (default: stdout)")
    add_compute(verb, None)
    verb.set_defaults(run=run_classify)


def run_classify(options: argparse.Namespace) -> None:
    """Name classes."""
    missing = [name for name in options.file if name != "-" and not Path(name).exists()]
    if missing:
        raise InputError(f"no such file: {', '.join(missing)}")
    from undivided.inference.classify import Classifier

    classifier, remarks = Classifier(options.model, options.device, options.threads), LimitedWarnings(Console())
    with Output(options.output) as out:
        for name in options.file:
            for number, found in enumerate(_classes(classifier, name), 1):
                if found.cut:
                    where = f"{'stdin' if name == '-' else name}, line {number}"
                    remarks.add(f"{where}: longer than {classifier.longest:,} subwords; its class is that of its beginning")
                text = printable(found.name) if out.isatty() else found.name
                out.write(f"{text}\t{found.probability:.4f}\n" if found.name else "\n")
    remarks.close()


def _classes(classifier: Classifier, name: str) -> list[Class]:
    """What a file holds, by class; an error names the file."""
    where = "stdin" if name == "-" else name
    if classifier.sees:
        from undivided.data.images import read_images

        if name == "-":
            raise InputError("this model sees images: name an IDX file or pictures")
        try:
            return classifier.images(read_images(name))
        except InputError as error:
            raise InputError(str(error) if name in str(error) else f"{where}: {error}") from None
    try:
        return classifier.texts([line.decode("utf-8") for line in input_lines(name)])
    except UnicodeDecodeError:
        raise InputError(f"{where}: not valid UTF-8 text") from None
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
