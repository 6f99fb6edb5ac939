"""Check that the Korean texts are up to date with the English ones.

    python tools/translations.py                   check all pairs and print what differs
    python tools/translations.py --done README.md  after updating README.ko.md: record which English text it translates

Both texts of a pair must have the same headings, code, links, pictures, numbers and first columns of tables. Prose cannot be
compared, so the last line of a Korean text holds a digest of every section of the English text it translates.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXT = ROOT / "src" / "undivided" / "paper" / "faq" / "text"
MARK = "<!-- English: "


def pairs() -> list[tuple[Path, Path]]:
    """Each hand-written English text with the path of its Korean translation, which may be missing."""
    english = [ROOT / "README.md", *(path for path in sorted(TEXT.glob("*.md")) if not path.name.endswith(".ko.md"))]
    return [(path, path.with_suffix(".ko.md")) for path in english]


def sections(text: str) -> list[tuple[str, str]]:
    """(heading, text) of each section; text before the first heading has an empty heading. Lines in code blocks are no headings."""
    found, name, lines, code = [], "", [], False
    for line in text.splitlines():
        code ^= line.startswith("```")
        if not code and line.startswith("#"):
            found.append((name, "\n".join(lines)))
            name, lines = line, []
        lines.append(line)
    found.append((name, "\n".join(lines)))
    return [(name, body) for name, body in found if body.strip()]


def digests(english: str) -> list[str]:
    return [hashlib.sha256(" ".join(body.split()).encode()).hexdigest()[:10] for _, body in sections(english)]


def recorded_digests(korean: str) -> list[str]:
    """The digests at the end of a Korean text."""
    _, mark, rest = korean.rpartition(MARK)
    return rest.partition("-->")[0].split() if mark else []


def prose(text: str) -> str:
    """A text without digests, code and the addresses of links."""
    text = re.sub(r"```.*?```", "", text.partition(MARK)[0], flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", "", text))


def first_columns(text: str) -> list[str]:
    """The first cell of every row of every table, except the header, which is prose."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    rules = [bool(re.fullmatch(r"\|[-:| ]+\|", line)) for line in rows]
    other = [rule or below for rule, below in zip(rules, [*rules, False][1:], strict=True)]
    return [line.split("|")[1].strip() for line, skipped in zip(rows, other, strict=True) if not skipped]


def shape(text: str) -> dict[str, list[str]]:
    """Everything that a text and its translation must have in common, in an order that translation does not change."""
    body = text.partition(MARK)[0]
    twin = body.replace(".ko.md", ".md").replace(".ko.png", ".png")
    return {
        "headings": [name.split(" ")[0] for name, _ in sections(body) if name],
        "code blocks": re.findall(r"```.*?```", body, flags=re.DOTALL),
        "code": sorted(re.findall(r"`[^`\n]+`", re.sub(r"```.*?```", "", body, flags=re.DOTALL))),
        "links": sorted(re.findall(r"\]\(([^)]*)\)", twin)),
        "first columns of tables": first_columns(twin),
        "widths of tables": [str(line.count("|")) for line in body.splitlines() if line.startswith("|")],
        "numbers": sorted(re.findall(r"\d+(?:[.,]\d+)*", prose(body))),
        "fields": sorted(re.findall(r"\{\w+\}", body)),
    }


def differences(english: str, korean: str) -> Iterator[str]:
    """What one text has and the other does not."""
    for (what, ours), theirs in zip(shape(english).items(), shape(korean).values(), strict=True):
        if ours != theirs:
            more, fewer = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
            only = [f"only {side}: {', '.join(sorted(each))}" for side, each in (("English", more), ("Korean", fewer)) if each]
            yield f"{what} differ; {'; '.join(only) or 'the order is different'}"


def stale_sections(english: str, korean: str) -> Iterator[str]:
    """Sections of the English text that changed since the Korean text was updated."""
    names = [name or "the introduction" for name, _ in sections(english)]
    for name, now, then in zip_longest(names, digests(english), recorded_digests(korean)):
        if now != then:
            yield f"the English section {name!r} has changed" if name else "an English section was removed"


def advice(english: Path) -> str:
    return f"update the Korean text, then run python tools/translations.py --done {english.relative_to(ROOT)}"


def faults(english: Path, korean: Path) -> list[str]:
    """Everything that is out of date in a pair."""
    if not korean.exists():
        return [f"{korean.name} is missing: {advice(english)}"]
    texts = english.read_text(encoding="utf-8"), korean.read_text(encoding="utf-8")
    return [f"{korean.name}: {fault}: {advice(english)}" for fault in (*differences(*texts), *stale_sections(*texts))]


def record_digests(english: Path, korean: Path) -> None:
    """Write the digests of the English text at the end of the Korean one."""
    body = korean.read_text(encoding="utf-8").partition(MARK)[0].rstrip("\n")
    korean.write_text(f"{body}\n\n{MARK}{' '.join(digests(english.read_text(encoding='utf-8')))} -->\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--done", nargs="+", default=[], metavar="FILE", help="English texts whose Korean translations are up to date"
    )
    done = [Path(name).resolve() for name in parser.parse_args().done]
    if unknown := set(done) - {english for english, _ in pairs()}:
        parser.error(f"not an English text with a Korean translation: {', '.join(sorted(map(str, unknown)))}")
    for english, korean in pairs():
        if english in done and korean.exists():
            record_digests(english, korean)
    found = [fault for pair in pairs() for fault in faults(*pair)]
    print("\n".join(found) or f"{len(pairs())} pairs are up to date")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
