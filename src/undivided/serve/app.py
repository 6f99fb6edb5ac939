"""The application: routes, errors as JSON, the page, and the guard around it all."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from undivided import __version__
from undivided.serve import deepl, libretranslate, native, openai
from undivided.serve.docs_page import render_docs
from undivided.serve.errors import ClientGone, Refusal, describe_refusal
from undivided.serve.guard import Guard
from undivided.serve.service import Service

PAGE = Path(__file__).parent / "page"
LOOK_PAGE = Path(__file__).parents[1] / "look" / "page"
"""The modules of the page of `undivided look`, some of which the page imports."""


def make_app(service: Service) -> Guard:
    """The application of a service, guarded."""
    app = FastAPI(
        title="undivided",
        version=__version__,
        description="Translation by models of undivided, also by LibreTranslate's, DeepL's and OpenAI's APIs.",
        openapi_url="/spec",
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.state.guard = Guard(app, service.config, service.metrics, service.check_room)
    app.include_router(libretranslate.router)
    app.include_router(native.router)
    app.include_router(deepl.router)
    app.include_router(openai.router)
    app.add_api_route("/docs", docs, include_in_schema=False, response_class=HTMLResponse)
    if not service.config.disable_web_ui:
        add_page(app)
    app.openapi = lambda: describe(app, service)  # type: ignore[method-assign]
    app.add_exception_handler(Refusal, refuse)
    app.add_exception_handler(HTTPException, refuse_http)
    for kind in (ClientGone, ClientDisconnect):
        app.add_exception_handler(kind, forget)
    app.add_exception_handler(Exception, fail)
    guard: Guard = app.state.guard
    return guard


def describe(app: FastAPI, service: Service) -> dict[str, Any]:
    """The description of the API, which names the languages of this server."""
    if app.openapi_schema is None:
        codes = service.models.codes
        spec = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for operation in (each for path in spec["paths"].values() for each in path.values()):
            for content in operation.get("requestBody", {}).get("content", {}).values():
                known = content["schema"]["properties"]
                for name, more in (("source", ["auto"] if "/v1/look" not in operation["operationId"] else []), ("target", [])):
                    if name in known:
                        known[name] = {"type": "string", "enum": [*more, *codes]}
        app.openapi_schema = spec
    return app.openapi_schema


def add_page(app: FastAPI) -> None:
    """A route for each file of the page, and no others: an unknown path is a 404, and another method of a known one a 405."""

    def add(path: str, file: Path) -> None:
        async def send() -> Response:
            return FileResponse(file, headers={"cache-control": "no-cache"})

        app.add_api_route(path, send, methods=["GET", "HEAD"], include_in_schema=False)

    async def index(request: Request) -> Response:
        prefix = request.scope.get("server_prefix", "")
        if prefix and not request.scope["raw_path"].endswith(b"/"):
            # The page names its files relative to its own address.
            return RedirectResponse(f"{prefix}/")
        return FileResponse(PAGE / "index.html", headers={"cache-control": "no-cache"})

    app.add_api_route("/", index, methods=["GET", "HEAD"], include_in_schema=False)
    for folder, prefix in ((PAGE, "/"), (LOOK_PAGE, "/look/")):
        for file in sorted(folder.iterdir()):
            if file.is_file():
                add(f"{prefix}{file.name}", file)


async def docs(request: Request) -> Response:
    """The documentation of the API, for people."""
    return HTMLResponse(render_docs(request.app.openapi()))


async def refuse(request: Request, error: Any) -> Response:
    """A refusal as every client of LibreTranslate knows it."""
    headers = {"retry-after": str(math.ceil(error.retry_after))} if error.retry_after is not None else {}
    if error.status in (408, 413):
        headers["connection"] = "close"
    return JSONResponse(describe_refusal(request.url.path, error), error.status, headers)


async def refuse_http(request: Request, error: Any) -> Response:
    """What the framework refuses: an unknown path, another method."""
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == 405:
        # The framework names the methods of one route, and two may share a path.
        path = getattr(request.scope.get("route"), "path", "")
        if methods := request.app.openapi()["paths"].get(path):
            headers["allow"] = ", ".join(sorted(map(str.upper, methods)))
    return JSONResponse({"error": str(error.detail)}, error.status_code, headers)


async def forget(request: Request, error: Exception) -> Response:
    """Nobody reads this answer; its status is for the numbers."""
    return Response(status_code=499)


async def fail(request: Request, error: Exception) -> Response:
    """A fault of ours; the guard writes it to the log."""
    return JSONResponse({"error": "the server failed; its log says where"}, 500)
