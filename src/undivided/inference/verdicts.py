"""An account for every translation: is it sound, and if not, why? What is usual is measured in training and kept in the folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from undivided.formats.protection import check_protected, has_words
from undivided.inference.translation import Translation

Name = Literal[
    "ok",
    "empty",
    "kept",
    "copied",
    "reused",
    "broken-text",
    "unknown-script",
    "looped",
    "truncated",
    "length-ratio",
    "placeholder-lost",
    "term-missed",
    "tag-misplaced",
    "low-confidence",
]

SOUND: frozenset[Name] = frozenset({"ok", "empty", "kept", "copied", "reused"})
"""Verdicts that need nobody's eyes."""

UNKNOWN_SHARE, UNKNOWN_BYTES = 0.3, 6
"""A source is of an unknown script where this share of its bytes, and so many of them, are spelled in bytes."""

ALARM_IN = 200
"""One ordinary translation in so many is said to be improbable, and one to be short."""

LEAST_CHARACTERS = 20
"""Shorter sources are not judged by length."""


class Verdict(NamedTuple):
    """What is to be said of a translation."""

    name: Name
    reason: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether it needs nobody's eyes."""
        return self.name in SOUND


class Usual(NamedTuple):
    """What is usual for a model's translations of text like its training text; the defaults are for models that do not know."""

    confidence: float = float("-inf")
    """Mean log-probability of a token, below which only one translation in two hundred was."""
    shortest: float = 0.2
    longest: float = 5.0
    """Characters of a translation for each of its source, in all but one of a thousand."""
    least: float = float("inf")
    """The same, below which only one translation in two hundred was: a translation that seems short is one where it is shorter."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Usual:
        """What a model folder says; what it does not say, or says in another way, is not judged."""
        found = facts.get("usual")
        if not isinstance(found, Mapping):
            return cls()
        given = {name: float(found[name]) for name in cls._fields if isinstance(found.get(name), float)}
        return cls()._replace(**given)


def calibrate(results: Sequence[Translation]) -> dict[str, float]:
    """What is usual, measured on translations of held-out text, with a margin for the lengths.

    Of text like it, one translation in two hundred has a verdict for its confidence, one in two hundred for being short, and
    next to none for other lengths: whatever the model, ordinary text raises few alarms.
    """
    judged = [each for each in results if len(each.source) >= LEAST_CHARACTERS and each.text and each.finished]
    if len(judged) < 100:
        return {}
    ratios = sorted(len(each.text) / len(each.source) for each in judged)
    confidences = sorted(each.confidence for each in judged)
    few, rare = len(judged) // ALARM_IN, len(judged) // 1000
    return {
        "confidence": round(confidences[few], 4),
        "least": round(ratios[few], 4),
        "shortest": round(ratios[rare] * 0.7, 4),
        "longest": round(ratios[-1 - rare] * 1.4, 4),
    }


def judge(result: Translation, usual: Usual) -> Verdict:
    """The verdict on one translation: the gravest that holds."""
    source, text = result.source.strip(), result.text.strip()
    if result.reused:
        return Verdict("reused", "taken from the translation memory")
    if not has_words(source):
        return _judge_kept(source, text)
    return (
        _judge_bytes(source)
        or _judge_script(source, result)
        or _judge_end(result)
        or (Verdict("copied") if source == text else None)
        or _judge_length(source, text, result, usual)
        or _judge_protected(source, text)
        or (Verdict("term-missed", ", ".join(result.missed)) if result.missed else None)
        or _judge_confidence(result, usual)
        or Verdict("ok")
    )


def _judge_kept(source: str, text: str) -> Verdict:
    if not source:
        return Verdict("empty")
    return Verdict("kept") if source == text else Verdict("placeholder-lost", "nothing to translate, and yet it changed")


def _judge_bytes(source: str) -> Verdict | None:
    if "\ufffd" not in source and "\0" not in source:
        return None
    return Verdict("broken-text", "the source holds bytes that are no text; they were read as \ufffd")


def _judge_script(source: str, result: Translation) -> Verdict | None:
    if result.unknown <= UNKNOWN_SHARE or result.unknown * len(source.encode("utf-8", errors="replace")) < UNKNOWN_BYTES:
        return None
    return Verdict("unknown-script", f"{result.unknown:.0%} of the source is in letters that training did not have")


def _judge_end(result: Translation) -> Verdict | None:
    if result.looped:
        return Verdict("looped", "it repeats itself, also when decoded again")
    return None if result.finished else Verdict("truncated", "it did not end by itself and was cut")


def _judge_protected(source: str, text: str) -> Verdict | None:
    faults = check_protected(source, text)
    if not faults:
        return None
    words = ", ".join(f"{fault.text} {fault.found} times instead of {fault.wanted}" for fault in faults[:3])
    return Verdict("placeholder-lost", words)


def _judge_length(source: str, text: str, result: Translation, usual: Usual) -> Verdict | None:
    ratio = len(text) / len(source)
    is_short = result.short and ratio < usual.least
    if is_short or (len(source) >= LEAST_CHARACTERS and not usual.shortest <= ratio <= usual.longest):
        many = "few" if is_short or ratio < usual.shortest else "many"
        return Verdict("length-ratio", f"{len(text)} characters for {len(source)}, unusually {many}")
    return None


def _judge_confidence(result: Translation, usual: Usual) -> Verdict | None:
    if result.confidence >= usual.confidence:
        return None
    return Verdict(
        "low-confidence", f"{result.confidence:.2f} nats a token; of usual translations, 0.5 % are below {usual.confidence:.2f}"
    )
