"""Which of the loaded languages a text is in."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

from undivided.serve.languages import normalize_code

MODEL_NAMES = {"zt": "zh", "pb": "pt", "nb": "no"}
"""What the detector calls languages that have codes of their own here."""

SCRIPTS = {
    **dict.fromkeys(("ar", "fa", "ur", "ps", "ug", "ku"), ("ARABIC",)),
    **dict.fromkeys(("be", "bg", "kk", "ky", "mk", "mn", "ru", "tg", "uk", "tt", "ba"), ("CYRILLIC",)),
    **dict.fromkeys(("hi", "mr", "ne", "sa"), ("DEVANAGARI",)),
    "am": ("ETHIOPIC",), "as": ("BENGALI",), "bn": ("BENGALI",), "el": ("GREEK",), "gu": ("GUJARATI",), "he": ("HEBREW",),
    "hy": ("ARMENIAN",), "ja": ("HIRAGANA", "KATAKANA", "CJK"), "ka": ("GEORGIAN",), "km": ("KHMER",), "kn": ("KANNADA",),
    "ko": ("HANGUL",), "lo": ("LAO",), "ml": ("MALAYALAM",), "my": ("MYANMAR",), "or": ("ORIYA",), "pa": ("GURMUKHI",),
    "si": ("SINHALA",), "sr": ("CYRILLIC", "LATIN"), "ta": ("TAMIL",), "te": ("TELUGU",), "th": ("THAI",),
    "uz": ("CYRILLIC", "LATIN"), "yi": ("HEBREW",), "zh": ("CJK",), "dz": ("TIBETAN",),
}  # fmt: skip
"""How the names of a language's letters begin in Unicode, where they are not Latin."""

LONGEST = 10_000
"""Characters that are looked at: more would tell nothing new."""


class Detected(NamedTuple):
    """A language and how certain it is, in percent."""

    language: str
    confidence: int


class Detector:
    """Ranks the loaded languages for a text. It is certain only as far as the text tells: a single word rarely does."""

    def __init__(self, codes: Sequence[str]) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self.codes = list(codes)
        self._lock = threading.Lock()
        self._identifier: Any = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        known = set(self._identifier.labels)
        self._names: dict[str, str] = {}
        for code in self.codes:
            plain = normalize_code(code)
            name = next((each for each in (MODEL_NAMES.get(plain, plain), plain.partition("-")[0]) if each in known), None)
            if name is not None:
                self._names.setdefault(name, code)
        if self._names:
            self._identifier.set_languages(list(self._names))

    def detect(self, text: str) -> list[Detected]:
        """The likeliest languages, at most three, likeliest first; of a text without letters the first with confidence 0."""
        text = text[:LONGEST]
        scripts = {unicodedata.name(letter, "?").split(" ")[0].split("-")[0] for letter in set(text) if letter.isalpha()}
        if not scripts or not self._names:
            return [Detected(self.codes[0], 0)]
        with self._lock:
            ranked = self._identifier.rank(text)
        written = [(name, float(chance)) for name, chance in ranked if scripts & set(SCRIPTS.get(name, ("LATIN",)))]
        total = sum(chance for _, chance in written)
        if not total:
            return [Detected(self._names[ranked[0][0]], 0)]
        found = [Detected(self._names[name], round(100 * chance / total)) for name, chance in written[:3]]
        return [each for each in found if each.confidence > 0] or found[:1]
