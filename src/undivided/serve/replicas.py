"""Replicas of a model on a Ray cluster, by Ray Serve (the extra `ray-serve`): batches go to them instead of to an engine here.

This process stays the server: requests, limits, the cache and files are here. Ray's own HTTP proxies are not started.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import logging
import os
import platform
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from undivided.config.serve import ServeConfig
from undivided.core.errors import InputError, UndividedError
from undivided.formats.terms import Term
from undivided.inference.translation import Translation
from undivided.inference.translator import Translator
from undivided.inference.workers.ray_pool import LOCAL, connect_ray
from undivided.serve.batching import LANES, Group, OwnEngine, Text
from undivided.serve.errors import Refusal

START_SECONDS = 300.0
"""How long replicas may take to load a model."""

BATCH_SECONDS = 60.0
"""How long a batch may take, where requests may not take longer."""

TRIES = 3
"""Replicas that are asked for a batch, where those before have died."""


class ReplicaJob(NamedTuple):
    """What a replica loads: a folder that has this path on all machines of the cluster, and how it is run."""

    folder: str
    engine: str
    device: str
    threads: int
    trust: bool


class Replica:
    """In a process of Ray: a translator that is given batches."""

    def __init__(self, job: ReplicaJob, is_local: bool) -> None:
        if is_local:
            listen_here_only()
        translator = Translator(job.folder, job.device, max(1, job.threads), job.engine, trust=job.trust)
        self.engine = OwnEngine(translator)

    async def translate(
        self, texts: Sequence[tuple[str, int, str]], beam_size: int, terms: Sequence[tuple[str, str]], n_best: int
    ) -> list[dict[str, Any]]:
        """Translate a batch, beside the answers to Ray's questions whether this replica is well."""
        group = Group(beam_size, tuple(Term(*each) for each in terms))
        found = await asyncio.to_thread(self.engine.run, [Text(*each) for each in texts], group, n_best)
        return [dataclasses.asdict(each) for each in found]


def listen_here_only() -> None:
    """Let this replica listen on the loopback address.

    Ray Serve 2.60 has each listen on all interfaces for other replicas, whatever address Ray was given, and runs what it is sent.
    """
    from ray.serve._private import replica

    add_port = replica.add_port_to_grpc_server
    replica.add_port_to_grpc_server = lambda server, address: add_port(server, address.replace("[::]", "127.0.0.1"))


class Replicas:
    """The replicas of one model, as an application of Ray Serve."""

    def __init__(self, handle: Any, name: str, config: ServeConfig) -> None:
        self.handle, self.name, self.seconds = handle, name, max(BATCH_SECONDS, config.request_timeout)
        self.engines, self.lanes = config.replicas, LANES * config.replicas

    def run(self, texts: Sequence[Text], group: Group, n_best: int) -> list[Translation]:
        """Let a replica translate a batch; another one where it dies."""
        import ray

        given = [tuple(each) for each in texts], group.beam_size, [tuple(each) for each in group.glossary], n_best
        deadline = time.monotonic() + self.seconds
        for _ in range(TRIES):
            try:
                found = self.handle.translate.remote(*given).result(timeout_s=max(0.1, deadline - time.monotonic()))
                return [Translation(**each) for each in found]
            except ray.exceptions.RayTaskError:
                raise  # The batch is at fault, not the replica.
            except TimeoutError:
                break
            except ray.exceptions.RayError:
                time.sleep(0.2)
        raise Refusal(503, "Slowdown: no replica of the model answers", retry_after=5)

    def close(self) -> None:
        """End the replicas."""
        from ray import serve

        serve.delete(self.name, _blocking=False)


_connecting = threading.Lock()


def connect(config: ServeConfig, threads: int) -> Any:
    """Connect to the cluster, once, without Ray Serve's own HTTP proxies; Ray Serve itself."""
    with _connecting:
        if importlib.util.find_spec("grpc_reflection") is None:
            raise InputError("Ray Serve is not installed: pip install 'undivided[ray-serve]'")
        # Ray would start a process for each of its processors before any is needed.
        os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
        ray = connect_ray(config.ray, config.replicas * threads) if not _is_connected() else None
        from ray import serve

        if ray is not None:
            logging.getLogger("ray.serve").setLevel(logging.ERROR)
            serve.start(proxy_location="Disabled")
            # What a server at this port left behind when it was killed.
            for name in serve.status().applications:
                if name.startswith(_prefix(config)):
                    serve.delete(name, _blocking=False)
        return serve


def _is_connected() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def disconnect() -> None:
    """Leave the cluster; one that was started for this process ends."""
    if _is_connected():
        import ray

        ray.shutdown()


def _prefix(config: ServeConfig) -> str:
    """How the names of this server's applications begin."""
    return f"undivided-{platform.node()}-{config.port or os.getpid()}-"


def start_replicas(job: ReplicaJob, name: str, config: ServeConfig) -> Replicas:
    """Start the replicas of a model, and wait until they have loaded it."""
    threads, is_local = max(1, job.threads), config.ray == LOCAL
    serve = connect(config, threads)
    # On this machine nothing is reserved, or there would be no room for new replicas beside the old ones when models are reloaded.
    options = {"num_cpus": 0 if is_local else threads, "num_gpus": 1 if job.device.startswith("cuda") else 0}
    deployment = serve.deployment(
        Replica,
        name="translate",
        num_replicas=config.replicas,
        max_ongoing_requests=LANES,
        ray_actor_options=options,
    )
    full_name, found, faults = _prefix(config) + name, list[Any](), list[Exception]()

    def run() -> None:
        try:
            found.append(serve.run(deployment.bind(job, is_local), name=full_name, route_prefix=None))
        except Exception as error:  # Ray Serve has no exception of its own for a replica that does not start.
            faults.append(error)

    starting = threading.Thread(target=run, daemon=True)
    starting.start()
    starting.join(START_SECONDS)
    if not found:
        serve.delete(full_name, _blocking=False)
        why = f": {faults[0]}" if faults else f" within {START_SECONDS:g} s; does the cluster have the processors?"
        raise UndividedError(f"--ray {config.ray}: the replicas of {job.folder} did not start{why}")
    return Replicas(found[0], full_name, config)
