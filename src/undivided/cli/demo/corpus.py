"""Corpora of `undivided corpus` and the demo: real text from Debian's or Python's packages, aligned, cleaned and split."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from undivided.core.console import Console, plural
from undivided.core.errors import InputError
from undivided.core.files import build_folder

TARGETS = {"de": r"[^\W\d_]", "fr": r"[^\W\d_]", "ko": "[가-힣]"}
"""The target languages of the demo, and a pattern that a translated text must contain: much of the Korean is still English."""
ANY_LETTER = r"[^\W\d_]"
"""What a text in any other language must contain."""

ORIGINS = {
    "office-help": "The help pages of LibreOffice, from Debian's packages libreoffice-help-*. Licence: MPL-2.0.",
    "home-assistant": "The messages of Home Assistant, from the Python packages homeassistant and home-assistant-frontend. "
    "Licence: Apache-2.0.",
}
"""Where each corpus comes from, and under which licence."""

HELD_OUT = 500
ENOUGH_PAIRS = 5 * HELD_OUT
WORDS = range(3, 26)
"""Number of words of usable sentences: neither a label nor a paragraph."""

MOST_BYTES = 8 << 20
"""Larger files in a package are not read; the real ones have a few hundred thousand bytes."""

UNSEEN, PARAGRAPHS = "unseen", range(12, 25)
"""The name of a help page that is kept from training, to be translated at the end, and how many paragraphs it has."""

TextPair = tuple[str, str]


class Fetched(NamedTuple):
    """The sentence pairs of a corpus, and its name in `ORIGINS`."""

    name: str
    pairs: list[TextPair]


def prepare_corpus(pair: str, folder: Path, console: Console, name: str = "") -> None:
    """Download and split a corpus, by its name or the first that is available; the folder appears only when it is complete."""
    if folder.is_dir():
        console.say(f"{folder}: the corpus is already there")
        return
    source, target = pair.split("-", 1)
    with build_folder(folder) as building:
        found = fetch_pairs(target, console, name, building)
        parts = split(found.pairs)
        for part, pairs in parts.items():
            for side, lang in enumerate((source, target)):
                text = "".join(f"{each[side]}\n" for each in pairs)
                (building / f"{part}.{lang}").write_text(text, encoding="utf-8", newline="\n")
        (building / "ORIGIN.txt").write_text(f"{ORIGINS[found.name]}\n", encoding="utf-8", newline="\n")
    counts = ", ".join(f"{len(pairs):,} {part}" for part, pairs in parts.items())
    console.say(f"{folder}: {counts} sentence pairs\n{ORIGINS[found.name]}")


class Unavailable(Exception):
    """A source of text that is not available here, and why."""


def fetch_pairs(target: str, console: Console, only: str = "", keep: Path | None = None) -> Fetched:
    """Sentence pairs from the first source that is available, or only from one; a document beside them is put into `keep`."""
    reasons = []
    for name, fetch in zip(ORIGINS, (libreoffice_help, home_assistant), strict=True):
        if only and name != only:
            continue
        try:
            with TemporaryDirectory(prefix="undivided-demo-") as scratch:
                pairs = clean(fetch(target, Path(scratch), console), target)
                for path in Path(scratch).glob(f"{UNSEEN}.*") if keep is not None else ():
                    shutil.copyfile(path, (keep or Path()) / path.name)
            if len(pairs) < ENOUGH_PAIRS:
                raise Unavailable(f"it contains only {plural(len(pairs), 'usable sentence pair')}")
            return Fetched(name, pairs)
        except Unavailable as reason:
            console.warn(f"{name} is not available: {reason}")
            reasons.append(f"{name}: {reason}")
    raise InputError(
        "no text to train on was found; this needs the network once, for apt-get or pip:\n  - "
        + "\n  - ".join(reasons)
        + "\nTo train on two files of your own: undivided train --train SOURCE TARGET --out DIR"
    )


def libreoffice_help(target: str, scratch: Path, console: Console) -> Iterator[TextPair]:
    """The help pages of an office suite, from Debian's packages (MPL-2.0): paragraphs of the same page and id."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable("apt-get is not installed")
    packages = ["libreoffice-help-en-us", f"libreoffice-help-{target}"]
    console.say(f"downloading {' and '.join(packages)} with apt-get …")
    try:
        run(["apt-get", "download", *packages], scratch)
    except Unavailable:
        # Missing or outdated package lists are the usual cause; only root may update them.
        if os.geteuid():
            raise
        console.say("updating the package lists with apt-get update …")
        run(["apt-get", "update"], scratch)
        run(["apt-get", "download", *packages], scratch)
    for package in sorted(scratch.glob("*.deb")):
        run(["dpkg-deb", "-x", f"./{package.name}", "."], scratch)
    console.say("aligning the paragraphs of the help pages …")
    ours, theirs = help_paragraphs(scratch, "en-US"), help_paragraphs(scratch, target)
    held_out = _hold_out_page(scratch, {place: text for place, text in ours.items() if place in theirs})
    for place, text in ours.items():
        if place in theirs and text not in held_out:
            yield text, theirs[place]


