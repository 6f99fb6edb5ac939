"""LibreTranslate's API: its routes, shapes, codes and messages."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.datastructures import UploadFile

from undivided.formats import format_of
from undivided.formats.document import TEXT_FORMATS
from undivided.formats.office import OFFICE_FORMATS
from undivided.serve.errors import Refusal, missing
from undivided.serve.languages import language_name, libretranslate_code
from undivided.serve.parameters import read_form, read_number, read_parameters
from undivided.serve.schemas import (
    ERRORS,
    Detection,
    FrontendSettings,
    Health,
    Language,
    LibreTranslated,
    Suggested,
    TranslatedFile,
    form_body,
)
from undivided.serve.service import Asked, Service
from undivided.serve.suggestions import add_suggestion
from undivided.serve.texts import Wish

router = APIRouter(tags=["LibreTranslate"])

TEXT = {"type": "string", "minLength": 1}
KEY: dict[str, Any] = {"description": "An API key; anything where the server has none."}
TEXTS = {"anyOf": [TEXT, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}


@router.post(
    "/translate",
    response_model=LibreTranslated,
    responses=ERRORS,
    openapi_extra=form_body(
        {
            "q": TEXTS, "source": TEXT, "target": TEXT, "format": {"enum": ["text", "html", "", None]},
            "alternatives": {"type": ["integer", "null"]}, "api_key": KEY,
        },
        ["q", "source", "target"],
    ),
)  # fmt: skip
async def translate(request: Request) -> Response:
    """Translate a text or a list of texts; source may be auto, format text or html."""
    service: Service = request.app.state.service
    fields = await read_parameters(request)
    alternatives = max(0, read_number(fields.get("alternatives"), "alternatives"))
    most = service.config.alternatives_limit
    if 0 <= most < alternatives:
        raise Refusal(400, f"Invalid request: alternatives parameter must be <= {most}")
    asked = service.ask(request, fields.get("q"), fields.get("source"), fields.get("target"), fields.get("api_key"))
    format = "text" if fields.get("format") in (None, "") else fields["format"]
    if format not in ("text", "html"):
        raise Refusal(400, f"{str(format)[:40]} format is not supported")
    if format == "html":
        texts = [await service.finish_in_time(request, translate_html(service, asked, text)) for text in asked.texts]
        others: list[list[str]] = [[] for _ in texts]
    else:
        work = service.translating.translate(asked.route, asked.texts, Wish(n_best=alternatives + 1))
        results = await service.finish_in_time(request, work)
        texts = [each.text for each in results]
        others = [[text for text, _ in each.alternatives if text != each.text] for each in results]
    return JSONResponse(_answer(asked, texts, others if alternatives else None))


def _answer(asked: Asked, texts: list[str], others: list[list[str]] | None) -> dict[str, Any]:
    """Lists for a list, single values for a single text."""
    answer: dict[str, Any] = {"translatedText": texts if asked.is_list else texts[0]}
    if asked.detected is not None:
        found = {"confidence": asked.detected.confidence, "language": libretranslate_code(asked.detected.language)}
        answer["detectedLanguage"] = [found] * len(texts) if asked.is_list else found
    if others is not None:
        answer["alternatives"] = others if asked.is_list else others[0]
    if asked.route.via:
        answer["via"] = asked.route.via
    return answer


async def translate_html(service: Service, asked: Asked, text: str) -> str:
    """A text with its markup."""
    if not text.strip() or not asked.route.models:
        return text
    data = text.encode("utf-8", errors="replace")
    done = await service.documents.translate(data, "html", "q", asked.route, everything=True, is_document=False)
    return done.data.decode("utf-8", errors="replace")


@router.post(
    "/detect",
    response_model=list[Detection],
    responses=ERRORS,
    openapi_extra=form_body({"q": TEXTS, "api_key": KEY}, ["q"]),
)
async def detect(request: Request) -> Response:
    """Which of the loaded languages a text is in, likeliest first."""
    service: Service = request.app.state.service
    fields = await read_parameters(request)
    key = service.admit(request, fields.get("api_key"))
    texts, _ = service.check_texts(fields.get("q"), key)
    found = service.detector.detect("\n".join(texts))
    return JSONResponse([{"confidence": each.confidence, "language": libretranslate_code(each.language)} for each in found])


@router.get("/languages", response_model=list[Language])
async def languages(request: Request) -> Response:
    """All languages, each with those it can be translated to."""
    models = request.app.state.service.models
    return JSONResponse(
        [
            {
                "code": libretranslate_code(code),
                "name": language_name(code),
                "targets": sorted(map(libretranslate_code, models.targets(code))),
            }
            for code in models.codes
        ]
    )


FILE = {"type": "string", "format": "binary"}


@router.post(
    "/translate_file",
    response_model=TranslatedFile,
    responses=ERRORS,
    openapi_extra=form_body(
        {"file": FILE, "source": TEXT, "target": TEXT, "api_key": KEY}, ["file", "source", "target"], "multipart/form-data"
    ),
)
async def translate_file(request: Request) -> Response:
    """Translate a document; its format is told by its name."""
    service: Service = request.app.state.service
    if service.config.disable_files_translation:
        raise Refusal(403, "Files translation are disabled on this server.")
    fields = await read_form(request)
    file = fields.get("file")
    data = await file.read() if isinstance(file, UploadFile) else b""
    cost = 1 + len(data) // max(1, service.config.char_limit) if service.config.char_limit > 0 else 1
    service.admit(request, fields.get("api_key"), cost)
    if not isinstance(file, UploadFile):
        raise missing("file")
    for name in ("source", "target"):
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise missing(name)
    if not file.filename or not data:
        raise Refusal(400, "Invalid request: empty file")
    if len(data) > service.config.file_limit:
        raise Refusal(413, f"the file has {len(data)} bytes, and at most {service.config.file_limit} are allowed")
    format = format_of(file.filename)
    if not format:
        raise Refusal(400, "Invalid request: file format not supported")
    source = fields["source"]
    if source == "auto":
        source = await asyncio.to_thread(_detect_file, service, data)
    route = service.models.route(service.models.find_language(source), service.models.find_language(fields["target"]))
    if not route.models:
        raise Refusal(400, f"Invalid request: the file is in {language_name(route.target)} already")
    work = service.documents.translate(data, format, file.filename, route)
    done = await service.finish_in_time(request, work, service.config.file_timeout)
    name = await asyncio.to_thread(service.files.add, done.data, file.filename)
    prefix = request.scope.get("server_prefix", "")
    url = f"{request.url.scheme}://{request.url.netloc}{prefix}/download_file/{name}"
    return JSONResponse(
        {"translatedFileUrl": url, "translated": done.translated, "left": done.left, "remarks": done.remarks}
        | ({"via": route.via} if route.via else {})
    )


def _detect_file(service: Service, data: bytes) -> str:
    """The language of a document, by what of it can be read as text."""
    return service.detector.detect(data[:20_000].decode("utf-8", errors="ignore"))[0].language


@router.get(
    "/download_file/{name}",
    responses={200: {"content": {"application/octet-stream": {}}}, 404: ERRORS[400] | {"description": "No such file."}},
    response_class=FileResponse,
)
async def download_file(request: Request, name: str) -> Response:
    """Fetch a translated file."""
    path, own = request.app.state.service.files.find(name)
    return FileResponse(path, media_type="application/octet-stream", filename=own, content_disposition_type="attachment")


@router.get("/frontend/settings", response_model=FrontendSettings)
async def frontend_settings(request: Request) -> Response:
    """What a page needs to know of this server."""
    service: Service = request.app.state.service
    config, codes = service.config, service.models.codes
    formats = [suffix for each in TEXT_FORMATS.values() for suffix in each.suffixes] + [f".{name}" for name in OFFICE_FORMATS]
    source = config.frontend_language_source
    target = config.frontend_language_target
    target = target if target in codes else next(iter(service.models.all)).target
    return JSONResponse(
        {
            "charLimit": config.char_limit,
            "alternativesLimit": config.alternatives_limit,
            "frontendTimeout": config.frontend_timeout,
            "apiKeys": config.api_keys,
            "keyRequired": config.api_keys,
            "suggestions": config.suggestions,
            "filesTranslation": not config.disable_files_translation,
            "supportedFilesFormat": [] if config.disable_files_translation else formats,
            "language": {
                "source": {"code": source, "name": "Auto Detect" if source == "auto" else language_name(source)},
                "target": {"code": target, "name": language_name(target)},
            },
        }
    )


@router.get("/health", response_model=Health)
async def health() -> Response:
    """The server answers."""
    return JSONResponse({"status": "ok"})


@router.post(
    "/suggest",
    response_model=Suggested,
    responses=ERRORS,
    openapi_extra=form_body({"q": TEXT, "s": TEXT, "source": TEXT, "target": TEXT, "api_key": KEY}, ["q", "s", "source", "target"]),
)
async def suggest(request: Request) -> Response:
    """Correct a translation: q is the text, s what its translation should be."""
    service: Service = request.app.state.service
    if not service.config.suggestions:
        raise Refusal(403, "Suggestions are disabled on this server.")
    fields = await read_parameters(request)
    key = service.admit(request, fields.get("api_key"))
    for name in ("q", "s", "source", "target"):
        if not isinstance(fields.get(name), str) or not fields[name]:
            raise missing(name)
    service.check_texts([fields["q"], fields["s"]], key)
    source, target = (service.models.find_language(fields[name]) for name in ("source", "target"))
    pair = ((source, fields["q"]), (target, fields["s"]))
    await asyncio.to_thread(add_suggestion, service.config.suggestions_file, service.files.folder, pair)
    return JSONResponse({"success": True})
