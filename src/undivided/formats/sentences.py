"""Paragraphs → sentences for the model, and back with the spaces that stood between them."""

from __future__ import annotations

import re
from typing import NamedTuple

ABBREVIATIONS = {
    "": "etc vs al ed vol fig ca cf no nr p pp st dr mr mrs ms prof inc ltd corp co",
    "en": "e.g i.e a.m p.m u.s u.k jr sr gen col capt lt sgt rev hon gov sen rep dept est approx appt jan feb mar apr jun jul aug "
    "sep sept oct nov dec mt ave blvd rd esp viz ft",
    "de": "z.b d.h u.a o.ä o.g u.u i.d.r bzw usw evtl ggf inkl exkl zzgl abs art bd hr fr frl str tel vgl s sog u.ä v.a geb gest "
    "jan feb apr jun jul aug sep sept okt nov dez mio mrd nr ing dipl rd usf v.chr n.chr m.e allg max min",
    "fr": "m mm mme mlle me av apr j.-c p.ex env bd ex éd chap réf janv févr avr juil sept oct nov déc",
    "es": "sr sra srta d dña ud uds pág págs ej p.ej aprox av avda tel núm art cap ee.uu",
    "it": "sig sigg dott ing avv es pag ecc art cap tel n",
    "pt": "sr sra d pág ex av tel art cap n.º exmo",
    "nl": "bijv b.v d.w.z o.a m.a.w enz dhr mevr blz nl t.o.v i.p.v",
    "ru": "т.е т.д т.п г гг в вв ул д стр см им проф акад руб тыс млн млрд",
}
NUMBERED = {"de", "da", "no", "nb", "nn", "cs", "sk", "hu", "fi", "pl", "sl", "hr", "sr", "et", "lv", "tr", "is"}
"""Languages that write ordinal numbers with a full stop: `am 3. Oktober`."""

BOUNDARY = re.compile(
    r"(?<![.!?…‽؟।])(?P<end>[.!?…‽؟।]+)[\"'”’»›)\]}*_]{0,9}(?P<space>[ \t\u00a0\u2028]+)(?=\S)"
    r"|(?<![。！？｡︒])[。！？｡︒]+[”’」』）\"')\]]{0,9}\s*(?=\S)"
)
OPENERS = "\"'“‘«‹„¿¡([{*_-–—"


class Sentence(NamedTuple):
    """A sentence and the white space around it."""

    before: str
    text: str
    after: str


def split_sentences(text: str, language: str = "") -> list[Sentence]:
    """The sentences of a text; put together, they are the text again. Line breaks always end a sentence."""
    found: list[Sentence] = []
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        place = 0
        for boundary in BOUNDARY.finditer(line):
            if _ends(line, boundary, language):
                found.append(_sentence(line[place : boundary.end()]))
                place = boundary.end()
        if line[place:]:
            found.append(_sentence(line[place:]))
    return found


def join_sentences(sentences: list[Sentence]) -> str:
    """The text that the sentences were."""
    return "".join("".join(each) for each in sentences)


def _sentence(raw: str) -> Sentence:
    text = raw.strip()
    if not text:
        return Sentence(raw, "", "")
    start = raw.index(text[0])
    return Sentence(raw[:start], text, raw[start + len(text) :])


def _ends(line: str, boundary: re.Match[str], language: str) -> bool:
    """Whether a sentence ends here: not after abbreviations, initials and ordinals, and not before small letters."""
    end = boundary["end"]
    if end is None:
        return True
    following = line[boundary.end() :].lstrip(OPENERS)[:1]
    if following.islower():
        return False
    if end != ".":
        return True
    words = line[: boundary.start()].rsplit(None, 1)
    word = words[-1].lstrip(OPENERS) if words else ""
    language = language.split("-", maxsplit=1)[0].split("_", maxsplit=1)[0].lower()
    known = f"{ABBREVIATIONS['']} {ABBREVIATIONS.get(language, '') if language else ' '.join(ABBREVIATIONS.values())}".split()
    if word.lower() in known:
        return False
    if len(word) == 1 and word.isalpha() and word.isupper():
        return False
    return not (word.isdigit() and ((len(word) <= 2 and language in NUMBERED) or word == line[: boundary.start()].strip()))
