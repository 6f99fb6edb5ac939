"""Looks into a model for a page: what it wrote, what else it might have, and what it attended to. One at a time, by PyTorch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.core.signals import ENGINE_THREAD
from undivided.formats.markup import Link
from undivided.serve.errors import Refusal, busy
from undivided.serve.models import Model

if TYPE_CHECKING:
    from undivided.look import Look

MOST_WAITING = 16
LONGEST_CHOICES = 10
Spans = list[tuple[int, int]]


class LookWish(NamedTuple):
    """What is looked at."""

    text: str
    piece: int = 0
    prefix: Sequence[int] = ()
    translation: str | None = None
    step: int | None = None
    choices: int = 5
    heads: bool = False


class Looking:
    """Looks by one thread, so that they leave most of the machine to translations."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=ENGINE_THREAD)
        self._waiting = 0

    async def look(self, model: Model, wish: LookWish) -> dict[str, Any]:
        """A look as plain values; `Refusal` where the wish cannot be met, or too many wait."""
        return await self._run(_look, model, wish)

    async def align(self, model: Model, pairs: Sequence[tuple[str, str]]) -> list[list[Link] | None]:
        """The words of each pair of texts that translate each other; None where the model cannot tell."""
        return await self._run(_align, model, pairs)

    async def _run(self, work: Any, *arguments: Any) -> Any:
        if self._waiting >= MOST_WAITING:
            raise busy(2)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
        except InputError as error:
            raise Refusal(400, str(error)) from None
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _look(model: Model, wish: LookWish) -> dict[str, Any]:
    from undivided.look.capture import capture
    from undivided.look.result import to_plain_values

    translator = model.translator
    pieces = [piece for piece, _, _ in model.split(wish.text.strip())] if wish.text.strip() else []
    if "\n" in wish.text.strip() or not 0 <= wish.piece < len(pieces):
        raise Refusal(400, f"Invalid request: q must be one line, and piece one of its {len(pieces)}")
    check_prefix(wish.prefix, len(translator.artifact.tokenizer.target))
    if wish.translation is not None and wish.prefix:
        raise Refusal(400, "Invalid request: translation and prefix exclude each other")
    text = pieces[wish.piece]
    seen = capture(translator.artifact, text, wish.translation, translator.search_config(), wish.prefix)
    source, target = word_spans(text, seen.source), word_spans(seen.translation, seen.tgt_out)
    last = seen.cross[-1].mean(axis=0) if seen.cross.size else []
    heads = {use: to_plain_values(seen.attention(use), 3) for use in ("encoder", "decoder", "cross")} if wish.heads else None
    return {
        "source": model.source,
        "target": model.target,
        "pieces": pieces,
        "piece": wish.piece,
        "text": text,
        "translation": seen.translation,
        "score": round(seen.score, 4),
        "finished": seen.finished,
        "tokens": to_plain_values(seen.source),
        "steps": [_step(step) for step in seen.steps],
        "words": {"source": source, "target": target},
        "attention": to_plain_values(last, 4) if len(last) else [],
        "heads": heads,
        "choices": _choices(model, seen, wish),
        "remark": seen.remark,
    }


def _step(step: Any) -> dict[str, Any]:
    from undivided.look.result import to_plain_values

    return {
        "id": step.written.id,
        "piece": step.written.piece,
        "word": step.written.word,
        "probability": round(step.probability, 4),
        "rank": step.rank,
        "candidates": to_plain_values(step.candidates, 4),
    }


def check_prefix(prefix: Sequence[int], size: int) -> None:
    """Ids of subwords; the end only as the last."""
    bad = [token for token in prefix if not 0 <= token < size or token in (PAD, UNK, BOS)]
    if bad or EOS in prefix[:-1]:
        raise Refusal(400, f"Invalid request: prefix holds {bad[0] if bad else EOS}, which no translation has there")
    if len(prefix) > 1000:
        raise Refusal(400, "Invalid request: prefix is longer than 1000 subwords")


def _choices(model: Model, seen: Look, wish: LookWish) -> list[dict[str, Any]] | None:
    """The translations that come of each likely subword at a step, the one that was written first."""
    from undivided.data.subwords import to_one_line
    from undivided.inference.search import search
    from undivided.look.capture import to_tokens

    if wish.step is None:
        return None
    if not 0 <= wish.step < len(seen.steps):
        raise Refusal(400, f"Invalid request: step must be below {len(seen.steps)}")
    artifact, step = model.translator.artifact, seen.steps[wish.step]
    written = [each.written.id for each in seen.steps]
    likely = [each for each in step.candidates if each.id not in (PAD, UNK, BOS, step.written.id)]
    tokens = [(step.written.id, step.written.piece, step.probability)] + [
        (each.id, each.piece, each.probability) for each in likely
    ]
    tokens = tokens[: min(wish.choices, LONGEST_CHOICES)]
    prefixes = [[*written[: wish.step], token] for token, _, _ in tokens]
    sources = [[token.id for token in seen.source]] * len(tokens)
    subwords, device = artifact.tokenizer.target, artifact.device
    found = [each[0] for each in search(artifact.model, sources, model.translator.search_config(), device, prefixes)]
    texts = subwords.decode([each.tokens for each in found])
    return [
        {
            "id": token,
            "piece": piece,
            "probability": round(chance, 4),
            "word": _word_at(to_tokens(subwords, best.tokens), wish.step),
            "translation": to_one_line(text),
            "score": round(best.score, 4),
            "prefix": prefix,
        }
        for (token, piece, chance), prefix, best, text in zip(tokens, prefixes, found, texts, strict=True)
    ]


def _word_at(tokens: Sequence[Any], place: int) -> str:
    """The word that the subword at a place belongs to."""
    if place >= len(tokens):
        return ""
    return "".join(each.piece for each in tokens if each.word == tokens[place].word).replace("▁", " ").strip()


def word_spans(text: str, tokens: Sequence[Any]) -> Spans | None:
    """The places of words in a text; None where its subwords do not spell it, as after normalization."""
    spans, place = list[tuple[int, int]](), 0
    for number in range(max((each.word for each in tokens), default=-1) + 1):
        word = "".join(each.piece for each in tokens if each.word == number).replace("▁", "")
        start = text.find(word, place)
        if not word or start < 0:
            return None
        spans.append((start, start + len(word)))
        place = start + len(word)
    return spans


def _align(model: Model, pairs: Sequence[tuple[str, str]]) -> list[list[Link] | None]:
    """By the heads of the model that align best, or by all where nobody knows which."""
    from undivided.inference.alignment import every_head, make_aligner

    artifact = model.translator.artifact
    return (make_aligner(artifact) or every_head(artifact))(pairs) if pairs else []
