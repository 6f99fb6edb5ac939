"""The walk from recurrence to the Transformer and beyond: stations with a question each, for the live page and for `docs/walk`."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

LANGUAGES = ("en", "ko")

HEADS = {
    "en": (
        "A walk through the Transformer",
        "[한국어](README.ko.md)",
        "{count} short stations, from recurrence to what came after. The same walk is in every live page, about your own sentence "
        "and your own model: the page runs the model to check your answers.",
        'undivided look my-model "A dog runs on the beach." --live -o page.html',
        "**Question.** {question}",
        "Paper, section {paper} · `{code}` · [{faq}](../faq/{faq}.md)",
    ),
    "ko": (
        "Transformer 둘러보기",
        "[English](README.md)",
        "순환 신경망에서 그 뒤에 나온 것까지, 짧은 {count}곳입니다. 모든 라이브 페이지에 같은 둘러보기가 있고, "
        "거기서는 자신의 문장과 자신의 모델에 대한 것입니다. 페이지가 모델을 실행해서 답을 확인합니다.",
        'undivided look my-model "A dog runs on the beach." --live -o page.html',
        "**질문.** {question}",
        "논문 {paper}절 · `{code}` · [{faq}](../faq/{faq}.ko.md)",
    ),
}
"""By language: title, link to the other language, introduction, command, question, where to read on."""


def read_walk() -> dict[str, Any]:
    """Labels and stations, as the live page gets them."""
    found: dict[str, Any] = yaml.safe_load((files("undivided.look.walk") / "stations.yaml").read_text(encoding="utf-8"))
    return found


def walk_page(language: str) -> str:
    """The walk as a document, without the numbers of a model."""
    title, other, introduction, command, question, sources = HEADS[language]
    stations = read_walk()["stations"]
    lines = [f"# {title}", "", other, "", introduction.format(count=len(stations)), "", "```sh", command, "```", ""]
    for number, station in enumerate(stations, 1):
        told = station[language]
        choices = told["choices"] if isinstance(told["choices"], list) else []
        shown = " / ".join(choice.replace("{n}", "n").replace("{d}", "d_model") for choice in choices)
        lines += [
            f"## {number}. {told['title']}",
            "",
            told["text"],
            "",
            question.format(question=told["question"]) + (f" ({shown})" if shown else ""),
            "",
        ]
        lines += [sources.format(paper=station["paper"], code=station["code"], faq=station["faq"]), ""]
    return "\n".join(lines).rstrip() + "\n"
