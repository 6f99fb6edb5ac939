"""Refusals: a status, a sentence, and where it helps, when to come back."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """A request that is not served; its body is `{"error": message}`."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after


class ClientGone(Exception):
    """The client has closed its connection: nobody waits for the answer."""


def missing(name: str) -> Refusal:
    """A parameter that must be given is not."""
    return Refusal(400, f"Invalid request: missing {name} parameter")


def unsupported(language: object) -> Refusal:
    """A language that no model has."""
    return Refusal(400, f"{str(language)[:40]} is not supported")


def too_long(size: int, limit: int) -> Refusal:
    """A text or list that is over its limit."""
    return Refusal(400, f"Invalid request: request ({size}) exceeds text limit ({limit})")


def busy(seconds: float = 1.0) -> Refusal:
    """The queue is full."""
    return Refusal(429, "Slowdown: the server is busy, try again later", retry_after=max(1.0, seconds))


def describe_refusal(path: str, error: Refusal) -> dict[str, Any]:
    """The body of a refusal, in the shape that the clients of a route know."""
    if path.endswith("/v1/chat/completions"):
        return {"error": {"message": error.message, "type": "invalid_request_error", "code": error.status, "param": None}}
    return {"error": error.message} | ({"message": error.message} if "/v2/" in path else {})
