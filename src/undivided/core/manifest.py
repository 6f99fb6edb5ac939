"""The parts of a folder with their sha256, and a seal over that list: a single changed bit anywhere is noticed and named."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from undivided.core.errors import InputError
from undivided.core.files import MOST_JSON, parse_json, read_bounded, sha256_of

NAME = "manifest.json"
INCOMING = ".incoming"
"""A complete newer folder that waits to be moved into place; where it is there, it is the model."""

Sums = dict[str, str]
"""sha256 in hexadecimal by the name of the part."""


def current(folder: Path) -> Path:
    """Where the whole model of a folder lies."""
    return folder / INCOMING if (folder / INCOMING).is_dir() else folder


def text_of(sums: Sums, sealed: bool = True) -> str:
    """The one text that lists these sums. The seal is the sha256 of the text without it, which was all that 0.1.0 wrote."""
    bare = json.dumps({"sha256": sums}, indent=2) + "\n"
    if not sealed:
        return bare
    return json.dumps({"sha256": sums, "seal": hashlib.sha256(bare.encode()).hexdigest()}, indent=2) + "\n"


def write(folder: Path, parts: Iterable[str]) -> None:
    """List some parts of a folder in its manifest."""
    sums = {part: sha256_of(folder / part) for part in parts}
    (folder / NAME).write_text(text_of(sums), encoding="utf-8", newline="\n")


def verify(folder: Path, needed: Iterable[str]) -> list[str]:
    """Check every part of a folder against its manifest: the names of the parts, or an error that names the damaged one."""
    sums = _read(folder / NAME)
    for part in needed:
        if part not in sums:
            raise InputError(f"{folder}: {NAME} is damaged: it does not list {part}")
    for part, sha256 in sums.items():
        if not (folder / part).is_file():
            raise InputError(f"{folder}: {part} is missing ({NAME} lists it); copy the whole folder again")
        if sha256_of(folder / part) != sha256:
            raise InputError(f"{folder}: {part} is damaged (its sha256 differs from {NAME}); copy it again")
    return list(sums)


def _read(path: Path) -> Sums:
    """The sums that a manifest lists. Its text must be to the byte what we write for them."""
    if not path.is_file():
        raise InputError(f"{path.parent}: {NAME} is missing; copy the whole folder again")
    try:
        content = read_bounded(path, MOST_JSON)
        value = parse_json(content)
        sums: Sums = dict(value["sha256"])
        faulty = [str(part) for part, sha256 in sums.items() if not (plain_name(part) and _is_sha256(sha256))]
        if faulty:
            raise ValueError(f"it lists {faulty[0]!r}, which is no file of this folder with a sha256")
    except OSError as error:
        raise InputError(f"{path.parent}: {NAME} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path.parent}: {NAME} is damaged: {error}") from None
    known = [text_of(sums)] if "seal" in value else [text_of(sums, sealed=False), json.dumps({"sha256": sums})]
    if content.decode("utf-8") not in known:
        raise InputError(f"{path.parent}: {NAME} is damaged: it is not what was written; copy the whole folder again")
    return sums


def plain_name(part: object) -> bool:
    """Whether something names a file directly in a folder, on every system."""
    return isinstance(part, str) and bool(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", part)) and part != NAME


def _is_sha256(text: object) -> bool:
    return isinstance(text, str) and bool(re.fullmatch(r"[0-9a-f]{64}", text))
