"""A load generator for `undivided serve`, as a process of its own: it sends sentences, times and keeps every answer.

    python benchmarks/load.py < job.json > answers.json

Closed loop (`clients`): each client sends its next sentence when it has the answer to the last. Open loop (`rate`): sentences are
sent at random moments at that rate, however long answers take, as people do.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import time
from collections import deque
from typing import Any

CONNECTIONS = 900
"""Most connections at once in an open loop."""


class Connection:
    """One connection that is kept alive."""

    def __init__(self, port: int) -> None:
        self.port, self.reader, self.writer = port, None, None
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, body: bytes, path: str) -> tuple[int, bytes, dict[bytes, bytes]]:
        if self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert self.reader is not None
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        try:
            lines = (await self.reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:]) if name}
            found = await self.reader.readexactly(int(headers[b"content-length"]))
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise
        if headers.get(b"connection") == b"close":
            self.close()
        return int(lines[0].split()[1]), found, headers

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


class Load:
    """All that was asked and answered: [sentence, status or −1, text, sent, seconds]."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.answers = job, list[list[Any]]()
        self.bodies = [
            json.dumps({"q": text, "source": "en", "target": "de"} | job.get("more", {})).encode() for text in job["sentences"]
        ]
        self.port = job["port"]

    async def send(self, connection: Connection, number: int) -> None:
        sent = time.time()
        try:
            status, body, _ = await connection.ask(self.bodies[number], self.job.get("path", "/translate"))
        except (OSError, asyncio.IncompleteReadError):
            status, body = -1, b"{}"
        text = "" if not self.job.get("keep", True) else json.loads(body).get("translatedText", "") if status == 200 else ""
        self.answers.append([number, status, text, sent, time.time() - sent])

    async def closed(self) -> None:
        """Each of `clients` sends sentence after sentence until `count` are sent or `seconds` are over."""
        numbers = itertools.count()
        most, until = self.job.get("count", 1 << 60), time.time() + self.job.get("seconds", 1e9)

        async def client() -> None:
            connection = Connection(self.port)
            while (number := next(numbers)) < most and time.time() < until:
                await self.send(connection, number % len(self.bodies))
                if self.answers[-1][1] < 0:
                    await asyncio.sleep(0.05)
            connection.close()

        await asyncio.gather(*(client() for _ in range(self.job["clients"])))

    async def open(self) -> None:
        """Poisson arrivals at `rate` for `seconds`."""
        chance, free, tasks = random.Random(1), deque[Connection](), set[asyncio.Task[None]]()
        started, due, numbers = time.monotonic(), 0.0, itertools.count()

        async def one(number: int) -> None:
            connection = free.popleft() if free else Connection(self.port)
            await self.send(connection, number)
            free.append(connection)

        while due < self.job["seconds"]:
            due += chance.expovariate(self.job["rate"])
            await asyncio.sleep(max(0.0, started + due - time.monotonic()))
            while len(tasks) >= CONNECTIONS:
                await asyncio.sleep(0.005)
            task = asyncio.create_task(one(next(numbers) % len(self.bodies)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        for connection in free:
            connection.close()


def main() -> None:
    load = Load(json.loads(sys.stdin.read()))
    started = time.time()
    asyncio.run(load.open() if "rate" in load.job else load.closed())
    print(json.dumps({"answers": load.answers, "seconds": time.time() - started}))


if __name__ == "__main__":
    main()
