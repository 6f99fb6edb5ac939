"""What must come out of a translation as it went in (placeholders, tags, addresses, codes): found, masked, put back, checked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

UNITS = (
    r"%|‰|°C|°F|°|km/h|mph|km|cm|mm|µm|nm|kg|mg|µg|ml|cl|kHz|MHz|GHz|Hz|kB|KB|KiB|MB|MiB|GB|GiB|TB|TiB|kbit/s|Mbit/s|Gbit/s"
    r"|kW|MW|kWh|mAh|kV|mV|mA|px|pt|dpi|fps|dB|ms|m²|m³|m|g|l|V|W|A|s|h"
)
FILES = (
    r"py|js|ts|css|html?|xml|json|ya?ml|toml|ini|cfg|conf|txt|md|rst|csv|tsv|pdf|docx?|xlsx?|pptx?|odt|ods|zip|tar|gz|xz|exe|dll|so|sh"
    r"|png|jpe?g|gif|svg|mp[34]|wav|log|sql|po|mo"
)
KINDS = {
    "tag": r"</?[A-Za-z][^<>\n]{0,300}>",
    "entity": r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z]\w{1,30});",
    "url": r"(?:https?|ftp|file|ssh|git)://[^\s<>\"'´`“”]+|\bwww\.[^\s<>\"'´`“”]+|\bmailto:[^\s<>\"']+",
    "email": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,9}\b",
    "placeholder": r"\{\{[^{}\n]{0,100}\}\}|\[%[^\[\]\n]{1,200}%\]|[$#%@]\{[^{}\n]{0,100}\}|\{[^{}\s]{0,100}\}"
    r"|%\([^()\s]{1,100}\)[-+#0]*\d*(?:\.\d+)?[a-zA-Z]"
    r"|%(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:hh|h|ll|l|L|q|z|j|t)?[diouxXeEfFgGaAcCsSpnr@](?![a-z])|%L?\d{1,2}|%%"
    r"|(?<![\w:/]):[a-z_][a-z_0-9]{0,60}\b(?!:)|\$[A-Za-z_]\w{0,60}|\\[nrtu\"'\\](?![a-zA-Z]{2})",
    "path": r"(?<![\w/.])(?:[A-Za-z]:\\|~/|\.{1,2}/|/)[\w.@+-]{1,200}(?:[/\\][\w.@+*-]{1,200}){0,50}/?|(?<![\w-])[\w-]{1,64}\.(?:"
    + FILES
    + r")\b",
    "date": r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?\b",
    "version": r"(?<![\w.])v?\d{1,9}(?:\.\d{1,9}){2,9}(?:[-+][\w.]{1,40})?\b|(?<![\w.])v\d{1,9}(?:\.\d{1,9}){0,9}\b",
    "measure": r"(?<![\w.,])\d{1,30}(?:[.,]\d{1,30}){0,9}[ \u00a0\u202f]?(?:" + UNITS + r")(?![\w²³%])",
    "code": r"\b(?=[A-Z0-9-]{4})[A-Z]{1,6}-?\d{2,30}[A-Z0-9-]{0,40}\b",
    "emoji": "[\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff\u2600-\u27bf]"
    "(?:[\ufe0f\u200d\U0001f3fb-\U0001f3ff]+[\U0001f300-\U0001faff\u2600-\u27bf]?)*",
}
PATTERN = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in KINDS.items()))
ICU = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal|number|date|time)\b")
SHORTCUT = re.compile(r"&(?=[^\W_])(?!#?\w{1,30};)")


class Protected(NamedTuple):
    """A stretch of text that must not change."""

    start: int
    end: int
    kind: str
    text: str


class Masked(NamedTuple):
    """A text with symbols in the place of what is protected."""

    text: str
    items: tuple[tuple[str, str], ...]
    """Each symbol, and what it stands for."""


class Fault(NamedTuple):
    """Something protected that a translation has lost or repeated."""

    text: str
    wanted: int
    found: int


def find_protected(text: str) -> list[Protected]:
    """All that must not change, in order."""
    found, place = list[Protected](), 0
    while match := PATTERN.search(text, place):
        icu = ICU.search(text, place, match.end()) if "{" in text else None
        if icu and icu.start() <= match.start():
            end = _closing_brace(text, icu.start())
            found.append(Protected(icu.start(), end, "placeholder", text[icu.start() : end]))
            place = end
            continue
        kind = str(match.lastgroup)
        item = match[0].rstrip(".,;:!?)…") if kind in ("url", "path") else match[0]
        item = item or match[0]
        found.append(Protected(match.start(), match.start() + len(item), kind, item))
        place = match.start() + len(item)
    if icu := ICU.search(text, place):
        end = _closing_brace(text, icu.start())
        found.append(Protected(icu.start(), end, "placeholder", text[icu.start() : end]))
    return found


def _closing_brace(text: str, start: int) -> int:
    """Where a message in braces ends; the end of the text where it does not."""
    depth = 0
    for found in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.end()
    return len(text)


def has_words(text: str) -> bool:
    """Whether anything is left to translate beside what is protected: a letter at least."""
    place = 0
    for item in find_protected(text):
        if any(letter.isalpha() for letter in text[place : item.start]):
            return True
        place = item.end
    return any(letter.isalpha() for letter in text[place:])


def mask(text: str, symbols: Sequence[str]) -> Masked:
    """Symbols for what is protected, each occurrence its own; without symbols, or where one occurs in it, the text stays."""
    if not symbols or any(symbol in text for symbol in symbols):
        return Masked(text, ())
    parts, items, place = list[str](), list[tuple[str, str]](), 0
    for symbol, item in zip(symbols, find_protected(text), strict=False):
        parts += [text[place : item.start], symbol]
        items.append((symbol, item.text))
        place = item.end
    return Masked("".join([*parts, text[place:]]), tuple(items))


def unmask(text: str, items: Sequence[tuple[str, str]]) -> str:
    """A translation with what its symbols stand for."""
    known = dict(items)
    if not known:
        return text
    return re.sub("|".join(map(re.escape, known)), lambda found: known[found[0]], text)


def check_protected(source: str, target: str) -> list[Fault]:
    """What of the source the target has lost or repeated."""
    faults = []
    for item, wanted in Counter(each.text for each in find_protected(source)).items():
        found = target.count(item) if len(item) > 2 else Counter(each.text for each in find_protected(target))[item]
        if found != wanted and not (found > wanted and source.count(item) == found):
            faults.append(Fault(item, wanted, found))
    return faults


def take_shortcut(text: str) -> tuple[str, str]:
    """A label without the `&` of its keyboard shortcut, and the letter that it marked; empty where there is no single one."""
    found = list(SHORTCUT.finditer(text))
    if len(found) != 1 or "&&" in text:
        return text, ""
    place = found[0].start()
    return text[:place] + text[place + 1 :], text[place + 1]


def put_shortcut(text: str, letter: str) -> str:
    """A translated label with a shortcut: the same letter if it has it, else its first letter or digit."""
    if not letter:
        return text
    spans = find_protected(text)
    free = [place for place, each in enumerate(text) if each.isalnum() and not any(s.start <= place < s.end for s in spans)]
    same = [place for place in free if text[place].lower() == letter.lower()]
    starts = [place for place in same if place == 0 or not text[place - 1].isalnum()]
    place = (starts or same or free or [len(text)])[0]
    return f"{text[:place]}&{text[place:]}" if free else f"{text} (&{letter.upper()})"
