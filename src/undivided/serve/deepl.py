"""The part of DeepL's API that tools use which can be given another address: translate, languages, usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from undivided.serve.errors import Refusal, missing
from undivided.serve.languages import language_name
from undivided.serve.libretranslate import translate_html
from undivided.serve.parameters import is_json, read_json, read_texts
from undivided.serve.schemas import ERRORS, DeepLAnswer, DeepLLanguage, DeepLUsage, form_body
from undivided.serve.service import Service

router = APIRouter(prefix="/v2", tags=["DeepL"])

NO_LIMIT = 1_000_000_000_000
"""Characters that are left, in an answer that must name a number."""

MARKED = ("html", "xml")


def auth_key(request: Request, fields: Mapping[str, Any]) -> object:
    """`Authorization: DeepL-Auth-Key …`, or a parameter as in older clients; refused with 403, as DeepL does."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "deepl-auth-key" else fields.get("auth_key")


def admit(service: Service, request: Request, fields: Mapping[str, Any]) -> object:
    """Check the key; where there is none, that is a 403 here."""
    key = auth_key(request, fields)
    if service.access.keys and not key:
        raise Refusal(403, "Invalid API key")
    return key


TRANSLATE = form_body(
    {
        "text": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
        "target_lang": {"type": "string", "minLength": 2},
        "source_lang": {"type": ["string", "null"]},
        "tag_handling": {"enum": ["html", "xml"]},
        "formality": {"enum": ["default", "prefer_more", "prefer_less"]},
    },
    ["text", "target_lang"],
    "application/json",
)


QUERY = {
    "parameters": [
        {"name": "text", "in": "query", "required": True, "schema": {"type": "string", "minLength": 1}},
        {"name": "target_lang", "in": "query", "required": True, "schema": {"type": "string", "minLength": 2}},
        {"name": "source_lang", "in": "query", "schema": {"type": "string"}},
    ]
}


@router.post("/translate", response_model=DeepLAnswer, responses=ERRORS, openapi_extra=TRANSLATE)
@router.get("/translate", response_model=DeepLAnswer, responses=ERRORS, openapi_extra=QUERY)
async def translate(request: Request) -> Response:
    """Translate a list of texts. Formality and glossaries are refused: no model here knows them."""
    service: Service = request.app.state.service
    fields = await read_json(request) if is_json(request) else await read_texts(request, "text")
    key, texts = admit(service, request, fields), fields.get("text")
    if not texts:
        raise missing("text")
    if not fields.get("target_lang"):
        raise missing("target_lang")
    check_options(fields)
    asked = service.ask(request, texts, fields.get("source_lang") or "auto", fields["target_lang"], key)
    if fields.get("tag_handling") in MARKED:
        results = [await service.finish_in_time(request, translate_html(service, asked, text)) for text in asked.texts]
    else:
        found = await service.finish_in_time(request, service.translating.translate(asked.route, asked.texts))
        results = [each.text for each in found]
    service.characters += sum(map(len, asked.texts))
    source = asked.route.source.upper()
    return JSONResponse(
        {
            "translations": [
                {"detected_source_language": source, "text": text, "billed_characters": len(given)}
                for given, text in zip(asked.texts, results, strict=True)
            ]
        }
    )


def check_options(fields: Mapping[str, Any]) -> None:
    """What cannot be done is refused rather than left out without a word."""
    if fields.get("formality") not in (None, "", "default", "prefer_more", "prefer_less"):
        raise Refusal(400, "formality is not supported by any model of this server")
    if fields.get("glossary_id") or fields.get("glossary_ids"):
        raise Refusal(404, "no such glossary")
    if fields.get("tag_handling") not in (None, "", *MARKED):
        raise Refusal(400, "tag_handling must be html or xml")


@router.get("/languages", response_model=list[DeepLLanguage], responses=ERRORS)
async def languages(request: Request) -> Response:
    """Source languages; with type=target, target languages."""
    service: Service = request.app.state.service
    fields = await read_texts(request, "text")
    service.admit(request, admit(service, request, fields))
    is_target = fields.get("type") == "target"
    pairs = [(source, target) for source in service.models.codes for target in service.models.targets(source)]
    codes = dict.fromkeys(pair[is_target] for pair in pairs)
    more: dict[str, Any] = {"supports_formality": False} if is_target else {}
    return JSONResponse([{"language": code.upper(), "name": language_name(code)} | more for code in codes])


@router.get("/usage", response_model=DeepLUsage, responses=ERRORS)
async def usage(request: Request) -> Response:
    """Characters translated by this API since the server started; there is no limit to them."""
    service: Service = request.app.state.service
    service.admit(request, admit(service, request, await read_texts(request, "text")))
    return JSONResponse({"character_count": service.characters, "character_limit": NO_LIMIT})
