"""Workers as actors of a Ray cluster (the extra `ray`)."""

from __future__ import annotations

import logging
import os
import secrets
import sys
from collections import deque
from typing import Any

from undivided.core.errors import InputError, UndividedError
from undivided.inference.workers.process_pool import Event
from undivided.inference.workers.shards import Job, Shard, as_json
from undivided.inference.workers.worker import Worker, attempt

LOCAL = "local"
"""The address of a cluster that is started on this machine, for this process."""

STARTS = 2
"""Times that it is tried: Ray gives itself half a minute, which on a busy machine may be too little the first time."""


class Actor:
    """One worker, on any machine of the cluster; the model, the text and the folder of shards have the same paths on all."""

    def __init__(self, job: dict[str, Any], slot: int) -> None:
        made: list[Worker] = []
        self.failed = attempt(lambda: made.append(Worker(Job(**job), slot)))
        self.worker = made[0] if made else None

    def translate(self, shard: dict[str, Any]) -> dict[str, Any]:
        """Translate a shard: its number, or what went wrong."""
        worker = self.worker
        if worker is None:
            return self.failed
        return attempt(lambda: worker.translate(Shard(**shard))) or {"done": shard["number"]}


class RayPool:
    """Workers of a Ray cluster, or of one that is started on this machine for this job (`LOCAL`)."""

    def __init__(self, job: Job, address: str, workers: int) -> None:
        self.job, self.ray = job, connect_ray(address, workers * max(1, job.threads))
        self.size = workers or int(self.ray.cluster_resources().get("CPU", 1)) // max(1, job.threads) or 1
        self._actors: dict[int, Any] = {}
        self._under_way: dict[Any, int] = {}
        self._ready: deque[Event] = deque()

    def start(self, slot: int) -> None:
        """Start a new actor in a slot; it loads the model before its first shard."""
        gpus = 1 if self.job.device.startswith("cuda") else 0
        actor = self.ray.remote(Actor).options(num_cpus=max(1, self.job.threads), num_gpus=gpus, max_restarts=0)
        self._actors[slot] = actor.remote(as_json(self.job), slot)
        self._ready.append(Event(slot, ready=True))

    def assign(self, slot: int, shard: Shard) -> None:
        """Let an actor translate a shard."""
        self._under_way[self._actors[slot].translate.remote(as_json(shard))] = slot

    def poll(self, seconds: float) -> list[Event]:
        """What happened, after waiting for it at most so long."""
        if self._ready:
            return [self._ready.popleft()]
        finished, _ = self.ray.wait(list(self._under_way), timeout=seconds) if self._under_way else ([], [])
        return [self._event(future, self._under_way.pop(future)) for future in finished]

    def _event(self, future: Any, slot: int) -> Event:
        try:
            return Event(slot, **self.ray.get(future))
        except self.ray.exceptions.RayError as error:
            lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
            self.ray.kill(self._actors[slot])
            return Event(slot, dead=f"{type(error).__name__}: {lines[-1].strip()}")

    def stop(self) -> None:
        """End all actors and disconnect."""
        for actor in self._actors.values():
            self.ray.kill(actor)
        self.ray.shutdown()


def connect_ray(address: str, processors: int) -> Any:
    """Connect to a Ray cluster; `local` starts one here, reachable from this machine only and without its dashboard."""
    # Ray sends usage statistics unless this is set.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == LOCAL:
        # Without this Ray 2.60 listens on every network interface, whatever address it is given. Read when Ray is imported.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        # Ray starts workers with niceness 15: on a machine that does anything else they would hardly run.
        os.environ.setdefault("RAY_worker_niceness", "0")
        # Other users of this machine reach its ports, too. Read when Ray is imported: later, its own parts would disagree.
        if "ray" not in sys.modules and os.environ.setdefault("RAY_AUTH_MODE", "token") == "token":
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray
    except ImportError:
        raise InputError("Ray is not installed: pip install ray") from None
    if address == LOCAL:
        from ray._private import ray_constants

        # The setting above, for a program that had imported Ray before.
        ray_constants.ENABLE_RAY_CLUSTER = False
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        common |= {"num_cpus": processors or None, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    fault: Exception | None = None
    for _ in range(STARTS if address == LOCAL else 1):
        try:
            ray.init(address=address, **common)
            return ray
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise InputError(f"--ray {address}: cannot be reached: {error}") from None
        except Exception as error:
            # A cluster that does not come up in time, on a busy machine, is a bare Exception of Ray's.
            ray.shutdown()
            fault = error
    raise UndividedError(f"--ray {address}: Ray did not start: {fault}")
