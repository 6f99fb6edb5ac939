"""Bad clients against a server, and a fuzzer with its description.

python benchmarks/serve_attacks.py ATTACK PORT   one attack, as a process of its own
"""

from __future__ import annotations

import json
import re
import socket
import statistics
import subprocess
import sys
import tempfile
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
    """Invalid UTF-8, deep JSON, huge lists and objects, forms of nothing but signs, 50 times each."""
    found: dict[int, int] = {}
    wrong = [b'{"q": "\xff\xfe"}', b'{"q":' + b"[" * 200_000, b'{"q":' + b"[" * 90_000 + b"]" * 90_000 + b"}"]
    wrong += [
        json.dumps({"q": ["a"] * 150_000, "source": "en", "target": "de"}).encode(),
        b'{"q": "' + b"\\ud800" * 160_000 + b'"}',
    ]
    wrong += [b"{" + b",".join(b'"%d":0' % number for number in range(80_000)) + b"}", b'{"q":[' + b"{}," * 300_000 + b"1]}"]
    forms = [b"&" * 900_000, b"a&" * 450_000, b"q=" + b"%41" * 300_000]
    kinds = ["application/json", "application/x-www-form-urlencoded"]
    paths = ["translate", "v1/translate", "v1/chat/completions"]
    for number, body in enumerate((wrong + forms) * 50):
        url = f"http://127.0.0.1:{port}/{paths[number // 10 % 3] if body in wrong else 'translate'}"
        request = urllib.request.Request(url, body, {"Content-Type": kinds[body in forms]})
        try:
            status = urllib.request.urlopen(request, timeout=60).status
        except urllib.error.HTTPError as error:
            status = error.code
            error.close()
        found[status] = found.get(status, 0) + 1
    return f"by status: {found}"


ATTACKS: dict[str, Callable[[int], str]] = {
    "400 slow headers": slow_headers, "300 half-closed": half_closed, "100 MB": large_body, "100 MB, chunked": chunked_body,
    "500 bad bodies": bodies,
}  # fmt: skip


def attack(server: Any) -> list[str]:
    """Each attack, and how soon /health answers meanwhile."""
    rows = []
    for name in ("", *ATTACKS):
        # In a process of its own, so that the client that asks for /health waits for the server alone.
        command = [sys.executable, __file__, name, str(server.port)] if name else ["sleep", "3"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
            times = []
            while attacker.poll() is None or len(times) < 20:
                started = time.time()
                with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health", timeout=60) as answer:
                    assert answer.status == 200
                times.append(time.time() - started)
                time.sleep(0.02)
            result = attacker.stdout.read().strip() if attacker.stdout else ""
        p99 = sorted(times)[int(len(times) * 0.99) - 1]
        times_said = [f"{1000 * each:.0f}" for each in (statistics.median(times), p99, max(times))]
        rows.append([name or "nothing", result, *times_said])
    heading = ["attack", "what became of it", "/health, median ms", "p99 ms", "worst ms"]
    return [
        "## Bad clients",
        "",
        "The client that asks for /health and the attacker share the machine with the server.",
        "",
        *table(heading, rows),
        "",
    ]


FUZZERS = 2
"""Processes of schemathesis at once: it, not the server, is what takes the time."""


def start_fuzzer(port: int, folder: str, seed: int, examples: int) -> subprocess.Popen[str]:
    """schemathesis with a seed; the cases that depend on no seed with the first alone. What it keeps stays in the folder."""
    command = [sys.executable, "-c", "import schemathesis.cli as c; c.schemathesis()", "run", f"http://127.0.0.1:{port}/spec"]
    command += ["--phases", "coverage,fuzzing" if seed == 1 else "fuzzing", "--max-examples", str(examples), "--seed", str(seed)]
    command += ["--no-color", "--no-shrink", "--generation-database", "none", "--request-timeout", "60"]
    command += ["--exclude-checks", "positive_data_acceptance", "--warnings", "off"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def fuzz(server: Any, cases: int, seconds: float) -> list[str]:
    """schemathesis, until it has made so many cases, or so many seconds are over."""
    total, seed, failed, started = 0, 0, list[str](), time.time()
    examples = max(5, min(300, cases // (12 * FUZZERS)))  # Of 18 routes, some have only one case.
    warm = {"q": "a", "source": "en", "target": "de"}
    for path in ("/translate", "/v1/look"):  # What is loaded with the first request takes longer than schemathesis waits.
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.port}{path}", json.dumps(warm).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=120).close()
    with tempfile.TemporaryDirectory(prefix="undivided-fuzz-") as folder:
        while total < cases and time.time() - started < seconds:
            running = [start_fuzzer(server.port, folder, seed + number + 1, examples) for number in range(FUZZERS)]
            for process in running:
                said, _ = process.communicate(timeout=3600)
                found = re.search(r"([\d,]+) generated", said)
                if found is None:
                    raise SystemExit(said[-3000:])
                total += int(found[1].replace(",", ""))
                failed += [said[-3000:]] if process.returncode else []
            seed += FUZZERS
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        faults = re.findall(r'status="5\d\d"} \d+', answer.read().decode())
    said = f"{total:,} cases over {seed} seeds in {time.time() - started:.0f} s, all checks but that each request that fits the "
    said += f"schema is accepted (it cannot say which file can be read): {len(failed)} seeds with a failure. "
    said += f"Answers of 500 and above: {', '.join(faults) or 'none'}."
    return ["## schemathesis", "", said, "", *(["```", failed[0], "```", ""] if failed else [])]


if __name__ == "__main__":
    print(ATTACKS[sys.argv[1]](int(sys.argv[2])))