def _hold_out_page(root: Path, paragraphs: dict[tuple[str, str, int], str]) -> set[str]:
    """Keep one page for the end, always the same, which nothing is learned from: its texts."""
    pages = Counter(page for page, _, _ in paragraphs)
    usual = sorted((page for page, count in pages.items() if count in PARAGRAPHS), key=lambda page: zlib.crc32(page.encode()))
    for page in usual[:1]:
        for folder in root.glob("**/help/en-US/text"):
            shutil.copyfile(folder / page, root / f"{UNSEEN}.html")
            return {text for (where, _, _), text in paragraphs.items() if where == page}
    return set()


def help_paragraphs(root: Path, lang: str) -> dict[tuple[str, str, int], str]:
    """The paragraphs of a language's help pages by page, id, and how often the id came before on that page."""
    found = {}
    for folder in (each for each in root.glob("**/help/*/text") if each.parent.name.lower() == lang.lower()):
        for page in sorted(folder.rglob("*.html")):
            # A link in a package may point anywhere on this machine.
            if not page.resolve().is_relative_to(root.resolve()) or not page.is_file() or page.stat().st_size > MOST_BYTES:
                continue
            seen: Counter[str] = Counter()
            for name, text in paragraphs(page.read_text(encoding="utf-8", errors="replace")):
                found[str(page.relative_to(folder)), name, seen[name]] = text
                seen[name] += 1
    return found


def paragraphs(html: str) -> list[TextPair]:
    """The paragraphs and headings of a help page as (id, plain text)."""
    page = HelpPage()
    page.feed(html)
    page.close()
    return page.found


class HelpPage(HTMLParser):
    """Collects the text of elements whose id marks them as translated."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[TextPair] = []
        self._open = self._id = ""
        self._text: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Start a paragraph; inside one, notice what must be skipped."""
        given = {name: value or "" for name, value in attrs}
        if given.get("id", "").startswith(("par_id", "hd_id")):
            self._open, self._id, self._text, self._hidden = tag, given["id"], [], 0
        elif tag == "br":
            self._text.append(" ")
        elif tag == "span" and (self._hidden or ("hidden" in given and given.get("class"))):
            # Of the wordings for several operating systems only the default is read, which has no class.
            self._hidden += 1

    def handle_endtag(self, tag: str) -> None:
        """End a hidden part or the paragraph."""
        if tag == "span" and self._hidden:
            self._hidden -= 1
        elif tag == self._open:
            self.found.append((self._id, " ".join("".join(self._text).split())))
            self._open = ""

    def handle_data(self, data: str) -> None:
        """Keep visible text."""
        if self._open and not self._hidden:
            self._text.append(data)


def home_assistant(target: str, scratch: Path, console: Console) -> Iterator[TextPair]:
    """The messages of a home automation system, from its Python packages (Apache-2.0): texts of the same key."""
    packages = ["homeassistant", "home-assistant-frontend"]
    console.say(f"downloading {' and '.join(packages)} with pip, about 120 MB …")
    pip = [sys.executable, "-P", "-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
    run([*pip, *packages], scratch)
    for wheel in sorted(scratch.glob("*.whl")):
        theirs = messages(wheel, target)
        for key, text in messages(wheel, "en").items():
            # A text that refers to another key has no wording of its own.
            if key in theirs and "[%key:" not in text + theirs[key]:
                yield text, theirs[key]


def messages(wheel: Path, lang: str) -> dict[tuple[str, ...], str]:
    """The texts of a language in a package, by the file without its language and the keys inside it. Nothing is unpacked."""
    found: dict[tuple[str, ...], str] = {}
    try:
        with zipfile.ZipFile(wheel) as package:
            for member in package.infolist():
                place = path_without_language(member.filename, lang)
                # zipfile gives no more bytes than a member declares.
                if place and member.file_size <= MOST_BYTES:
                    found |= flatten(json.loads(package.read(member)), (place,))
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, ValueError, RuntimeError, RecursionError) as error:
        raise Unavailable(f"{wheel.name} is damaged: {error}") from None
    return found


