"""What stands before every request: the host's name, sizes, deadlines, headers for safety, and a count of what is under way.

`GuardedProtocol` does the same for connections on which no request arrives.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import math
import time
import traceback
from collections.abc import Callable, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from undivided.config.serve import ServeConfig
from undivided.serve.errors import Refusal, describe_refusal
from undivided.serve.metrics import Metrics

LOGGER = logging.getLogger("undivided.serve")

SLOWEST = 50_000
"""Bytes in a second that a client must send or read, once its first seconds are over."""

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}

FILE_PATHS = ("/translate_file",)

QUEUED_PATHS = {"/translate", "/v1/translate", "/v2/translate", "/v1/chat/completions"}
"""Whose texts wait in the queue of a model. While all queues are full they are refused unread, since reading takes time from those
that were accepted."""


class Guard:
    """Around the whole application."""

    def __init__(self, app: ASGIApp, config: ServeConfig, metrics: Metrics, check_room: Callable[[], None]) -> None:
        self.app, self.config, self.metrics, self.check_room = app, config, metrics, check_room
        self.under_way = 0
        self.is_draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        started, answer = time.monotonic(), _Answer(send, self.config, _header(scope, b"origin"), self.is_draining)
        self.under_way += 1
        try:
            await self._serve(scope, receive, answer)
        except Refusal as refusal:
            await answer.refuse(refusal, scope["path"])
        except (TimeoutError, ConnectionError):
            return
        except Exception as error:
            LOGGER.error("%s %s failed: %s", scope["method"], scope["path"][:100], describe(error))
            await answer.refuse(Refusal(500, "the server failed; its log says where"), scope["path"])
        finally:
            self.under_way -= 1
            self.metrics.observe(_route(scope), answer.status, time.monotonic() - started)

    async def _serve(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        check_host(_header(scope, b"host"), self.config)
        path = strip_prefix(scope, self.config.url_prefix)
        if scope["method"] == "OPTIONS" and answer.allows_origin:
            await answer.preflight()
            return
        limit = self.config.file_limit + 100_000 if path in FILE_PATHS else self.config.body_limit
        length = _header(scope, b"content-length")
        if length.isdecimal() and int(length[:20]) > limit:
            raise Refusal(413, f"the request has {length[:20]} bytes, and at most {limit} are allowed")
        if path in QUEUED_PATHS and scope["method"] == "POST":
            self.check_room()
        try:
            await self.app(scope, _bounded(receive, limit, self.config.body_timeout), answer.send)
        except Refusal:
            raise
        except Exception:
            if not answer.status:
                raise
            LOGGER.error("an answer to %s could not be finished", scope["path"][:100])


def _bounded(receive: Receive, limit: int, seconds: float) -> Receive:
    """A body that may neither be larger than a limit nor arrive too slowly."""
    size, started, whole = 0, time.monotonic(), False

    async def bounded() -> Message:
        nonlocal size, whole
        if whole:
            return await receive()
        try:
            async with asyncio.timeout_at(
                asyncio.get_running_loop().time() + started + seconds + size / SLOWEST - time.monotonic()
            ):
                message = await receive()
        except TimeoutError:
            raise Refusal(408, "the request arrived too slowly") from None
        size += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if size > limit:
            raise Refusal(413, f"the request is larger than {limit} bytes")
        return message

    return bounded


class _Answer:
    """Sends an answer with the headers that every answer has."""

    def __init__(self, send: Send, config: ServeConfig, origin: str, is_last: bool) -> None:
        self._send, self.config, self.origin, self.is_last = send, config, origin, is_last
        self.status = 0

    @property
    def allows_origin(self) -> bool:
        return bool(self.origin) and ("*" in self.config.cors_origins or self.origin in self.config.cors_origins)

    async def send(self, message: Message) -> None:
        """Pass a message on; a client that does not read it is given up."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = {name.lower() for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in self._headers().items() if name.encode() not in given]
            message = {**message, "headers": [*message["headers"], *more]}
        seconds = self.config.body_timeout + len(message.get("body", b"")) / SLOWEST
        async with asyncio.timeout(seconds):
            await self._send(message)

    def _headers(self) -> dict[str, str]:
        headers = dict(HEADERS) if not self.allows_origin else HEADERS | {"cross-origin-resource-policy": "cross-origin"}
        if self.allows_origin:
            headers |= {
                "access-control-allow-origin": self.origin,
                "vary": "Origin",
                "access-control-expose-headers": "Retry-After",
            }
        if self.is_last:
            headers["connection"] = "close"
        return headers

    async def preflight(self) -> None:
        """The answer to a browser that asks whether a page of another origin may call."""
        headers = {"access-control-allow-methods": "GET, POST", "access-control-allow-headers": "Authorization, Content-Type"}
        headers |= {"access-control-max-age": "86400"}
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": 204, "headers": pairs})
        await self.send({"type": "http.response.body", "body": b""})

    async def refuse(self, refusal: Refusal, path: str) -> None:
        """Answer with an error, unless an answer has begun."""
        if self.status:
            return
        body = json.dumps(describe_refusal(path, refusal)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if refusal.retry_after is not None:
            headers.append((b"retry-after", str(math.ceil(refusal.retry_after)).encode()))
        if refusal.status in (408, 413):
            # What is still on its way of the body is not read.
            headers.append((b"connection", b"close"))
        try:
            await self.send({"type": "http.response.start", "status": refusal.status, "headers": headers})
            await self.send({"type": "http.response.body", "body": body})
        except (TimeoutError, OSError):
            return


def check_host(host: str, config: ServeConfig) -> None:
    """Only addresses, localhost and names that were allowed: a page elsewhere cannot reach this server by a name of its own."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
    name = name.strip("[]").lower()
    if name in {"localhost", config.host.lower(), *map(str.lower, config.allowed_hosts)}:
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise Refusal(421, f"{host[:100]} is not a name of this server; --allowed-hosts allows it") from None


def strip_prefix(scope: Scope, prefix: str) -> str:
    """The path of a request under the prefix; the scope is changed."""
    prefix = "/" + prefix.strip("/") if prefix.strip("/") else ""
    if prefix:
        if scope["path"] != prefix and not scope["path"].startswith(f"{prefix}/"):
            raise Refusal(404, "Not Found")
        scope["path"] = scope["path"].removeprefix(prefix) or "/"
        scope["server_prefix"] = prefix
    return str(scope["path"])


def describe(error: BaseException) -> str:
    """Type and place of an error. Not its message: that may quote the text of a client."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames[-3:]]
    return f"{type(error).__name__} at {' > '.join(places)}"


def _header(scope: MutableMapping[str, Any], name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _route(scope: Scope) -> str:
    """The route that served a request, never its path as it was: that may hold anything."""
    route = scope.get("route")
    return getattr(route, "path", "") or "other"


class GuardedProtocol(H11Protocol):
    """Closes connections on which no request arrives in time; beyond the limit, the one that has been idle for longest."""

    limits: ServeConfig
    all: dict[GuardedProtocol, None]
    """Of this server, the oldest first."""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.all[self] = None
        if len(self.all) > self.limits.connection_limit:
            idle = next((each for each in self.all if each.is_idle), self)
            self.all.pop(idle)
            idle.transport.abort()
        self._arm()

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_idle:
            self._disarm()
        elif not self.transport.is_closing():
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self.all.pop(self, None)
        super().connection_lost(exc)

    def _arm(self) -> None:
        """The time starts with the first byte; more bytes do not give more time."""
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.body_timeout, self._expire)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self._deadline = None
        if self.is_idle:
            self.transport.close()


def guarded_protocol(config: ServeConfig) -> type[GuardedProtocol]:
    """The protocol with the limits of a server."""
    return type("Protocol", (GuardedProtocol,), {"limits": config, "all": {}})
