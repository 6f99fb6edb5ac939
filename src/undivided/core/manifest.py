"""The manifest of a folder: the sha256 of every part and a seal over the list, so that a single changed bit is found and named."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from undivided.core.errors import InputError
from undivided.core.files import MAX_JSON_BYTES, parse_json, read_bounded, sha256_of

NAME = "manifest.json"
INCOMING = ".incoming"
"""A complete newer model that waits to be moved into place; where there is one, it is the model."""

Digests = dict[str, str]
"""sha256 in hexadecimal, by the name of the part."""


def current_folder(folder: Path) -> Path:
    """Where the complete model of a folder is: in `.incoming` until that is moved into place."""
    return folder / INCOMING if (folder / INCOMING).is_dir() else folder


def render(sums: Digests, sealed: bool = True) -> str:
    """The text of a manifest. The seal is the sha256 of the text without it, which was all that 0.1.0 wrote."""
    bare = json.dumps({"sha256": sums}, indent=2) + "\n"
    if not sealed:
        return bare
    return json.dumps({"sha256": sums, "seal": hashlib.sha256(bare.encode()).hexdigest()}, indent=2) + "\n"


def write(folder: Path, parts: Iterable[str]) -> None:
    """Write the manifest of some parts of a folder."""
    sums = {part: sha256_of(folder / part) for part in parts}
    (folder / NAME).write_text(render(sums), encoding="utf-8", newline="\n")


def verify(folder: Path, needed: Iterable[str]) -> list[str]:
    """Check every part of a folder against its manifest and return their names; an error names the damaged one."""
    sums = _read(folder / NAME)
    for part in needed:
        if part not in sums:
            raise InputError(f"{folder}: {NAME} is damaged: it does not list {part}")
    for part, sha256 in sums.items():
        _check_part(folder, part, sha256)
    return list(sums)


def verify_part(folder: Path, part: str) -> None:
    """Check one part of a folder against its manifest."""
    _check_part(folder, part, _read(folder / NAME).get(part, ""))


def _check_part(folder: Path, part: str, sha256: str) -> None:
    if not (folder / part).is_file():
        raise InputError(f"{folder}: {part} is missing ({NAME} lists it); copy the whole folder again")
    if sha256_of(folder / part) != sha256:
        raise InputError(f"{folder}: {part} is damaged (its sha256 differs from {NAME}); copy it again")


def _read(path: Path) -> Digests:
    """The sums that a manifest lists. Its text must be to the byte what we write for them."""
    if not path.is_file():
        raise InputError(f"{path.parent}: {NAME} is missing; copy the whole folder again")
    try:
        content = read_bounded(path, MAX_JSON_BYTES)
        value = parse_json(content)
        sums: Digests = dict(value["sha256"])
        faulty = [str(part) for part, sha256 in sums.items() if not (is_plain_name(part) and _is_sha256(sha256))]
        if faulty:
            raise ValueError(f"it lists {faulty[0]!r}, which is no file of this folder with a sha256")
    except OSError as error:
        raise InputError(f"{path.parent}: {NAME} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path.parent}: {NAME} is damaged: {error}") from None
    known = [render(sums)] if "seal" in value else [render(sums, sealed=False), json.dumps({"sha256": sums})]
    if content.decode("utf-8") not in known:
        raise InputError(f"{path.parent}: {NAME} is damaged: it differs from what was written; copy the whole folder again")
    return sums


def is_plain_name(part: object) -> bool:
    """Whether something names a file directly in a folder, on every system."""
    return isinstance(part, str) and bool(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", part)) and part != NAME


def _is_sha256(text: object) -> bool:
    return isinstance(text, str) and bool(re.fullmatch(r"[0-9a-f]{64}", text))
