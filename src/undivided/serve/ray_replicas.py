"""Replicas of the server on a Ray cluster, by Ray Serve: it starts them, replaces dead ones, and spreads requests over them."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.signals import handle_stop_signals
from undivided.inference.workers.ray_pool import connect_ray
from undivided.serve.server import Job, address, check_openness

NAME = "undivided"


def run_on_ray(job: Job, where: str, console: Console) -> int:
    """Serve by `--workers` replicas of a cluster (`local` starts one here) until a signal; its number."""
    check_openness(job.config)
    ray = connect_ray(where, 0)
    try:
        from ray import serve
    except ImportError:
        raise InputError("Ray Serve is not installed: pip install 'ray[serve]'") from None
    threads = max(1, job.engine.threads)
    options = {"host": job.config.host, "port": job.config.port}
    serve.start(http_options=options, proxy_location="HeadOnly" if where == "local" else "EveryNode")
    replica = serve.deployment(
        name=NAME,
        num_replicas=job.config.workers,
        max_ongoing_requests=job.config.connection_limit,
        graceful_shutdown_timeout_s=job.config.drain_timeout,
        ray_actor_options={"num_cpus": threads, "num_gpus": 1 if job.engine.device.startswith("cuda") else 0},
    )(serve.ingress(_Builder(job.to_json()))(_Replica))
    try:
        serve.run(replica.bind(), name=NAME, route_prefix="/")
        console.say(
            f"serving at {address(job.config.host, job.config.port)} by {job.config.workers} replicas on Ray (Ctrl-C stops)"
        )
        return _wait()
    finally:
        serve.shutdown()
        ray.shutdown()


class _Replica:
    """What Ray Serve starts; the application is all there is to it."""


class _Builder:
    """Makes the application in a replica, which loads the models."""

    def __init__(self, job: str) -> None:
        self.job = job

    def __call__(self) -> Any:
        from undivided.serve.app import make_app
        from undivided.serve.service import Service

        job = Job.from_json(self.job)
        return make_app(Service(job.folders, job.config, job.engine, Path(job.files), Console(quiet=True)))


def _wait() -> int:
    """Until SIGINT or SIGTERM."""
    stopped, numbers = threading.Event(), list[int]()

    def stop(number: int) -> None:
        numbers.append(number)
        stopped.set()

    with handle_stop_signals(stop):
        while not stopped.wait(0.2):
            pass
    return signal.Signals(numbers[0])
