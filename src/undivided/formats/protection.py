"""What must come out of a translation as it went in (placeholders, tags, addresses, codes): found, masked, put back, checked."""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

UNITS = (
    r"%|‰|°C|°F|°|km/h|mph|km|cm|mm|µm|nm|kg|mg|µg|ml|cl|kHz|MHz|GHz|Hz|kB|KB|KiB|MB|MiB|GB|GiB|TB|TiB|kbit/s|Mbit/s|Gbit/s"
    r"|kW|MW|kWh|mAh|kV|mV|mA|px|pt|dpi|fps|dB|ms|m²|m³|m|g|l|V|W|A|h"
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
    "date": r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?\b|(?<![\w/.])\d{1,2}/\d{1,2}/(?:\d{4}|\d{2})(?![\w/])",
    "version": r"(?<![\w.])v?\d{1,9}(?:\.\d{1,9}){2,9}(?:[-+][\w.]{1,40})?\b|(?<![\w.])v\d{1,9}(?:\.\d{1,9}){0,9}\b",
    "measure": r"(?<![\w.,])\d{1,30}(?:[.,]\d{1,30}){0,9}(?:[ \u00a0\u202f]?(?:" + UNITS + r")|[ \u00a0\u202f]s)(?![\w²³%])",
    "code": r"\b(?=[A-Z0-9-]{4})[A-Z]{1,6}-?\d{2,30}[A-Z0-9-]{0,40}\b",
    "number": r"(?<![\w.,])\d{3,30}(?![\w²³%]|[.,]\d)",
    "emoji": "[\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff\u2600-\u27bf]"
    "(?:[\ufe0f\u200d\U0001f3fb-\U0001f3ff]+[\U0001f300-\U0001faff\u2600-\u27bf]?)*",
}
FIRST_STAND_IN, LAST_STAND_IN = 0xF5000, 0xF53FF
"""Letters for private use that stand in a text for inline codes."""
STAND_IN = re.compile("[\U000f5000-\U000f53ff]")
KINDS["inline"] = STAND_IN.pattern
PATTERN = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in KINDS.items()))
HINT = re.compile("[<&@{$%\\\\/\\d\u2600-\u27bf\U0001f1e6-\U0001faff\U000f5000-\U000f53ff]|:[a-z_]|\\.\\w")
"""What every text with something protected has: most texts have none, and this is found faster."""
ICU = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal|number|date|time)\b")
SHORTCUT = re.compile(r"(?:(?<![^\W_])&(?=[^\W_])|(?<=[^\W_])&(?=[a-z]))(?!&#?\w{1,30};)")
"""Before a word, or within one before a small letter: not in `R&D`."""


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
    if not HINT.search(text):
        return found
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


def find_placeholders(text: str) -> list[str]:
    """What both sides of a pair must share, whatever their languages."""
    return [each.text for each in find_protected(text) if each.kind in ("placeholder", "tag", "entity", "url", "email")]


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


def mask(text: str, symbols: Sequence[str], terms: Sequence[Protected] = ()) -> Masked:
    """Symbols for what is protected, each occurrence its own; without symbols, or where one occurs in it, the text stays.

    `terms` are words for which something else is put there.
    """
    found = find_protected(text) if symbols else []
    apart = [term for term in terms if not any(term.start < each.end and each.start < term.end for each in found)]
    found = sorted([*found, *apart]) if apart else found
    if not found or any(symbol in text for symbol in symbols):
        return Masked(text, ())
    chosen = choose_symbols(text, symbols)
    found = found if len(found) <= len(symbols) or apart else _join_neighbours(text, found)
    items = tuple((symbol, item.text) for symbol, item in zip(chosen, found, strict=False))
    return Masked(replace_spans(text, zip(found, chosen, strict=False)), items)


def _join_neighbours(text: str, found: Sequence[Protected]) -> list[Protected]:
    """What is protected, with one stretch for all that have no word between them."""
    result = [found[0]]
    for item in found[1:]:
        last = result[-1]
        if any(letter.isalnum() for letter in text[last.end : item.start]):
            result.append(item)
        else:
            result[-1] = Protected(last.start, item.end, last.kind, text[last.start : item.end])
    return result


def choose_symbols(text: str, symbols: Sequence[str]) -> list[str]:
    """The symbols in the order in which a text uses them: it begins with any of them, so that all are learned alike."""
    start = zlib.crc32(text.encode("utf-8", errors="replace")) % len(symbols)
    return [*symbols[start:], *symbols[:start]]


def replace_spans(text: str, parts: Iterable[tuple[Protected, str]]) -> str:
    """A text with other words in some places, which are in order."""
    result, place = list[str](), 0
    for span, words in parts:
        result += [text[place : span.start], words]
        place = span.end
    return "".join([*result, text[place:]])


def find_agreed(source: str, target: str) -> list[tuple[Protected, Protected]]:
    """What is protected and as often on both sides of a pair, one to one, in the order of the source."""
    ours = find_protected(source)
    theirs = find_protected(target) if ours else []
    if not theirs:
        return []
    counts, others = Counter(each.text for each in ours), Counter(each.text for each in theirs)
    waiting = defaultdict[str, list[Protected]](list)
    for each in reversed(theirs):
        waiting[each.text].append(each)
    return [(each, waiting[each.text].pop()) for each in ours if counts[each.text] == others[each.text]]


def mask_pair(source: str, target: str, links: Sequence[tuple[Protected, Protected]], symbols: Sequence[str]) -> tuple[str, str]:
    """Both sides with the same symbol for each link; as they are where they have symbols of their own."""
    if not links or not symbols or any(symbol in source or symbol in target for symbol in symbols):
        return source, target
    named = list(zip(links, choose_symbols(source, symbols), strict=False))
    ours = sorted((each[0], symbol) for each, symbol in named)
    theirs = sorted((each[1], symbol) for each, symbol in named)
    return replace_spans(source, ours), replace_spans(target, theirs)


def unmask(text: str, items: Sequence[tuple[str, str]]) -> str:
    """A translation with what its symbols stand for."""
    known = dict(items)
    if not known:
        return text
    return re.sub("|".join(map(re.escape, known)), lambda found: known[found[0]], text)


def check_protected(source: str, target: str) -> list[Fault]:
    """What of the source the target has lost or repeated."""
    faults = []
    items = find_protected(source)
    numbers = {each.text for each in items if each.kind == "number"}
    for item, wanted in Counter(each.text for each in items).items():
        is_counted = len(item) > 2 and item not in numbers
        found = target.count(item) if is_counted else Counter(each.text for each in find_protected(target))[item]
        # Words may touch it: `%sdog` has it, though nobody would find it there.
        if wanted in (found, target.count(item)) or (found > wanted and source.count(item) == found):
            continue
        # A number may be written as another language writes it: 1000, 1.000, 1 000.
        if item in numbers and item in re.sub(r"(?<=\d)[.,'’ \u00a0\u202f](?=\d)", "", target):
            continue
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
