"""Segments → sentences for the model, and back with the white space that stood around them. Line breaks always end a sentence."""

from __future__ import annotations

import re
from typing import NamedTuple

from undivided.data import sentences as splitter

LINE = re.compile(r"[^\n]*\n|[^\n]+")


class Sentence(NamedTuple):
    """A sentence and the white space around it."""

    before: str
    text: str
    after: str


def split_sentences(text: str, language: str = "") -> list[Sentence]:
    """The sentences of a text; put together, they are the text again."""
    return [sentence for line in LINE.findall(text) for sentence in _split_line(line, language)]


def join_sentences(sentences: list[Sentence]) -> str:
    """The text that the sentences were."""
    return "".join("".join(each) for each in sentences)


def _split_line(line: str, language: str) -> list[Sentence]:
    body = line.lstrip()
    before = line[: len(line) - len(body)]
    if not body:
        return [Sentence(line, "", "")]
    found = [Sentence("", *each) for each in splitter.split_sentences(body, language)]
    return [found[0]._replace(before=before), *found[1:]]
