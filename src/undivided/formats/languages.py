"""Language codes: `de`, `de-DE`, `de_DE.UTF-8` and `DE` say the same language."""

from __future__ import annotations

import re

CODE = re.compile(r"[a-zA-Z]{2,3}(?:[-_][a-zA-Z]{4})?(?:[-_](?:[a-zA-Z]{2}|\d{3}))?(?:@[a-z]+)?\Z")


def base_language(code: str) -> str:
    """The language of a code without region and script, in lower case."""
    return re.split(r"[-_.@]", code, maxsplit=1)[0].lower()


def matches_language(code: str, wanted: str) -> bool:
    """Whether two codes name the same language; a region counts only where both have one."""
    if base_language(code) != base_language(wanted):
        return False
    one, two = (re.split(r"[-_.@]", each.lower())[1:2] for each in (code, wanted))
    return not (one and two) or one == two


def is_language(name: str) -> bool:
    """Whether a name looks like a language code."""
    return bool(CODE.match(name))
