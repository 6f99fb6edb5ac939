"""OpenAI's chat completions as far as "translate this" goes: the last message is the text, the model's name says the languages."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from undivided.serve.errors import Refusal
from undivided.serve.parameters import is_json, read_json
from undivided.serve.schemas import CHAT_ERRORS, ChatAnswer, ChatModels, form_body, streamed
from undivided.serve.service import Service

router = APIRouter(prefix="/v1", tags=["OpenAI"])

LANGUAGE = re.compile(r"auto|[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*")
"""A name such as `gpt-4` is no pair of these."""

CHAT = form_body(
    {
        "model": {"type": "string", "description": "undivided:en-de, or undivided:auto-de"},
        "messages": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {"role": {"enum": ["system", "user", "assistant"]}, "content": {"type": "string", "minLength": 1}},
                "required": ["role", "content"],
            },
        },
        "stream": {"type": "boolean"},
    },
    ["model", "messages"],
    "application/json",
)


@router.post(
    "/chat/completions", response_model=ChatAnswer, responses=streamed("text/event-stream", CHAT_ERRORS), openapi_extra=CHAT
)
async def complete(request: Request) -> Response:
    """Translate the last message of the user."""
    service: Service = request.app.state.service
    if not is_json(request):
        raise Refusal(400, "the body must be JSON")
    fields = await read_json(request)
    source, target = read_model_name(fields.get("model"))
    if fields.get("n") not in (None, 1):
        raise Refusal(400, "n must be 1")
    text = last_user_text(fields.get("messages"))
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    asked = service.ask(request, text, source, target, key.strip() if kind.lower() == "bearer" else None)
    found = await service.finish_in_time(request, service.translating.translate(asked.route, asked.texts))
    common = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": f"undivided:{source}-{target}"}
    if fields.get("stream") is True:
        return StreamingResponse(_events(common, found[0].text), media_type="text/event-stream")
    counts = [sum(segment.tokens for segment in found[0].segments), len(found[0].text.split())]
    return JSONResponse(
        common
        | {
            "object": "chat.completion",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": found[0].text}, "finish_reason": "stop", "logprobs": None}
            ],
            "usage": {"prompt_tokens": counts[0], "completion_tokens": counts[1], "total_tokens": sum(counts)},
        }
    )


@router.get("/models", response_model=ChatModels)
async def models(request: Request) -> Response:
    """The names of models: one for each pair of languages."""
    service: Service = request.app.state.service
    pairs = [f"{source}-{target}" for source in service.models.codes for target in service.models.targets(source)]
    return JSONResponse(
        {
            "object": "list",
            "data": [{"id": f"undivided:{pair}", "object": "model", "created": 0, "owned_by": "undivided"} for pair in pairs],
        }
    )


def read_model_name(name: object) -> tuple[str, str]:
    """`undivided:en-de` → en, de."""
    _, _, pair = str(name)[:60].rpartition(":")
    source, _, target = pair.partition("-")
    if not isinstance(name, str) or not (LANGUAGE.fullmatch(source) and LANGUAGE.fullmatch(target)):
        raise Refusal(400, "model must name two languages, such as undivided:en-de")
    return source, target


def last_user_text(messages: object) -> str:
    """The text of the last message of the user, which may come in parts."""
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, list):
                content = "".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))
            if isinstance(content, str) and content:
                return content.encode("utf-8", errors="replace").decode("utf-8")
    raise Refusal(400, "messages must hold a message of the user with text")


async def _events(common: dict[str, Any], text: str) -> AsyncIterator[str]:
    """The answer as server-sent events: the text at once, since beam search has it only at its end."""
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": text}, None), ({}, "stop")]
    for delta, reason in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        chunk = common | {"object": "chat.completion.chunk", "choices": [choice]}
        yield f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"
    yield "data: [DONE]\n\n"