def path_without_language(name: str, lang: str) -> str:
    """The name of a file of translations without its language and digest; nothing for other files.

    `a/translations/de.json` → `a/translations/`, `translations/login/de-0123456789abcdef.json` → `translations/login/`
    """
    _, found, rest = name.rpartition("translations/")
    if not found or not rest.endswith(".json"):
        return ""
    stem, dash, hexadecimal = rest.removesuffix(".json").rpartition("-")
    if not (dash and len(hexadecimal) >= 16 and set(hexadecimal) <= set("0123456789abcdef")):
        stem = rest.removesuffix(".json")
    before = stem.removesuffix(lang)
    return name[: len(name) - len(rest)] + before if stem != before and before[-1:] in ("", "/", ".") else ""


def flatten(value: object, keys: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """Nested objects as one dictionary, from the path of keys to each text."""
    if isinstance(value, dict):
        return {path: text for key, inner in value.items() for path, text in flatten(inner, (*keys, key)).items()}
    return {keys: " ".join(value.split())} if isinstance(value, str) else {}


def run(command: list[str], folder: Path) -> None:
    """Run another program in a folder; raise `Unavailable` with its last line if it fails."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=900, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from None
    if done.returncode:
        words = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise Unavailable(words[-1].strip() if words else f"{command[0]} failed with code {done.returncode}")


SENTENCE_BREAK = re.compile(r"(?:(?<=[^\s.][^\s.][.!?])|(?<=[»)\]][.!?]))\s+(?=[\"“„«(]?\s?[^\W\d_a-zß-ÿ])")
"""The space after a full stop that ends a word of two letters or more (not `z. B.`), before a letter that is not small."""


def sentence_pairs(source: str, target: str) -> list[TextPair]:
    """Sentences side by side where both texts have as many, else the two texts whole."""
    sources, targets = SENTENCE_BREAK.split(source), SENTENCE_BREAK.split(target)
    return list(zip(sources, targets, strict=True)) if len(sources) == len(targets) else [(source, target)]


def clean(texts: Iterable[TextPair], target_lang: str) -> list[TextPair]:
    """Usable sentence pairs, each source once."""
    found: dict[str, str] = {}
    for text in texts:
        for source, target in sentence_pairs(*text):
            if source not in found and is_usable(source, target, target_lang):
                found[source] = target
    return list(found.items())


def is_usable(source: str, target: str, target_lang: str) -> bool:
    """Whether a pair looks like a sentence and its translation, judged by lengths and letters."""
    return (
        source != target
        and len(source.split()) in WORDS
        and len(target.split()) < 2 * WORDS.stop
        and 0.2 <= len(target) / len(source) <= 3.0
        and sum(each.isalpha() or each == " " for each in source) > 0.8 * len(source)
        and bool(re.search(TARGETS.get(target_lang, ANY_LETTER), target))
    )


def split(pairs: list[TextPair]) -> dict[str, list[TextPair]]:
    """Split into train, valid and test without a text in common on either side; always the same split."""
    sources, targets = (Counter(each[side] for each in pairs) for side in (0, 1))
    alone = [each for each in pairs if sources[each[0]] == targets[each[1]] == 1]
    # Ranked by a hash, the choice is random, needs no seed, and hardly changes with a new release of the corpus.
    ranked = sorted(alone, key=lambda each: hashlib.sha256("\n".join(each).encode()).digest())
    size = min(HELD_OUT, len(pairs) // 10)
    valid, test = ranked[:size], ranked[-size:]
    held_out = {*test, *valid}
    return {"train": [each for each in pairs if each not in held_out], "valid": valid, "test": test}
