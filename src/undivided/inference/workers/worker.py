"""A worker translates one shard after the other, each into a file that appears whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from undivided.config import CHUNK_LINES
from undivided.core import manifest
from undivided.core.errors import InputError, describe_error
from undivided.core.files import open_atomic, sha256_of, write_atomic
from undivided.data.text_files import decode_lines
from undivided.inference.engines.choice import is_cpu_only
from undivided.inference.lines import describe_problems, format_line
from undivided.inference.translator import Translator
from undivided.inference.workers.shards import Job, Shard

MAX_WARNINGS = 20
"""Warnings that a shard keeps; further ones are counted."""


class Worker:
    """A translator for the shards of one job."""

    def __init__(self, job: Job, slot: int = 0) -> None:
        self.job = job
        self.translator = Translator(job.model, _device(job.device, slot), job.threads, job.engine, trust=job.trust)
        if sha256_of(manifest.current_folder(Path(job.model)) / manifest.NAME) != job.model_sha256:
            raise InputError(f"{job.model}: the model changed while it was in use; run the command again")

    def translate(self, shard: Shard, advance: Callable[[int], None] = lambda count: None) -> None:
        """Translate a shard; its marker is written after its file."""
        folder, sha256, warnings = Path(self.job.folder), hashlib.sha256(), KeptWarnings()
        with open_atomic(shard.path(folder)) as stream:
            for text in self._texts(shard, warnings, advance):
                content = text.encode("utf-8")
                sha256.update(content)
                stream.write(content)
        facts = {"sha256": sha256.hexdigest(), "lines": shard.lines, "remarks": warnings.kept, "more": warnings.more}
        write_atomic(shard.marker(folder), json.dumps(facts).encode())

    def _texts(self, shard: Shard, warnings: KeptWarnings, advance: Callable[[int], None]) -> Iterator[str]:
        """What is written for each line. Whole chunks go through the translator, so that batches are the same in any run."""
        lines = decode_lines(self.job.lines(shard, 0), self.job.files[0], warnings.add, shard.first)
        prefixes = self._prefixes(shard)
        n_best, number = self.job.search.get("n_best", 1), shard.first
        while chunk := list(islice(lines, CHUNK_LINES)):
            begins = None if prefixes is None else list(islice(prefixes, len(chunk)))
            for result in self.translator.stream(chunk, begins, advance, number, **self.job.search):
                number += 1
                for problem in describe_problems(number, result, self.translator.judge(result)):
                    warnings.add(problem)
                yield format_line(number, result, self.job.scores, n_best)

    def _prefixes(self, shard: Shard) -> Iterator[str] | None:
        if len(self.job.files) < 2:
            return None

        def refuse(text: str) -> None:
            raise InputError(f"{self.job.files[1]}, {text.partition(',')[0]}")

        return decode_lines(self.job.lines(shard, 1), self.job.files[1], refuse, shard.first)


class KeptWarnings:
    """The first warnings on a shard, and the number of the others."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.more = 0

    def add(self, text: str) -> None:
        """Keep a warning, or count it."""
        if len(self.kept) < MAX_WARNINGS:
            self.kept.append(text)
        else:
            self.more += 1


def _device(name: str, slot: int) -> str:
    """Workers take turns with the GPUs of a machine."""
    if ":" in name or is_cpu_only(name):
        return name
    import torch

    from undivided.nn.device import choose_device

    if choose_device(name).type != "cuda":
        return name
    return f"cuda:{slot % torch.cuda.device_count()}"


def attempt(action: Callable[[], None]) -> dict[str, Any]:
    """Run an action; an error that was foreseen becomes a message and an exit code."""
    try:
        action()
        return {}
    except Exception as error:
        known = describe_error(error)
        if known is None:
            raise
        return {"failed": known[0], "code": known[1]}


def main() -> None:
    """A worker process: reads a job and then shards as lines of JSON from stdin, and reports in lines of JSON on stdout."""
    # Ctrl-C reaches every process of a terminal; only the coordinator reacts to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests = _read_requests()

    def report(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    made: list[Worker] = []
    start = requests.get()
    failed = attempt(lambda: made.append(Worker(Job(**start["job"]), start["slot"])))
    report(**failed or {"ready": True})
    while not failed:
        shard = Shard(**requests.get())
        failed = attempt(lambda: made[0].translate(shard, lambda count: report(lines=count)))  # noqa: B023
        report(**failed or {"done": shard.number})


def _read_requests() -> queue.Queue[dict[str, Any]]:
    """What stdin brings, read by a thread that ends the process when the coordinator is gone."""
    requests: queue.Queue[dict[str, Any]] = queue.Queue()

    def read() -> None:
        with open(0, encoding="utf-8", closefd=False) as stream:
            for line in stream:
                requests.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return requests


if __name__ == "__main__":
    main()
