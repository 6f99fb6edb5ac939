"""`undivided serve` under load: every answer is checked.

    python benchmarks/serve.py [--parts throughput overload memory …] [--overload-seconds 600] [--memory-requests 200000] …

Models: of the paper's base size with random weights (nothing else is needed to make it, and no two sentences have the same
translation), and a tiny one, trained in a moment, where the number of requests matters. Times are of a machine that does other
work too, so what is compared is measured in turns, and processor time is given beside it. Writes docs/serve.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import measure
import serve_attacks
import serve_peers
import translate as translate_benchmark
from measure import OURS, ROOT, table
from serve_models import BEAM, make_base, make_slow, make_tiny

from undivided import Translator

sys.path.insert(0, str(ROOT / "tests"))
from samples import sentences

PARTS = ["throughput", "answers", "overload", "libretranslate", "memory", "stop", "kill", "hostile", "schema"]
DURATIONS = {"overload_seconds": 600.0, "memory_requests": 200_000, "schema_cases": 10_000}
"""What the claims ask for."""


class Server:
    """A server of ours as a process."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "undivided", "serve", *arguments, "--port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=measure.our_environment())
        self.log: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if found := re.search(r"serving at http://[\d.]+:(\d+)/", line):
                self.port = int(found[1])
                break
        else:
            raise SystemExit("".join(self.log))
        threading.Thread(target=lambda: self.log.extend(self.process.stderr or ()), daemon=True).start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> float:
        """Megabytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def start_load(port: int, texts: list[str], **job: Any) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "load.py")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps({"port": port, "sentences": texts} | job))
    process.stdin.close()
    process.stdin = None
    return process


def finish_load(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate()
    return json.loads(out)


class Known:
    """All translations that the engine gives of each sentence: alone, as a file, and in batches put together at random."""

    def __init__(self, model: Path, texts: list[str], batches: int = 2, engine: str = "auto") -> None:
        self.texts, self.translator = texts, Translator(model, engine=engine)
        self.sets: list[set[str]] = [set() for _ in texts]
        chance = random.Random(1)
        for _ in range(batches):
            order = list(range(len(texts)))
            chance.shuffle(order)
            start = 0
            while start < len(order):
                some = order[start : start + chance.choice((1, 4, 16, 32, 64))]
                for place, found in zip(some, self.translator.stream([texts[place] for place in some]), strict=True):
                    self.sets[place].add(found.text)
                start += len(some)

    def check(self, answers: list[list[Any]]) -> dict[str, int]:
        """Answers by what they are: known for this sentence, another sentence's (swapped), or never seen."""
        owners = {text: place for place, texts in enumerate(self.sets) for text in texts}
        found = Counter[str]()
        for number, status, text, *_ in answers:
            if status != 200:
                found[f"status {status}" if status > 0 else "lost"] += 1
            elif text in self.sets[number]:
                found["right"] += 1
            elif owners.get(text, number) != number:
                found["swapped"] += 1
            else:
                found["never seen"] += 1
        return dict(found)

    @property
    def varying(self) -> int:
        """Sentences of which other batches give other translations."""
        return sum(len(each) > 1 for each in self.sets)


def percentile(answers: list[list[Any]], share: float, status: int = 200) -> float:
    times = sorted(each[4] for each in answers if each[1] == status)
    return times[min(len(times) - 1, int(len(times) * share))] if times else float("nan")


QUICK = ("--req-limit", "-1", "--cache-characters", "0")
ROOMY = (*QUICK, "--queue-requests", "1000", "--queue-seconds", "600", "--request-timeout", "600")
"""With room for all clients of a closed loop, however slow the machine is."""


