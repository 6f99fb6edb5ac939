"""Pages from templates: one text per language, with fields for the computed numbers, so that none is typed by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from undivided.core.files import read_json
from undivided.paper import report
from undivided.paper.faq.question import Answer

TEXT = Path(__file__).parent / "text"
ENDINGS = {"en": ".md", "ko": ".ko.md"}
"""File suffixes of the pages, by language."""

DIGESTS = "<!-- English: "
"""Start of the last line of a Korean text, which identifies the English text it translates (tools/translations.py)."""


def template(name: str, language: str) -> str:
    """The text of a page with fields for its numbers."""
    text = (TEXT / f"{name}{ENDINGS[language]}").read_text(encoding="utf-8")
    return text.partition(DIGESTS)[0].rstrip("\n") + "\n"


def page(name: str, language: str, answer: Answer) -> str:
    """A page with its numbers, its table and its footer."""
    rows = "\n".join(f"| {' | '.join(row)} |" for row in answer.rows)
    text = template(name, language) + "\n" + template("footer", language).replace("NAME", name)
    text = text.replace(f"({name}.png)", f"({name}{ENDINGS[language].replace('.md', '.png')})")
    return text.format_map({**answer.fields, "rows": rows})


def title(name: str, language: str) -> str:
    """The question itself: the first line of its text."""
    return template(name, language).splitlines()[0].removeprefix("# ")


def index(names: Sequence[str], language: str) -> str:
    """The list of all questions."""
    lines = [f"{number}. [{title(name, language)}]({name}{ENDINGS[language]})" for number, name in enumerate(names, 1)]
    return template("README", language).format_map({"questions": "\n".join(lines)})


def write_pages(out: Path, name: str, answer: Answer) -> None:
    """One page in every language."""
    for language, ending in ENDINGS.items():
        report.write(out / f"{name}{ending}", [page(name, language, answer)])


def write_index(out: Path, names: Sequence[str]) -> None:
    """The index in every language."""
    for language, ending in ENDINGS.items():
        report.write(out / f"README{ending}", [index(names, language)])


def read_answers(path: Path) -> dict[str, Answer]:
    """The numbers that the pages show; empty if there are none yet."""
    if not path.exists():
        return {}
    return {name: Answer(each["fields"], each["rows"]) for name, each in read_json(path).items()}


def write_answers(path: Path, answers: Mapping[str, Answer]) -> None:
    """Write the numbers that the pages show; a test rebuilds the pages from them."""
    shown = {name: asdict(answer) for name, answer in answers.items()}
    report.write(path, [json.dumps(shown, indent=1, ensure_ascii=False)])
