"""The parameters of a request: JSON, a form, or the query string; whatever arrives, they are read or refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from undivided.serve.errors import Refusal

M = TypeVar("M", bound=BaseModel)

SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which JSON can spell and no text has."""


def is_json(request: Request) -> bool:
    """Whether the body says that it is JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


async def read_json(request: Request) -> dict[str, Any]:
    """The object of a JSON body."""
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise Refusal(400, "Invalid JSON format") from None
    if not isinstance(found, dict):
        raise Refusal(400, "Invalid JSON format")
    return {name: _clean(value) for name, value in found.items()}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return SURROGATES.sub("\ufffd", value)
    return [_clean(each) for each in value] if isinstance(value, list) and all(isinstance(each, str) for each in value) else value


async def read_form(request: Request) -> Mapping[str, Any]:
    """The fields of a form, a file among them; the query string where a field is not in the form."""
    try:
        form = await request.form(max_files=2, max_fields=50)
    except (HTTPException, ValueError, KeyError, AssertionError):
        raise Refusal(400, "Invalid request: the form cannot be read") from None
    fields: dict[str, Any] = {name: _clean(value) for name, value in request.query_params.items()}
    for name, value in form.items():
        fields[name] = value if isinstance(value, UploadFile) else _clean(value)
    return fields


async def read_texts(request: Request, name: str) -> Mapping[str, Any]:
    """The fields of a form or query string, one of which may be given several times."""
    try:
        form = await request.form(max_files=0, max_fields=1000)
    except (HTTPException, ValueError, KeyError, AssertionError):
        raise Refusal(400, "Invalid request: the form cannot be read") from None
    pairs = [*request.query_params.multi_items(), *form.multi_items()]
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
