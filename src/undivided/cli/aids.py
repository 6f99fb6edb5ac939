"""What helps a translator, on the command line: more models, a glossary, a translation memory."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from undivided.core.console import Console, plural
from undivided.core.errors import InputError

if TYPE_CHECKING:
    from undivided.inference.translator import Translator


def add_aids(verb: argparse.ArgumentParser) -> None:
    """The options of more models, glossary and memory."""
    verb.add_argument(
        "--with",
        dest="others",
        nargs="+",
        default=[],
        metavar="MODEL",
        help="more model folders with the same subwords: all write one translation together, by the mean of their probabilities",
    )
    verb.add_argument(
        "--glossary",
        metavar="FILE",
        help="terms that must be translated as a .tsv, .csv or .tbx file says; where one is not, the account says so",
    )
    verb.add_argument(
        "--memory",
        metavar="FILE",
        help="reuse the translations of a .tmx, .po or other file for equal sources; similar ones are shown in the --report",
    )


def open_translator(options: argparse.Namespace, console: Console) -> Translator:
    """The translator that the options name: of one model, or of several together."""
    from undivided.inference.ensemble import open_ensemble
    from undivided.inference.translator import Translator

    if not options.others:
        return Translator(options.model, options.device, options.threads, options.engine, console, options.trust)
    if options.engine not in ("auto", "torch"):
        raise InputError(f"--with: several models run in PyTorch, and not with --engine {options.engine}")
    artifact = open_ensemble([options.model, *options.others], options.device, options.threads)
    console.say(f"{1 + len(options.others)} models together")
    return Translator(artifact, options.device, options.threads, "torch", console, options.trust)


def use_aids(translator: Translator, options: argparse.Namespace, console: Console) -> None:
    """Give a translator the glossary and the memory that the options name."""
    from undivided.formats.memory import read_memory
    from undivided.formats.terms import read_glossary

    languages = translator.artifact.recipe.data.source_lang, translator.artifact.recipe.data.target_lang
    if options.glossary:
        translator.glossary = read_glossary(options.glossary, *languages)
        console.say(f"{options.glossary}: {plural(len(translator.glossary), 'term')}")
    if options.memory:
        translator.memory = read_memory(options.memory, *languages)
        console.say(f"{options.memory}: {plural(len(translator.memory), 'translation')} in memory")
