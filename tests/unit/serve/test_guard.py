"""What the guard refuses before anything of a request is read."""

import asyncio
import json

import pytest

from undivided.config.serve import ServeConfig
from undivided.serve.errors import Refusal, busy
from undivided.serve.guard import QUEUED_PATHS, Guard
from undivided.serve.metrics import Metrics
from undivided.serve.models import Models


def ask(path, method="POST", check_room=lambda: None):
    """The messages that are sent back, and how often the body was asked for."""
    sent, read = [], []

    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive():
        read.append(1)
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [(b"host", b"localhost")]}
    asyncio.run(Guard(app, ServeConfig(), Metrics(), check_room)(scope, receive, send))
    return sent, len(read)


def full():
    raise busy(3)


@pytest.mark.parametrize("path", sorted(QUEUED_PATHS))
def test_while_the_queues_are_full_a_request_for_a_translation_is_refused_unread(path):
    (start, body), read = ask(path, check_room=full)
    assert (start["status"], read) == (429, 0)
    assert dict(start["headers"])[b"retry-after"] == b"3"
    error = json.loads(body["body"])["error"]
    assert ("message" in error) == (path == "/v1/chat/completions")
    assert ("message" in json.loads(body["body"])) == (path == "/v2/translate")


@pytest.mark.parametrize(("path", "method"), [("/health", "GET"), ("/translate", "GET"), ("/detect", "POST")])
def test_everything_else_is_served_all_the_same(path, method):
    sent, read = ask(path, method, full)
    assert (sent[0]["status"], read) == (200, 1)


def test_with_room_a_request_is_served():
    assert ask("/translate")[0][0]["status"] == 200


class Queue:
    def __init__(self, seconds):
        self.seconds = seconds

    def check_room(self):
        if self.seconds:
            raise busy(self.seconds)


def models(*seconds):
    class Model:
        def __init__(self, number, each):
            self.source, self.target, self.batcher = "en", f"x{number}", Queue(each)

    return Models([Model(number, each) for number, each in enumerate(seconds)])


def test_one_model_with_room_is_enough():
    models(4, 0, 5).check_room()
    with pytest.raises(Refusal) as refused:
        models(4, 5).check_room()
    assert refused.value.status == 429
