"""The parameters of a request: JSON, a form, or the query string; whatever arrives, they are read or refused."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from undivided.serve.errors import Refusal, too_long

M = TypeVar("M", bound=BaseModel)

SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which JSON can spell and no text has."""


INLINE = 20_000
"""Bytes of a form up to which it is read on the event loop; more would hold it up."""

MOST_FIELDS = 1000
"""Of a form or an object in JSON."""

MOST_ITEMS = 10_000
"""Of a list or object in a request, lists of texts aside, which have a limit of their own."""


def is_json(request: Request) -> bool:
    """Whether the body says that it is JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


async def read_json(request: Request) -> dict[str, Any]:
    """The object of a JSON body."""
    body = await request.body()
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, "Invalid JSON format") from None
    if not isinstance(found, dict):
        raise Refusal(400, "Invalid JSON format")
    _check_counts(found, request.app.state.service.config.batch_limit)
    return {name: _clean(value) for name, value in found.items()} if b"\\u" in body else found


def _check_counts(found: dict[str, Any], most: int) -> None:
    """Refuse what is too many before each of them is looked at: that would hold up the requests of others."""
    if len(found) > MOST_FIELDS:
        raise Refusal(400, f"Invalid request: more than {MOST_FIELDS} parameters")
    for name, value in found.items():
        if isinstance(value, list) and name in ("q", "text") and 0 <= most < len(value):
            raise too_long(len(value), most)
        if isinstance(value, list | dict) and len(value) > MOST_ITEMS and name not in ("q", "text"):
            raise Refusal(400, f"Invalid request: {name[:40]} parameter has more than {MOST_ITEMS} items")


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return SURROGATES.sub("\ufffd", value)
    return [_clean(each) for each in value] if isinstance(value, list) and all(isinstance(each, str) for each in value) else value


def _parse_pairs(body: bytes) -> list[tuple[str, Any]]:
    text = body.decode("utf-8", errors="replace")
    return list(parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=MOST_FIELDS))


async def _read_pairs(request: Request, files: int) -> list[tuple[str, Any]]:
    """The fields of a form, in order. Where it has no files, it is read at once: starlette's parser takes its time."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/x-www-form-urlencoded":
        body = await request.body()
        try:
            return await asyncio.to_thread(_parse_pairs, body) if len(body) > INLINE else _parse_pairs(body)
        except ValueError:
            raise Refusal(400, f"Invalid request: more than {MOST_FIELDS} parameters") from None
    try:
        form = await request.form(max_files=files, max_fields=MOST_FIELDS)
    except (HTTPException, ValueError, KeyError, AssertionError):
        raise Refusal(400, "Invalid request: the form cannot be read") from None
    return form.multi_items()


async def read_form(request: Request) -> Mapping[str, Any]:
    """The fields of a form, a file among them; the query string where a field is not in the form."""
    fields: dict[str, Any] = {name: _clean(value) for name, value in request.query_params.items()}
    for name, value in await _read_pairs(request, files=2):
        fields[name] = value if isinstance(value, UploadFile) else _clean(value)
    return fields


async def read_texts(request: Request, name: str) -> Mapping[str, Any]:
    """The fields of a form or query string, one of which may be given several times."""
    pairs = [*request.query_params.multi_items(), *await _read_pairs(request, files=0)]
    fields: dict[str, Any] = {key: _clean(value) for key, value in pairs if isinstance(value, str)}
    return fields | {name: [_clean(value) for key, value in pairs if key == name and isinstance(value, str)]}


async def read_parameters(request: Request) -> Mapping[str, Any]:
    """JSON where the body says so, else form and query string, as LibreTranslate reads them."""
    if is_json(request):
        return await read_json(request)
    fields = await read_form(request)
    return {name: _normal_lines(value) for name, value in fields.items() if isinstance(value, str)}


def _normal_lines(value: str) -> str:
    """Forms end lines with CR LF, which would count as two characters."""
    return value.replace("\r\n", "\n").replace("\r", "\n")


async def read_model(request: Request, model: type[M]) -> M:
    """A JSON body checked against its schema."""
    if not is_json(request):
        raise Refusal(400, "Invalid request: the body must be JSON, with Content-Type: application/json")
    try:
        return model.model_validate(await read_json(request))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Refusal(400, f"Invalid request: {where}: {first['msg']}"[:300]) from None


def read_number(value: object, name: str) -> int:
    """A whole number that may be given as text; 0 where it is not given."""
    if value is None or value == "":
        return 0
    try:
        if isinstance(value, bool | float) and value != int(value):
            raise ValueError
        return int(str(value)[:20]) if not isinstance(value, float) else int(value)
    except (ValueError, OverflowError):
        raise Refusal(400, f"Invalid request: {name} parameter is not a number") from None
