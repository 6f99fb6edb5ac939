"""What a worker does: translate the lines of one shard into a file that appears whole or not at all."""

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
from undivided.inference.engines.choice import surely_cpu
from undivided.inference.lines import decoded, remarks, written
from undivided.inference.translator import Translator
from undivided.inference.workers.job import Job, Shard

MOST_REMARKS = 20
"""Remarks that a shard keeps; of more there is a count."""


class Worker:
    """A translator for the shards of one job."""

    def __init__(self, job: Job, slot: int = 0) -> None:
        self.job = job
        self.translator = Translator(job.model, _device(job.device, slot), job.threads, job.engine)
        if sha256_of(manifest.current_folder(Path(job.model)) / manifest.NAME) != job.model_sha256:
            raise InputError(f"{job.model}: the model changed while it was used; begin anew, and let it be")

    def translate(self, shard: Shard, advance: Callable[[int], None] = lambda count: None) -> None:
        """Translate a shard. Its file is there when its marker is."""
        folder, sha256, notes = Path(self.job.folder), hashlib.sha256(), Notes()
        with open_atomic(shard.path(folder)) as stream:
            for text in self._texts(shard, notes, advance):
                content = text.encode("utf-8")
                sha256.update(content)
                stream.write(content)
        facts = {"sha256": sha256.hexdigest(), "lines": shard.lines, "remarks": notes.kept, "more": notes.more}
        write_atomic(shard.marker(folder), json.dumps(facts).encode())

    def _texts(self, shard: Shard, notes: Notes, advance: Callable[[int], None]) -> Iterator[str]:
        """What is written for each line. Whole windows go through the translator, so that batches are the same in any run."""
        lines = decoded(self.job.lines(shard, 0), self.job.files[0], notes.add, shard.first)
        prefixes = self._prefixes(shard)
        n_best, number = self.job.search.get("n_best", 1), shard.first
        while window := list(islice(lines, CHUNK_LINES)):
            begins = None if prefixes is None else list(islice(prefixes, len(window)))
            for result in self.translator.stream(window, begins, advance, number, **self.job.search):
                number += 1
                for remark in remarks(number, result, n_best):
                    notes.add(remark)
                yield written(number, result, self.job.scores, n_best)

    def _prefixes(self, shard: Shard) -> Iterator[str] | None:
        if len(self.job.files) < 2:
            return None

        def complain(text: str) -> None:
            raise InputError(f"{self.job.files[1]}, {text.partition(',')[0]}")

        return decoded(self.job.lines(shard, 1), self.job.files[1], complain, shard.first)


class Notes:
    """The first remarks on a shard, and how many more there were."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.more = 0

    def add(self, text: str) -> None:
        """Keep a remark, or count it."""
        if len(self.kept) < MOST_REMARKS:
            self.kept.append(text)
        else:
            self.more += 1


def _device(name: str, slot: int) -> str:
    """Workers share out the GPUs of a machine among them."""
    if ":" in name or surely_cpu(name):
        return name
    import torch

    from undivided.nn.device import choose_device

    if choose_device(name).type != "cuda":
        return name
    return f"cuda:{slot % torch.cuda.device_count()}"


def attempt(action: Callable[[], None]) -> dict[str, Any]:
    """Do something: nothing to tell, or what a person must be told and the exit code that goes with it."""
    try:
        action()
        return {}
    except Exception as error:
        known = describe_error(error)
        if known is None:
            raise
        return {"failed": known[0], "code": known[1]}


def main() -> None:
    """A worker process: a job and then shards as lines of JSON on stdin, what became of them as lines of JSON on stdout."""
    # Ctrl-C reaches every process of a terminal; only the one that the person started decides what follows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asked = _asked()

    def say(**answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    made: list[Worker] = []
    start = asked.get()
    failed = attempt(lambda: made.append(Worker(Job(**start["job"]), start["slot"])))
    say(**failed or {"ready": True})
    while not failed:
        shard = Shard(**asked.get())
        failed = attempt(lambda: made[0].translate(shard, lambda count: say(lines=count)))  # noqa: B023
        say(**failed or {"done": shard.number})


def _asked() -> queue.Queue[dict[str, Any]]:
    """What comes in, read by a thread that ends the process when nobody is left to work for."""
    asked: queue.Queue[dict[str, Any]] = queue.Queue()

    def read() -> None:
        with open(0, encoding="utf-8", closefd=False) as stream:
            for line in stream:
                asked.put(json.loads(line))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return asked


if __name__ == "__main__":
    main()
