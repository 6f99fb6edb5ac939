"""One serving process: uvicorn around the application, and what signals do."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import logging
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import uvicorn

from undivided.config.serve import ServeConfig
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.serve.app import make_app
from undivided.serve.guard import Guard, guarded_protocol
from undivided.serve.models import Engine, ModelFolder
from undivided.serve.service import Service

BACKLOG = 2048
ENGINE_GRACE = 5.0
"""Seconds that the engine may still take once everything is answered, or given up."""

GRACE = 1.0
"""Seconds after SIGTERM in which clients that hold a connection may still send a request: the answer tells them to close it."""


class Job(NamedTuple):
    """What a serving process is told."""

    folders: list[ModelFolder]
    config: ServeConfig
    engine: Engine
    files: str
    quiet: bool = False

    def to_json(self) -> str:
        """As a worker process reads it."""
        return json.dumps(self._replace(config=dataclasses.asdict(self.config)))  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, text: str) -> Job:
        """As `to_json` wrote it."""
        folders, config, engine, files, quiet = json.loads(text)
        return cls([ModelFolder(*each) for each in folders], ServeConfig(**config), Engine(*engine), files, quiet)


class Server(uvicorn.Server):
    """Ends in order: SIGTERM and SIGINT stop accepting and finish what was accepted, SIGHUP loads the models again."""

    def __init__(self, config: uvicorn.Config, guard: Guard, service: Service, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.guard, self.service, self.on_ready = guard, service, on_ready
        self.signal = 0

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals by the event loop, so that nothing is interrupted."""
        loop = asyncio.get_running_loop()
        reloads: set[asyncio.Task[None]] = set()

        def reload() -> None:
            task = loop.create_task(self.service.reload())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, number)
        loop.add_signal_handler(signal.SIGHUP, reload)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, and only then say so."""
        await super().startup(sockets)
        self.on_ready()

    def stop(self, number: int) -> None:
        """Stop accepting; a second SIGINT does not wait."""
        self.force_exit = self.should_exit and number == signal.SIGINT
        self.should_exit, self.signal = True, self.signal or number

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, answer everything that was accepted, then end."""
        self.guard.is_draining = True
        for server in self.servers:
            server.close()
        await asyncio.sleep(GRACE)
        await super().shutdown(sockets)


def open_port(config: ServeConfig, is_shared: bool = False, listens: bool = True) -> socket.socket:
    """A socket at the port. The system spreads connections over all processes that listen on a shared one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        if listens:
            listener.listen(BACKLOG)
    except OSError as error:
        raise InputError(f"cannot listen on {config.host}, port {config.port}: {error.strerror or error}") from None
    listener.setblocking(False)
    return listener


def serve(job: Job, listener: socket.socket, on_ready: Callable[[], None]) -> int:
    """Serve until a signal; the number of the signal."""
    return asyncio.run(_serve(job, listener, on_ready))


async def _serve(job: Job, listener: socket.socket, on_ready: Callable[[], None]) -> int:
    service = Service(job.folders, job.config, job.engine, Path(job.files), Console(job.quiet))
    guard = make_app(service)
    config = uvicorn.Config(
        guard,
        http=guarded_protocol(job.config),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(job.config.drain_timeout)),
        h11_max_incomplete_event_size=32_768,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    server = Server(config, guard, service, on_ready)
    # What was loaded lives as long as the server: each full collection would go through all of it while requests wait.
    gc.collect()
    gc.freeze()
    await server.serve(sockets=[listener])
    with suppress(TimeoutError):  # A batch that nobody waits for any more may still be in the engine.
        await asyncio.wait_for(service.close(), ENGINE_GRACE)
    return server.signal


def run_server(job: Job, console: Console) -> int:
    """Serve by this process, or by several that share the port. The number of the signal that ended it."""
    from undivided.serve.workers import Supervisor

    is_shared = job.config.workers > 1
    if is_shared and job.config.port:
        open_port(job.config).close()  # Another server that shares its port would not be noticed otherwise.
    with open_port(job.config, is_shared, listens=not is_shared) as listener:
        port = listener.getsockname()[1]

        def announce() -> None:
            console.say(f"serving at {address(job.config.host, port)} (Ctrl-C stops)")

        if is_shared:
            config = dataclasses.replace(job.config, port=port)
            return Supervisor(job._replace(config=config), console).run(announce)
        return serve(job, listener, announce)


def address(host: str, port: int) -> str:
    """As one types it into a browser."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


@contextmanager
def state_folder() -> Iterator[str]:
    """A folder for translated files, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="undivided-serve-", ignore_cleanup_errors=True) as folder:
        yield folder


def check_openness(config: ServeConfig) -> None:
    """Refuse to be reached by others without keys, unless asked to."""
    if config.host.lower() not in LOOPBACK and not config.api_keys and not config.insecure:
        raise InputError(
            f"--host {config.host}: others could use this server without a key; give keys (--api-keys, see docs/serving.md), "
            "or say --insecure"
        )


LOOPBACK: Sequence[str] = ("127.0.0.1", "localhost", "::1")
