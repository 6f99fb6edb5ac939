"""Glossary and translation memory on the command line."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from undivided.core.console import Console, plural

if TYPE_CHECKING:
    from undivided.inference.translator import Translator


def add_aids(verb: argparse.ArgumentParser) -> None:
    """The options of glossary and memory."""
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
