"""The data of `make prove-protection`: office help with its own inline markup, held-out sentences, what is injected into them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from undivided.cli.demo.corpus import MOST_BYTES, SENTENCE_BREAK, HelpPage, run
from undivided.data.text_files import read_lines
from undivided.formats import Marked
from undivided.formats.contract import Tag

STYLES = {"emph", "menuitem", "literal", "input", "keycode", "defterm", "acronym", "widget"}
"""Classes of the spans in the help pages."""

LOOKED_AT = 500
"""So many usable pairs, first those with two spans, were looked at when it was chosen how signals of alignment are weighed."""

PACKAGES = ("libreoffice-help-en-us", "libreoffice-help-de")


class Span(NamedTuple):
    """Some words of a text, and how they are marked."""

    start: int
    end: int
    style: str


class TaggedText(NamedTuple):
    """A text and its marked words."""

    text: str
    spans: tuple[Span, ...]

    def marked(self) -> Marked:
        """With tags, as a document has it; spans are in order and apart."""
        tags = []
        for number, (start, end, _) in enumerate(self.spans, 1):
            tags += [Tag(start, f'<g id="{number}">', "open", number), Tag(end, f"</g{number}>", "close", number)]
        return Marked(self.text, tuple(tags))

    def words(self) -> list[str]:
        """What is marked."""
        return [self.text[span.start : span.end] for span in self.spans]


class TaggedPage(HelpPage):
    """Collects paragraphs with their spans."""

    def __init__(self) -> None:
        super().__init__()
        self.tagged: dict[str, TaggedText] = {}
        self._spans: list[Span] = []
        self._styles: list[tuple[str, int]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        if dict(attrs).get("id") == self._id and tag == self._open:
            self._spans, self._styles = [], []
        elif tag == "span":
            self._styles.append((dict(attrs).get("class") or "", len("".join(self._text))))

    def handle_endtag(self, tag: str) -> None:
        if tag == "span" and self._styles:
            style, start = self._styles.pop()
            if style in STYLES and not self._hidden:
                self._spans.append(Span(start, len("".join(self._text)), style))
        elif tag == self._open:
            self.tagged[self._id] = squeeze("".join(self._text), self._spans)
        super().handle_endtag(tag)


def squeeze(text: str, spans: Sequence[Span]) -> TaggedText:
    """A text with single spaces, and its spans in it without the spaces around them."""
    places, result = [], list[str]()
    for letter in text:
        places.append(len(result))
        if not letter.isspace():
            result.append(letter)
        elif result and result[-1] != " ":
            result.append(" ")
    places.append(len(result))
    whole = "".join(result).rstrip()
    moved = []
    for start, end, style in spans:
        start, end = places[start], min(places[end], len(whole))
        while start < end and whole[start] == " ":
            start += 1
        while end > start and whole[end - 1] == " ":
            end -= 1
        if start < end:
            moved.append(Span(start, end, style))
    return TaggedText(whole, tuple(sorted(moved)))


def sentences(paragraph: TaggedText) -> Iterator[TaggedText]:
    """The sentences of a paragraph with the spans that lie within each."""
    place = 0
    for text in SENTENCE_BREAK.split(paragraph.text):
        start = paragraph.text.index(text, place)
        place = start + len(text)
        inside = [Span(a - start, b - start, style) for a, b, style in paragraph.spans if start <= a and b <= place]
        yield TaggedText(text, tuple(inside))


def tagged_pairs() -> list[tuple[TaggedText, TaggedText]]:
    """Sentence pairs with one or two marked spans on both sides, of which it is known which belongs to which."""
    with TemporaryDirectory() as name:
        scratch = Path(name)
        run(["apt-get", "download", *PACKAGES], scratch)
        for package in sorted(scratch.glob("*.deb")):
            run(["dpkg-deb", "-x", f"./{package.name}", "."], scratch)
        ours, theirs = (_paragraphs(scratch, language) for language in ("en-US", "de"))
    found = dict[str, tuple[TaggedText, TaggedText]]()
    for place in ours.keys() & theirs.keys():
        left, right = list(sentences(ours[place])), list(sentences(theirs[place]))
        for pair in zip(left, right, strict=True) if len(left) == len(right) else ():
            if _is_clear(*pair):
                found.setdefault(pair[0].text, pair)
    return sorted(found.values(), key=lambda pair: hashlib.sha256(pair[0].text.encode()).digest())


def _paragraphs(root: Path, language: str) -> dict[tuple[str, str], TaggedText]:
    result = {}
    for folder in root.glob(f"**/help/{language}/text"):
        for path in folder.rglob("*.html"):
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_BYTES:
                page = TaggedPage()
                page.feed(path.read_text(encoding="utf-8", errors="replace"))
                page.close()
                result |= {(str(path.relative_to(folder)), name): text for name, text in page.tagged.items()}
    return result


def _is_clear(source: TaggedText, target: TaggedText) -> bool:
    """Whether a pair has one span on both sides, or two that differ in style, in the middle of enough other words."""
    styles = [sorted(span.style for span in side.spans) for side in (source, target)]
    if styles[0] != styles[1] or len(styles[0]) not in (1, 2) or len(set(styles[0])) != len(styles[0]):
        return False
    apart = all(left.end <= right.start for side in (source, target) for left, right in pairwise(side.spans))
    return apart and all(
        6 <= len(side.text.split()) <= 25 and sum(map(len, side.words())) * 2 <= len(side.text) for side in (source, target)
    )


class HeldOut(NamedTuple):
    """What the models do not learn from."""

    tagged: list[tuple[TaggedText, TaggedText]]
    plain: list[tuple[str, str]]


def split_corpus(corpus: Path, folder: Path, tagged: int, plain: int) -> HeldOut:
    """Write training files without what is held out: sentences with marked spans, and others."""
    pairs = list(zip(*(read_lines(corpus / f"train.{language}") for language in ("en", "de")), strict=True))
    known = {source for source, _ in pairs}
    usable = [pair for pair in tagged_pairs() if pair[0].text in known]
    # Pairs of spans are rare, so that all of them are taken; of the others, those that nothing was chosen on.
    two, one = ([pair for pair in usable if (len(pair[0].spans) == 1) == is_single] for is_single in (False, True))
    seen = max(0, LOOKED_AT - len(two))
    chosen = [*two, *one[seen:]][:tagged]
    marked = {pair[0].text for pair in chosen}
    rest = sorted((pair for pair in pairs if pair[0] not in marked), key=lambda pair: hashlib.sha256(pair[0].encode()).digest())
    kept = set(rest[plain:])
    folder.mkdir(parents=True, exist_ok=True)
    for side, language in enumerate(("en", "de")):
        lines = [pair[side] for pair in pairs if pair in kept]
        (folder / f"train.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return HeldOut(chosen, rest[:plain])


MADE = (
    "%s", "%1$s", "%(count)d", "{name}", "{{title}}", "${HOME}", ":user", "\\n", "&amp;", "&#8230;", "https://example.org/a?b=1&c=2",
    "http://www.example.com/path/to/page.html", "info@example.org", "/usr/share/doc", "C:\\Users\\me", "readme.txt", "12.5 cm",
    "300 dpi", "75 %", "2026-11-18", "v2.10.3", "7.4.7", "XR-2000", "RFC4646", "48151", "\U0001f600", "\U0001f44d\U0001f3fd",
)  # fmt: skip
"""What is injected, beside pairs of tags."""


def inject(text: str, seed: int) -> tuple[str, list[str]]:
    """A sentence with one to three things that must stay, between its words; one in four has a pair of tags around a word."""
    chance = random.Random(f"{seed} {text}")
    words, items = text.split(" "), []
    for _ in range(chance.randint(1, 3)):
        item = chance.choice(MADE)
        words.insert(chance.randint(1, len(words) - 1), item)
        items.append(item)
    if chance.random() < 0.25:
        place = chance.randrange(len(words))
        words[place] = f"<b>{words[place]}</b>"
        items += ["<b>", "</b>"]
    return " ".join(words), items
