"""Inline markup that takes part in a sentence: a line break ends it, a code such as `<ph/>` stands in it as a word does.

Both get a letter in the text that is translated, so that the words beside them do not run together and a code keeps its place among
them. Other tags are carried by alignment (`markup.py`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from undivided.formats.contract import Marked, Tag
from undivided.formats.protection import FIRST_STAND_IN, LAST_STAND_IN, STAND_IN

BREAK = "\n"
LETTERS = re.compile("[ \u00a0]?[\U000f5000-\U000f53ff]")


class Lifted(NamedTuple):
    """A text with a letter for each break and code, and the tags that have none."""

    marked: Marked
    letters: Mapping[int, Tag]
    """By the place of its letter in the text."""

    def without(self, target: str) -> Marked:
        """The text with the letters that a translation has lost standing there as tags again."""
        lost = [tag._replace(place=place) for place, tag in self.letters.items() if self.is_lost(place, target)]
        if not lost:
            return self.marked
        return dataclasses.replace(self.marked, tags=tuple(sorted([*self.marked.tags, *lost], key=lambda tag: tag.place)))

    def is_lost(self, place: int, target: str) -> bool:
        """Whether a translation has no letter for the code at this place; breaks are never lost."""
        letter = self.marked.text[place]
        return letter != BREAK and letter not in target


def lift(source: Marked) -> Lifted:
    """Breaks and codes as letters of the text."""
    text, found = source.text, _merge_empty(source.tags)
    free = iter(range(FIRST_STAND_IN, LAST_STAND_IN + 1) if not STAND_IN.search(text) else ())
    parts, tags, letters, length, place = list[str](), list[Tag](), dict[int, Tag](), 0, 0
    for tag in found:
        parts.append(text[place : tag.place])
        length += tag.place - place
        place = tag.place
        letter = ""
        if tag.role == "break":
            letter = BREAK
        elif tag.role == "word":
            letter = next(map(chr, free), "")
        if letter:
            letters[length] = tag
            parts.append(letter)
            length += 1
        else:
            tags.append(tag._replace(place=length))
    return Lifted(Marked("".join([*parts, text[place:]]), tuple(tags), source.is_flat), letters)


def _merge_empty(tags: Sequence[Tag]) -> list[Tag]:
    """Tags, where a pair that encloses no text but codes is one code."""
    result, place = list[Tag](), 0
    while place < len(tags):
        tag, end = tags[place], place
        if tag.kind == "open":
            closing = next((n for n in range(place, len(tags)) if tags[n].kind == "close" and tags[n].pair == tag.pair), place)
            inside = tags[place : closing + 1]
            if tags[closing].place == tag.place and any(each.role == "word" for each in inside):
                tag, end = Tag(tag.place, "".join(each.raw for each in inside), "alone", role="word"), closing
        result.append(tag)
        place = end + 1
    return result


def put_back(placed: Marked, lifted: Lifted, breaks: Mapping[int, int]) -> Marked:
    """A translation in which letters have become tags again.

    `breaks` is where each break stands in it, by its place in the source.
    """
    if not lifted.letters:
        return placed
    text, source = placed.text, lifted.marked.text
    letters, lost = dict[int, Tag](), dict[str, list[int]]()
    for place, tag in lifted.letters.items():
        if lifted.is_lost(place, text):
            lost.setdefault(tag.raw, []).append(place)
        else:
            letters[breaks[place] if source[place] == BREAK else text.index(source[place])] = tag
    result = _Text()
    waiting = list(placed.tags)
    for place, letter in enumerate(text + "\0"):
        while waiting and waiting[0].place <= place:
            tag = waiting.pop(0)
            was = lost[tag.raw].pop(0) if tag.role == "word" and lost.get(tag.raw) else -1
            if was < 0:
                result.add_tag(tag)
            else:
                # White space stands beside it as in the source.
                result.add_apart(tag, source[was - 1 : was].isspace(), source[was + 1 : was + 2].isspace())
        if place in letters:
            result.add_tag(letters[place])
        elif place < len(text) and not STAND_IN.match(letter):
            result.add(letter)
    return Marked("".join(result.parts), tuple(result.tags), placed.is_flat)


class _Text:
    """A text that grows, and its tags."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.tags: list[Tag] = []
        self.owes_space = False

    def add(self, letter: str) -> None:
        if self.owes_space and letter.isalnum():
            self.parts.append(" ")
        self.owes_space = False
        self.parts.append(letter)

    def add_tag(self, tag: Tag) -> None:
        self.tags.append(tag._replace(place=len(self.parts)))

    def add_apart(self, tag: Tag, before: bool, after: bool) -> None:
        if (before or self.owes_space) and self.parts and (self.owes_space or not self.parts[-1].isspace()):
            self.parts.append(" ")
        self.add_tag(tag)
        self.owes_space = after


def leave_out(text: str) -> str:
    """A text without the letters of codes, and without the white space before them."""
    return LETTERS.sub("", text) if STAND_IN.search(text) else text


def blank_out(text: str) -> str:
    """A text with a space in the place of each letter of a code, so that all else stays where it is."""
    return STAND_IN.sub(" ", text)