def throughput(base: Path, texts: list[str], options: argparse.Namespace) -> list[str]:
    """64 clients, one client, the engine without a server one at a time, and the same sentences as a file, in turns."""
    known = Known(base, texts, engine=options.engine)
    rates: dict[str, list[float]] = {"one at a time": [], "as a file": [], "1 client": [], "64 clients": []}
    costs: dict[str, list[float]] = {name: [] for name in rates}
    checked = Counter[str]()
    some = texts[: max(8, len(texts) // 8)]
    with Server(str(base), *ROOMY, "--engine", options.engine) as server:
        finish_load(start_load(server.port, texts[:64], clients=64, count=64))
        for _ in range(options.rounds):
            for name, count, work in (
                ("one at a time", len(some), lambda: [known.translator.translate(text) for text in some]),
                ("as a file", len(texts), lambda: list(known.translator.stream(texts))),
            ):
                started, cost = time.time(), time.process_time()
                work()
                rates[name].append(count / (time.time() - started))
                costs[name].append((time.process_time() - cost) / count)
            for name, clients, count in (("1 client", 1, len(some)), ("64 clients", 64, len(texts))):
                cost = server.processor_seconds()
                done = finish_load(start_load(server.port, texts, clients=clients, count=count))
                rates[name].append(count / done["seconds"])
                costs[name].append((server.processor_seconds() - cost) / count)
                checked.update(known.check(done["answers"]))
    middle = {name: statistics.median(each) for name, each in rates.items()}
    ratio = {name: statistics.median(a / b for a, b in zip(rates["64 clients"], each, strict=True)) for name, each in rates.items()}
    rows = [[name, f"{middle[name]:.1f}", f"{1000 * statistics.median(costs[name]):.0f}", f"{ratio[name]:.2f}"] for name in rates]
    return [
        f"## Single sentences of 64 clients{'' if options.engine == 'auto' else f', --engine {options.engine}'}", "",
        f"{len(texts)} sentences of Multi30k, base size with weights that copy the source, engine "
        f"{known.translator.engine.name}, {options.rounds} rounds in turns; "
        "medians. “One at a time” is `Translator.translate` in a process of its own, without HTTP; “as a file” is what "
        "`undivided translate` does with it; “1 client” asks the same server as the 64. It has room for all of them "
        f"(`{' '.join(ROOMY)}`). The generator runs on the same cores.", "",
        *table(["", "sentences/s", "processor ms a sentence", "64 clients are … times as fast"], rows), "",
        f"Answers: {describe(checked)}. {known.varying} sentences have more than one translation, depending on their batch.", "",
    ]  # fmt: skip


def describe(found: dict[str, int] | Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(found.items())) or "none"


def answers(tiny: Path, options: argparse.Namespace) -> list[str]:
    """A trained model: 64 clients get what the file gets, to the letter, whoever shares their batches."""
    base = list(dict.fromkeys(source for source, _ in sentences(400, seed=5)))
    texts = [f"{base[number % len(base)]} {base[number // len(base) % len(base)]}" for number in range(options.answers)]
    texts = list(dict.fromkeys(texts))
    known = Known(tiny, texts, options.rounds)
    with Server(str(tiny), *ROOMY) as server:
        done = finish_load(start_load(server.port, texts, clients=64, count=len(texts)))
    return [
        "## Answers of a trained model", "",
        f"{len(texts):,} sentences by 64 clients, without a cache: {describe(known.check(done['answers']))}. In "
        f"{options.rounds} ways to put them into batches, {known.varying} have more than one translation.", "",
    ]  # fmt: skip


def overload(slow: Path, options: argparse.Namespace) -> list[str]:
    """80 % of what the server can, then ten times as much as it can."""
    base = list(dict.fromkeys(source for source, _ in sentences(400, seed=5)))
    # Four sentences in each text: what is measured is the queue, not how many requests Python can read.
    texts = [" ".join(base[(number + 1) * each % len(base)] for each in (1, 3, 5, 7)) for number in range(len(base))]
    known = Known(slow, texts)
    with Server(str(slow), *QUICK) as server:
        finish_load(start_load(server.port, texts, clients=20, seconds=options.steady_seconds / 8))  # The rate is learned.
        closed = finish_load(start_load(server.port, texts, clients=20, seconds=options.steady_seconds / 4))
        capacity = sum(each[1] == 200 for each in closed["answers"]) / closed["seconds"]
        runs = {}
        for name, share, seconds in (("80 %", 0.8, options.steady_seconds), ("10 times", 10.0, options.overload_seconds)):
            runs[name] = finish_load(start_load(server.port, texts, rate=share * capacity, seconds=seconds))
    rows = []
    for name, run in runs.items():
        found = run["answers"]
        times = [f"{percentile(found, share):.2f}" for share in (0.5, 0.99)]
        rows.append([name, f"{len(found):,}", describe(known.check(found)), *times, f"{percentile(found, 0.99, 429):.3f}"])
    ratio = percentile(runs["10 times"]["answers"], 0.99) / percentile(runs["80 %"]["answers"], 0.99)
    return [
        "## Overload", "",
        f"Open loop; the tiny model with a beam of {BEAM}, engine {known.translator.engine.name}, default limits but those of "
        f"rates. 20 clients in a closed loop reached {capacity:.1f} texts of four sentences a second just before. 80 % of it for "
        f"{options.steady_seconds:g} s, then ten times as much as it for {options.overload_seconds:g} s.", "",
        *table(["load", "requests", "answers", "p50 of 200, s", "p99 of 200, s", "p99 of 429, s"], rows), "",
        f"p99 of the accepted is {ratio:.2f} times that at 80 %.", "",
    ]  # fmt: skip


def memory(tiny: Path, options: argparse.Namespace) -> list[str]:
    """Many requests, each with a text of its own, and the memory of the server meanwhile."""
    step = max(1000, options.memory_requests // 20)
    base = [source for source, _ in sentences(500, seed=3)]
    seen: list[tuple[int, float]] = []
    statuses = Counter[int]()
    with Server(str(tiny), "--req-limit", "-1", "--cache-characters", "400000") as server:
        for start in range(0, options.memory_requests, step):
            texts = [f"{base[number % 500]} {base[number // 500 % 500]}" for number in range(start, start + step)]
            done = finish_load(start_load(server.port, texts, clients=32, count=step, keep=False))
            statuses.update(each[1] for each in done["answers"])
            seen.append((start + step, server.resident()))
    later = seen[len(seen) // 4 :]
    slope = (later[-1][1] - later[0][1]) / max(1, later[-1][0] - later[0][0]) * 10_000
    rows = [[f"{count:,}", f"{size:.1f}"] for count, size in seen[:: max(1, len(seen) // 8)]]
    return [
        "## Memory", "", f"{options.memory_requests:,} requests with different texts, tiny model, a cache of 400,000 characters. "
        f"Answers by status: {dict(statuses)}.", "", *table(["requests", "resident MB"], rows), "",
        f"Growth after the first quarter: {slope:.3f} MB for 10,000 requests.", "",
    ]  # fmt: skip


def stop(tiny: Path, options: argparse.Namespace) -> list[str]:
    """SIGTERM under load."""
    texts = [source for source, _ in sentences(400, seed=4)]
    with Server(str(tiny), *QUICK) as server:
        load = start_load(server.port, texts, clients=32, seconds=6)
        time.sleep(3)
        told = time.time()
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(60)
        seconds = time.time() - told
        answers = finish_load(load)["answers"]
    before = Counter(each[1] for each in answers if each[3] < told)
    after = Counter("answered" if each[1] > 0 else "not accepted" for each in answers if each[3] >= told)
    return [
        "## SIGTERM", "", f"32 clients; exit code {code} after {seconds:.1f} s. Requests sent before the signal, by status: "
        f"{dict(before)}; sent after it: {describe(after)}.", "",
    ]  # fmt: skip


def kill(tiny: Path, options: argparse.Namespace) -> list[str]:
    """kill -9 of one of two workers under load."""
    texts = [source for source, _ in sentences(400, seed=4)]
    with Server(str(tiny), *QUICK, "--workers", "2", "--threads", "1") as server:
        pid = server.process.pid
        worker = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        load = start_load(server.port, texts, clients=32, seconds=10)
        time.sleep(4)
        os.kill(worker, signal.SIGKILL)
        answers = finish_load(load)["answers"]
        said = [line.strip() for line in server.log if "ended with signal 9" in line]
    found = Counter("lost" if each[1] < 0 else f"status {each[1]}" for each in answers)
    return [
        "## kill -9 of a worker",
        "",
        f"32 clients, two workers: {describe(found)}. The server said: “{said[0] if said else ''}”",
        "",
    ]


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--sentences", type=int, default=512)
    parser.add_argument("--answers", type=int, default=5000, help="sentences of the part of that name")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", default="auto", help="of the part throughput")
    parser.add_argument("--schema-seconds", type=float, default=3600, help="schemathesis starts no other round after so long")
    parser.add_argument("--models", type=Path, help="a folder in which the models are kept for another run")
    parser.add_argument("--steady-seconds", type=float, default=120)
    for name, value in DURATIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    parser.add_argument("--report", default=str(ROOT / "docs" / "serve.md"))
    return parser.parse_args()


def run_part(part: str, home: Path, base: Path, tiny: Path, options: argparse.Namespace) -> list[str]:
    """The section of one part, with how and when it was made."""
    if part == "throughput":
        lines = throughput(base, translate_benchmark.some_sentences(home, options.sentences), options)
    elif part == "overload":
        lines = overload(home / "slow" if (home / "slow").exists() else make_slow(home, tiny), options)
    elif part == "libretranslate":
        texts = [source for source, _ in sentences(options.sentences, seed=6)]
        lines = serve_peers.compare(
            tiny,
            texts,
            options.rounds,
            lambda: Server(str(tiny), *ROOMY),
            lambda *job, **more: finish_load(start_load(*job, **more)),
        )
    elif part in ("hostile", "schema"):
        more = ["--suggestions", "--suggestions-file", str(home / "s.tmx")]
        with Server(str(tiny), "--req-limit", "-1", "--body-timeout", "3", *more) as server:
            lines = (
                serve_attacks.attack(server)
                if part == "hostile"
                else serve_attacks.fuzz(server, options.schema_cases, options.schema_seconds)
            )
    else:
        lines = {"answers": answers, "memory": memory, "stop": stop, "kill": kill}[part](tiny, options)
    places = {"--models", str(options.models), "--report", options.report}
    command = " ".join(["python benchmarks/serve.py", *(word for word in sys.argv[1:] if word not in places)])
    busy = f"{os.getloadavg()[1]:.0f} processes wanted its {os.cpu_count()} cores"
    return [*lines, f"*Written by `{command}` on {time.strftime('%Y-%m-%d')}, while {busy}.*", ""]


def read_sections(path: Path) -> dict[str, list[str]]:
    """The sections of an earlier report, by heading: a part that is run alone leaves the others as they are."""
    sections: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith("## "):
            sections[line] = []
        if sections:
            list(sections.values())[-1].append(line)
    return sections


INTRO = """# The server under load

By `make prove-serve`; each section says how it was made (`make prove-serve SERVE="--parts overload --overload-seconds 600"`
makes one again). Every answer is compared with all translations that the engine gives of that very sentence, alone and in
batches put together at random: *right* is one of them, *swapped* is another sentence's; *never seen* is neither; *lost* is no
answer. The machine does other work too: what is
compared was measured in turns. The full durations are the defaults of the script: ten minutes of overload, 200,000 requests for
memory, 10,000 cases of schemathesis; a section says what it had."""


def main() -> None:
    options = parse_options()
    path = Path(options.report)
    with tempfile.TemporaryDirectory(prefix="undivided-prove-serve-") as folder:
        home = options.models or Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        base = home / "base"
        if "throughput" in options.parts and not base.exists():
            make_base(home)
        tiny = home / "tiny" if (home / "tiny" / "manifest.json").exists() else make_tiny(home)
        for part in options.parts:
            print(f"{OURS}: {part} …", file=sys.stderr, flush=True)
            lines = run_part(part, home, base, tiny, options)
            print("\n".join(lines), flush=True)
            sections = read_sections(path) | {lines[0]: lines}
            text = (
                "\n".join(
                    [INTRO, "", *(line for each in sections.values() for line in ([*each, ""] if each[-1] else each))]
                ).rstrip()
                + "\n"
            )
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
