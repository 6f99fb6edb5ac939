"""Bad clients against a server, and a fuzzer with its description."""

from __future__ import annotations

import json
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from measure import table

HEAD = "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{}\r\n"


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def slow_headers(port: int) -> str:
    """400 connections that send a header line now and then."""
    open_ones = [connect(port) for _ in range(400)]
    closed = 0
    for connection in open_ones:
        connection.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\n")
    deadline = time.time() + 8
    while open_ones and time.time() < deadline:
        for connection in list(open_ones):
            try:
                connection.sendall(b"X: y\r\n")
            except OSError:
                open_ones.remove(connection)
                closed += 1
        time.sleep(0.3)
    return f"{closed} of 400 closed within 8 s"


def half_closed(port: int) -> str:
    """300 connections that are closed on one side within a body."""
    for _ in range(300):
        with connect(port) as connection:
            connection.sendall(HEAD.format("/translate", "Content-Length: 100\r\n").encode() + b'{"q":')
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(10)
            connection.recv(1000)
    return "all ended"


def large_body(port: int) -> str:
    """100 MB with their length said."""
    return _send(port, "Content-Length: 100000000\r\n", b"a" * 65536, 1526)


def chunked_body(port: int) -> str:
    """100 MB in chunks, without a length."""
    return _send(port, "Transfer-Encoding: chunked\r\n", b"10000\r\n" + b"a" * 65536 + b"\r\n", 1526)


def _send(port: int, length: str, part: bytes, count: int) -> str:
    sent = 0
    with connect(port) as connection:
        connection.sendall(HEAD.format("/translate", length).encode())
        try:
            for _ in range(count):
                connection.sendall(part)
                sent += len(part)
        except OSError:
            pass
        try:
            status = connection.recv(1000).split(b" ")[1].decode()
        except (OSError, IndexError):
            status = "reset"
    return f"{status} after {sent / 1e6:.1f} MB"


def bodies(port: int) -> str:
    """Invalid UTF-8, deep JSON, huge lists, 200 times each."""
    found: dict[int, int] = {}
    wrong = [b'{"q": "\xff\xfe"}', b'{"q":' + b"[" * 200_000, b'{"q":' + b"[" * 90_000 + b"]" * 90_000 + b"}"]
    wrong += [json.dumps({"q": ["a"] * 150_000, "source": "en", "target": "de"}).encode()]
    for body in wrong * 200:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/translate", body, {"Content-Type": "application/json"})
        try:
            status = urllib.request.urlopen(request, timeout=60).status
        except urllib.error.HTTPError as error:
            status = error.code
            error.close()
        found[status] = found.get(status, 0) + 1
    return f"by status: {found}"


ATTACKS: dict[str, Callable[[int], str]] = {
    "400 slow headers": slow_headers, "300 half-closed": half_closed, "100 MB": large_body, "100 MB, chunked": chunked_body,
    "800 bad bodies": bodies,
}  # fmt: skip


def attack(server: Any) -> list[str]:
    """Each attack, and how soon /health answers meanwhile."""
    rows = []
    for name, work in ATTACKS.items():
        result: list[str] = []
        thread = threading.Thread(target=lambda work=work, result=result: result.append(work(server.port)))
        thread.start()
        times = []
        while thread.is_alive() or len(times) < 20:
            started = time.time()
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health", timeout=60) as answer:
                assert answer.status == 200
            times.append(time.time() - started)
            time.sleep(0.02)
        thread.join()
        p99 = sorted(times)[int(len(times) * 0.99) - 1]
        rows.append([name, result[0], f"{1000 * statistics.median(times):.0f}", f"{1000 * p99:.0f}", f"{1000 * max(times):.0f}"])
    heading = ["attack", "what became of it", "/health, median ms", "p99 ms", "worst ms"]
    return [
        "## Bad clients",
        "",
        "The client that asks for /health and the attacker share the machine with the server.",
        "",
        *table(heading, rows),
        "",
    ]


def fuzz(server: Any, cases: int) -> list[str]:
    """schemathesis, until it has made so many cases."""
    total, failures, seed, summary = 0, 0, 1, ""
    while total < cases:
        program = [sys.executable, "-c", "import schemathesis.cli as c; c.schemathesis()"]
        command = [*program, "run", f"http://127.0.0.1:{server.port}/spec"]
        command += [
            "--max-examples",
            "300",
            "--seed",
            str(seed),
            "--no-color",
            "--exclude-checks",
            "positive_data_acceptance",
            "--no-shrink",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
        found = re.search(r"([\d,]+) generated(?:, ([\d,]+) found)?", done.stdout)
        if found is None:
            raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])
        total += int(found[1].replace(",", ""))
        failures += int((found[2] or "0").replace(",", ""))
        summary = done.stdout[-3000:] if found[2] else summary
        seed += 1
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        faults = re.findall(r'status="5\d\d"} \d+', answer.read().decode())
    said = f"{total:,} cases over {seed - 1} seeds, all checks but that each request that fits the schema is accepted (it cannot "
    said += f"say which file can be read): {failures} with a failure. Answers of 500 and above: {faults or 'none'}."
    return ["## schemathesis", "", said, "", *(["```", summary, "```", ""] if summary else [])]
