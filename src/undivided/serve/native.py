"""Our own API: translations with scores, verdicts, places and alignments, at once or as they come; looks; readiness; numbers."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from undivided.formats.markup import SURE
from undivided.formats.terms import Term
from undivided.inference.verdicts import Verdict
from undivided.serve.errors import Refusal
from undivided.serve.libretranslate import translate_html
from undivided.serve.look import LookWish
from undivided.serve.parameters import read_model
from undivided.serve.schemas import ERRORS, LookAnswer, LookRequest, Ready, TranslateAnswer, TranslateRequest, json_body, streamed
from undivided.serve.service import Asked, Service
from undivided.serve.texts import Segment, Translated, Wish

router = APIRouter(tags=["undivided"])


@router.post(
    "/v1/translate",
    response_model=TranslateAnswer,
    responses=streamed("application/x-ndjson", ERRORS),
    openapi_extra=json_body(TranslateRequest),
)
async def translate(request: Request) -> Response:
    """Translate texts: n-best, scores, verdicts, places of sentences, alignments; with stream, line by line as they come."""
    service: Service = request.app.state.service
    body = await read_model(request, TranslateRequest)
    most = service.config.alternatives_limit
    if 0 <= most < body.n_best - 1:
        raise Refusal(400, f"Invalid request: n_best parameter must be <= {most + 1}")
    if body.beam_size is not None and body.beam_size < body.n_best:
        raise Refusal(400, "Invalid request: beam_size must be at least n_best")
    if body.prefix and (not isinstance(body.q, str) or "\n" in body.q.strip() or body.format != "text"):
        raise Refusal(400, "Invalid request: prefix needs q to be one line of text")
    asked = service.ask(request, body.q, body.source, body.target, body.api_key)
    if body.format == "html":
        texts = [await service.finish_in_time(request, translate_html(service, asked, text)) for text in asked.texts]
        plain = [Translated(text, "", [Segment(0, text, 0)]) for text in texts]
        return JSONResponse(_answer(asked, [_html(each) for each in plain]))
    terms = tuple(sorted(Term(source.strip(), target.strip()) for source, target in (body.glossary or {}).items()))
    if any(not term.source or not term.target or len(term.source + term.target) > 200 for term in terms):
        raise Refusal(400, "Invalid request: a term of the glossary is empty, or longer than 200 characters")
    wish = Wish(body.n_best, body.beam_size or 0, body.prefix or "", terms)
    if body.stream:
        return StreamingResponse(_stream(service, asked, wish, body.alignments), media_type="application/x-ndjson")
    results = await service.finish_in_time(request, _translate(service, asked, wish, body.alignments))
    return JSONResponse(_answer(asked, results))


async def _translate(service: Service, asked: Asked, wish: Wish, alignments: bool) -> list[dict[str, Any]]:
    results = await service.translating.translate(asked.route, asked.texts, wish)
    links = await _align(service, asked, results) if alignments else [None] * len(results)
    return [describe_text(result, found, bool(asked.route.via)) for result, found in zip(results, links, strict=True)]


async def _stream(service: Service, asked: Asked, wish: Wish, alignments: bool) -> AsyncIterator[str]:
    """Lines of JSON: each segment as soon as it is there, then everything."""
    lines: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def add(index: int, number: int, segment: Segment) -> None:
        place = {"source": [segment.start, segment.start + len(segment.text)]} if not asked.route.via else {"source": None}
        found = {"text": segment.target, "score": round(segment.ranked(0)[1], 4), "verdict": _verdict(segment.verdict)}
        lines.put_nowait({"index": index, "segment": number} | place | found)

    async def work() -> list[dict[str, Any]]:
        try:
            results = await service.translating.translate(asked.route, asked.texts, wish, on_segment=add)
            links = await _align(service, asked, results) if alignments else [None] * len(results)
            return [describe_text(result, found, bool(asked.route.via)) for result, found in zip(results, links, strict=True)]
        finally:
            lines.put_nowait(None)

    task = asyncio.ensure_future(work())
    try:
        async with asyncio.timeout(service.config.request_timeout):
            while (line := await lines.get()) is not None:
                yield json.dumps(line, ensure_ascii=False) + "\n"
            yield json.dumps({"done": True} | _answer(asked, await task), ensure_ascii=False) + "\n"
    except Refusal as refusal:
        yield json.dumps({"error": refusal.message}) + "\n"
    except TimeoutError:
        yield json.dumps({"error": "Slowdown: the request took too long"}) + "\n"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _align(service: Service, asked: Asked, results: list[Translated]) -> list[list[dict[str, Any]] | None]:
    """Links between words of whole texts; none where another language is in the middle."""
    if asked.route.via or not asked.route.models:
        return [None] * len(results)
    answer: list[list[dict[str, Any]] | None] = []
    for result in results:
        places = [(segment, target) for segment, target in with_places(result) if segment.found is not None]
        pairs = [(segment.text, segment.target) for segment, _ in places]
        links = await service.looking.align(asked.route.models[0], pairs)
        answer.append(
            [
                {
                    "source": [segment.start + ours.start, segment.start + ours.end],
                    "target": [target + theirs.start, target + theirs.end],
                }
                for (segment, target), found in zip(places, links, strict=True)
                for ours, theirs, weight in found or ()
                if weight >= SURE
            ]
        )
    return answer


def with_places(result: Translated) -> list[tuple[Segment, int]]:
    """Each segment with where its translation begins in the text."""
    places, at = [], len(result.before)
    for segment in result.segments:
        places.append((segment, at))
        at += len(segment.target) + len(segment.space)
    return places


def describe_text(result: Translated, links: list[dict[str, Any]] | None, is_pivoted: bool) -> dict[str, Any]:
    """A translation with all that is known of it. Places are those of the text that the last model was given."""
    segments = [
        {
            "source": [segment.start, segment.start + len(segment.text)],
            "target": [place, place + len(segment.target)],
            "score": round(segment.ranked(0)[1], 4),
            "verdict": _verdict(segment.verdict),
        }
        for segment, place in with_places(result)
        if segment.found is not None
    ]
    return {
        "text": result.text,
        "score": round(result.score, 4),
        "verdict": _verdict(result.verdict),
        "alternatives": [{"text": text, "score": round(score, 4)} for text, score in result.alternatives]
        or [{"text": result.text, "score": round(result.score, 4)}],
        "segments": [] if is_pivoted else segments,
        "alignments": links,
    }


def _html(result: Translated) -> dict[str, Any]:
    return describe_text(result, None, False) | {"verdict": _verdict(Verdict("ok"))}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {"name": verdict.name, "reason": verdict.reason, "is_sound": verdict.is_sound}


def _answer(asked: Asked, translations: list[dict[str, Any]]) -> dict[str, Any]:
    found = asked.detected
    return {
        "source": asked.route.source,
        "target": asked.route.target,
        "via": asked.route.via,
        "detected": {"language": found.language, "confidence": found.confidence} if found is not None else None,
        "translations": translations,
    }


@router.post("/v1/look", response_model=LookAnswer, responses=ERRORS, openapi_extra=json_body(LookRequest))
async def look(request: Request) -> Response:
    """What the model does with a sentence: candidates of each step, attention, and where another choice leads."""
    service: Service = request.app.state.service
    body = await read_model(request, LookRequest)
    asked = service.ask(request, body.q, body.source, body.target, body.api_key)
    if len(asked.route.models) != 1:
        raise Refusal(400, "Invalid request: look needs a model that translates this pair directly")
    wish = LookWish(asked.texts[0], body.piece, body.prefix, body.translation, body.step, body.choices, body.heads)
    return JSONResponse(await service.finish_in_time(request, service.looking.look(asked.route.models[0], wish)))


@router.get("/ready", response_model=Ready, responses={503: ERRORS[503]})
async def ready(request: Request) -> Response:
    """Whether requests are accepted: not before the models are loaded, and not any more after SIGTERM."""
    if request.app.state.guard.is_draining:
        raise Refusal(503, "shutting down")
    return JSONResponse({"status": "ready", "models": [model.name for model in request.app.state.service.models.all]})


@router.get("/metrics", response_class=PlainTextResponse, responses={401: ERRORS[403]})
async def metrics(request: Request) -> Response:
    """Numbers for Prometheus."""
    service: Service = request.app.state.service
    token = service.config.metrics_auth_token
    given = request.headers.get("authorization", "").encode("utf-8", errors="replace")
    if token and not hmac.compare_digest(given, f"Bearer {token}".encode()):
        raise Refusal(401, "Unauthorized")
    return PlainTextResponse(service.numbers(), media_type="text/plain; version=0.0.4; charset=utf-8")
