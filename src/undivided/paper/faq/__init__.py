"""Learners' questions answered by experiments: `undivided paper faq` writes a page and a picture for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.look.picture import require_matplotlib
from undivided.paper.faq.contexts import CONTEXTS
from undivided.paper.faq.decoding import LENGTHS, PARALLEL, SHIFTED_RIGHT
from undivided.paper.faq.depth import NON_LINEARITY
from undivided.paper.faq.distance import GRADIENTS
from undivided.paper.faq.edits import SEQUENCE_EDITS
from undivided.paper.faq.heads import HEADS_QUESTION, PROJECTIONS_QUESTION
from undivided.paper.faq.lookup import CONTEXT_LENGTH, LOOKUP
from undivided.paper.faq.norms import LAYER_NORM
from undivided.paper.faq.order import BAG_OF_WORDS, POSITIONS, SUM_OR_CONCATENATE
from undivided.paper.faq.padding import PADDING
from undivided.paper.faq.pages import read_answers, write_answers, write_index, write_pages
from undivided.paper.faq.picture import write_pictures
from undivided.paper.faq.places import ORTHOGONAL, POSITION_ROWS, RELATIVE
from undivided.paper.faq.question import Answer, Question
from undivided.paper.faq.recurrences import PARAMETERS, SATURATION, SINGULAR_VALUES
from undivided.paper.faq.residual import RESIDUALS
from undivided.paper.faq.scaling import SQRT_D_MODEL, SQRT_DK
from undivided.paper.faq.write_ups import WRITE_UPS

QUESTIONS: tuple[Question[Any], ...] = (
    SQRT_DK, SHIFTED_RIGHT, PARALLEL, PADDING, LENGTHS, SQRT_D_MODEL,
    SUM_OR_CONCATENATE, POSITIONS, BAG_OF_WORDS, NON_LINEARITY, LAYER_NORM, GRADIENTS,
    HEADS_QUESTION, PROJECTIONS_QUESTION, ORTHOGONAL, POSITION_ROWS, RELATIVE, LOOKUP, CONTEXTS, RESIDUALS,
    SEQUENCE_EDITS, SATURATION, SINGULAR_VALUES, PARAMETERS, CONTEXT_LENGTH, WRITE_UPS,
)  # fmt: skip
"""In the order of the index."""

ANSWERS = "numbers.json"
"""The file beside the pages with every number that they show."""


def select_questions(only: str) -> list[Question[Any]]:
    """The question of that name; all questions if the name is empty."""
    found = [question for question in QUESTIONS if only in ("", question.name)]
    if not found:
        raise InputError(f"--only: no question {only!r}; choose one of {', '.join(question.name for question in QUESTIONS)}")
    return found


def answer_question(question: Question[Any], out: Path, quick: bool) -> tuple[Answer, bool]:
    """Compute, draw, and write the pages of one question, and whether its picture could be labelled in Korean.

    Threads and random state are restored afterwards.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            numbers = question.compute(quick)
    finally:
        torch.set_num_threads(threads)
    answer = question.summarise(numbers)
    labelled = write_pictures(question, numbers, out)
    write_pages(out, question.name, answer)
    return answer, labelled


def faq(out: Path, console: Console, only: str = "", quick: bool = False) -> list[Path]:
    """Rebuild pages and pictures in every language; return the English pages."""
    questions = select_questions(only)
    require_matplotlib()
    out.mkdir(parents=True, exist_ok=True)
    answers = read_answers(out / ANSWERS)
    for question in questions:
        console.say(f"{question.name} …")
        answers[question.name], labelled = answer_question(question, out, quick)
        write_answers(out / ANSWERS, {each.name: answers[each.name] for each in QUESTIONS if each.name in answers})
    if not labelled:
        console.warn("no font with Korean letters is installed: the pictures of the Korean pages have English labels")
    write_index(out, [question.name for question in QUESTIONS if (out / f"{question.name}.md").exists()])
    return [out / f"{question.name}.md" for question in questions]
