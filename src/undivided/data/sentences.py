"""Where the sentences of a text end. Nothing is lost: sentences and the spaces after them, joined, are the text.

A rule, not a model: in doubt two sentences stay together, which costs a translator less than half a sentence does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

CANDIDATE = re.compile(r"[.!?…։؟۔।॥。！？｡．]")
"""What may end a sentence."""
WITHOUT_SPACE = "。！？｡．"
"""Ends of sentences after which no space is written."""
CLOSING = "\"'”’“»«›‹)]}」』）】》〉"
"""Quotes and brackets that belong to the sentence before them. `“` and `«` close in German and Danish."""
OPENING = "\"'“”„‘‚«»‹›([{「『（【《〈¿¡-–—•*"

ABBREVIATIONS = {
    "": "dr prof mr mrs ms st vs etc approx fig figs no nos vol ed eds pp al inc ltd co corp dept est tel ca cf e.g i.e a.m p.m",
    "en": "jr sr gen col sgt capt lt rep sen gov rev hon messrs mt ft sq ave blvd jan feb mar apr jun jul aug sept sep oct "
    "nov dec ph.d u.s u.k u.n eq sec ch app appt rd esp viz",
    "de": "bzw bspw z.b d.h u.a u.ä o.ä i.d.r i.a z.t z.zt s.o s.u v.a vgl ggf evtl inkl exkl zzgl abs art nr str hr fr frl "
    "hrsg bd jh jhd mio mrd tsd usw usf etc ing dipl mag kap abb tab anm aufl sog geb gest o.g u.u jan feb apr jun "
    "jul aug sep sept okt nov dez rd v.chr n.chr m.e allg",
    "fr": "m mm mme mlle mgr me av env p.ex c.-à-d chap réf art éd tél janv févr avr juil sept oct nov déc apr j.-c",
    "es": "sr sra srta sres d dña ud uds p.ej pág págs art núm tel avda cap ee.uu ej aprox av",
    "it": "sig sigg sig.ra dott dott.ssa ing avv pag pagg art cap ecc es p.es tel",
    "nl": "dhr mevr bijv bv enz o.a m.b.t t.o.v d.w.z i.p.v blz nr b.v m.a.w",
    "pt": "sr sra dra exmo exma pág págs art núm tel av ex p.ex cap n.º",
    "pl": "np itd itp m.in tzw ul im wg tj godz nr str zob por r w",
    "cs": "např tzv tj atd apod č str ul mj viz",
    "sv": "t.ex bl.a d.v.s m.m o.s.v s.k kl nr",
    "da": "f.eks bl.a dvs m.m osv kl nr ca",
    "ru": "т.е т.д т.п т.к т.н др пр стр рис табл ул им гг г в руб тыс млн млрд см вв проф акад",
    "uk": "т.д т.п т.з ін див стор рис табл вул ім рр р грн тис млн млрд",
}
"""Words that are written with a full stop inside a sentence, by language; those of "" in any."""

NUMBERED = ("de", "da", "no", "nb", "nn", "fi", "cs", "sk", "pl", "hr", "sl", "hu", "et", "lv", "is", "tr")
"""Languages that write ordinals with a full stop: `am 3. Oktober`."""


class Sentence(NamedTuple):
    """A sentence and the white space after it."""

    text: str
    space: str


def split_sentences(text: str, language: str = "") -> list[Sentence]:
    """The sentences of a text; white space before the first belongs to it. `language` is a code such as `en` or `pt-BR`."""
    language = language.replace("_", "-").partition("-")[0].lower()
    found: list[Sentence] = []
    start = end = 0
    has_words = False
    for mark in CANDIDATE.finditer(text):
        if mark.start() < end:
            continue
        has_words = has_words or any(map(str.isalnum, text[end : mark.start()]))
        end = _skip(text, mark.end(), f"{CLOSING}.!?…։؟۔।॥{WITHOUT_SPACE}")
        begin = _skip_space(text, end)
        if language == "fr" and text[begin : begin + 1] == "»":
            end = begin + 1
            begin = _skip_space(text, end)
        if begin < len(text) and has_words and _is_end(text, start, mark.start(), end, begin, language):
            found.append(Sentence(text[start:end], text[end:begin]))
            start = end = begin
            has_words = False
    rest = text[start:]
    body = rest.rstrip()
    return [*found, Sentence(body, rest[len(body) :])] if body or not found else found


def count_sentences(text: str, language: str = "") -> int:
    """How many sentences a text has; an empty one has none."""
    return len(split_sentences(text, language)) if text.strip() else 0


def share_of_several(texts: Iterable[str], language: str = "") -> float:
    """The share of texts that are more than one sentence."""
    counts = [count_sentences(text, language) for text in texts]
    return sum(count > 1 for count in counts) / max(1, len(counts))


def _skip(text: str, place: int, marks: str) -> int:
    """The first place from here on that holds none of these marks."""
    while place < len(text) and text[place] in marks:
        place += 1
    return place


def _skip_space(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _is_end(text: str, start: int, mark: int, end: int, begin: int, language: str) -> bool:
    """Whether the marks from `mark` to `end` end a sentence that began at `start`, where the next would be from `begin` on."""
    marks = text[mark:end]
    if begin == end:
        # `“` after `。` closes or opens: without a space only marks that need none end a sentence.
        return marks.rstrip(CLOSING)[-1:] in WITHOUT_SPACE and marks.rstrip(CLOSING) != ""
    following = _skip(text, begin, OPENING)
    if text[following : following + 1].islower():
        return False
    return marks[0] != "." or marks.startswith("..") or not _is_abbreviated(text, start, mark, language)


def _is_abbreviated(text: str, start: int, mark: int, language: str) -> bool:
    """Whether the full stop at `mark` belongs to the word before it."""
    first = mark
    while first > start and mark - first < 20 and not text[first - 1].isspace():
        first -= 1
    word = text[first:mark].lstrip(OPENING).lower()
    if word.isdigit():
        # `3. Oktober`, and the number of an item in a list: `1. Open the file.`
        return not text[start:first].strip(OPENING + " ") or (language in NUMBERED and len(word) <= 2)
    if len(word) == 1 and word != word.upper():
        # An initial, `J. Smith`, or half of `z. B.`; the English I is a word.
        return not (word == "i" and language in ("en", ""))
    return word in _abbreviations(language)


def _abbreviations(language: str) -> frozenset[str]:
    if language not in _KNOWN:
        _KNOWN[language] = frozenset(f"{ABBREVIATIONS['']} {ABBREVIATIONS.get(language, '')}".split())
    return _KNOWN[language]


_KNOWN: dict[str, frozenset[str]] = {}
