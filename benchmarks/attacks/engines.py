"""Several threads with one model, other numbers of threads, killed workers of a pool and of a Ray cluster."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

from attacks.command import UNDIVIDED, patient, start_forked
from attacks.trial import Attack, Trial, judge
from attacks.world import odd_line


def share_translator(trial: Trial) -> str:
    """Threads that use one `Translator` at once, with texts, searches and scores of their own: each gets what it gets alone."""
    from undivided.inference.translator import Translator

    chance, engine = trial.chance, trial.chance.choice(trial.world.right["engines"])
    translator = Translator(trial.world.model("transformer"), threads=chance.choice([1, 2]), engine=engine)
    jobs = []
    for _ in range(chance.randint(2, 6)):
        lines = [odd_line(chance, 8) for _ in range(chance.randint(1, 30))]
        jobs.append((chance.choice(["translate", "translate", "sample", "score", "stream"]), lines, chance.choice([1, 2, 4])))
    alone = [work(translator, *job) for job in jobs]
    found: list[object] = [None] * len(jobs)

    def run(number: int) -> None:
        time.sleep(random.random() * 0.02)
        try:
            found[number] = [work(translator, *jobs[number]) for _ in range(2)]
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for job, right, got in zip(jobs, alone, found, strict=True):
        if isinstance(got, BaseException):
            raise got
        trial.check(got == [right, right], f"{job[0]} with {engine}: another result beside other threads: {got} instead of {right}")
    return f"{engine}: same results"


def work(translator: object, what: str, lines: list[str], beams: int) -> object:
    from undivided.inference.translator import Translator

    assert isinstance(translator, Translator)
    match what:
        case "sample":
            return translator.translate(lines, sample=True, seed=beams)
        case "score":
            return [[round(each, 3) for each in row] for row in translator.score(lines, lines)]
        case "stream":
            return [each.text for each in translator.stream(iter(lines), beam_size=beams)]
        case _:
            return translator.translate(lines, beam_size=beams)


def other_threads(trial: Trial) -> str:
    """Another number of threads: the same lines, with all engines."""
    from undivided.inference.translator import Translator

    chance, engine = trial.chance, trial.chance.choice([*trial.world.right["engines"], "ctranslate2"])
    lines = [odd_line(chance) for _ in range(chance.choice([50, 300, 1500]))]
    counts = chance.sample([1, 2, 3, 4, 8], 2)
    beam = chance.choice([1, 2, 4])
    model = trial.world.model("transformer")
    first, second = (Translator(model, threads=count, engine=engine).translate(lines, beam_size=beam) for count in counts)
    different = sum(a != b for a, b in zip(first, second, strict=True))
    trial.check(not different, f"{engine}: {different} of {len(lines)} lines differ between {counts} threads")
    return f"{engine}: same lines"


def kill_workers(trial: Trial) -> str:
    """Workers of `--workers` killed while they translate: every line once, in order."""
    chance, world, out = trial.chance, trial.world, trial.folder / "out"
    lines = (world.home / "long").read_text(encoding="utf-8").splitlines()[: chance.choice([1000, 3000])]
    text = trial.folder / "in"
    text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [
        "translate",
        world.model("transformer"),
        text,
        "-o",
        out,
        "--workers",
        "2",
        "--engine",
        "torch",
        "--beam-size",
        "1",
        "-q",
    ]
    running = start_forked(command, trial.folder)
    killed = 0
    for _ in range(chance.randint(1, 2)):
        time.sleep(chance.uniform(0.5, 6))
        workers = find_processes(running.pid, b"undivided")
        if workers:
            os.kill(chance.choice(workers), signal.SIGKILL)
            killed += 1
    ended = judge(running.wait(100))
    trial.check(ended.code == 0, f"exit code {ended.code}: {ended.err[-400:]}")
    trial.check(out.read_text(encoding="utf-8").splitlines() == world.right["long-torch"][: len(lines)], "other lines")
    return f"{killed} killed, same lines"


def find_processes(root: int, word: bytes) -> list[int]:
    """Processes below one, by their command line."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    below, found = {root}, []
    for _ in range(6):
        below |= {pid for pid, parent in parents.items() if parent in below}
    for pid in below - {root}:
        try:
            if word in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return sorted(found)


def kill_ray_workers(trial: Trial) -> str:
    """Workers of a Ray cluster on this machine killed while they translate with a real model."""
    if not has_ray():
        return "skipped: the extra ray is not installed"
    chance, world, out = trial.chance, trial.world, trial.folder / "out"
    command = [
        "translate",
        world.model("transformer"),
        world.home / "long",
        "-o",
        out,
        "--ray",
        "local",
        "--workers",
        "2",
        "--engine",
        "torch",
        "--beam-size",
        "1",
        "-q",
    ]
    killed = 0
    process = subprocess.Popen(
        [*UNDIVIDED, *map(str, command)],
        cwd=trial.folder,
        env=os.environ | {"RAY_TMPDIR": "/tmp", "TMPDIR": "/tmp", "RAY_raylet_start_wait_time_s": "200"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + patient(100)
    for _ in range(chance.randint(1, 3)):
        while (
            process.poll() is None and time.monotonic() < deadline and not any(map(is_actor, find_processes(process.pid, b"ray::")))
        ):
            time.sleep(0.1)
        time.sleep(chance.uniform(0, 3))
        workers = [pid for pid in find_processes(process.pid, b"ray::") if is_actor(pid)]
        if workers and process.poll() is None:
            os.kill(chance.choice(workers), signal.SIGKILL)
            killed += 1
    try:
        _, err = process.communicate(timeout=max(1.0, deadline + 60 - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if not killed and process.returncode == 1 and (b"Raylet" in err or b"did not start" in err):
        return "skipped: Ray did not start in time on this busy machine"
    trial.check(process.returncode == 0, f"exit code {process.returncode}: {err.decode()[-400:]}")
    trial.check(out.read_text(encoding="utf-8").splitlines() == world.right["long-torch"], "other lines")
    return f"{killed} killed, same lines"


def is_actor(pid: int) -> bool:
    """Whether a process is one of our workers: Ray names it so. Its own services, `ray::DashboardAgent`, end the node with them."""
    try:
        name = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return name.startswith(b"ray::Actor")


def has_ray() -> bool:
    import importlib.util

    return importlib.util.find_spec("ray") is not None


ATTACKS = [
    Attack(
        "one translator, several threads", "threads",
        "two to six threads with one `Translator`, each with its own texts, beams, samples, scores: what each gets alone",
        22, share_translator, 120,
    ),
    Attack(
        "other numbers of threads", "23",
        "1, 2, 3, 4 or 8 threads, every engine, odd lines: the same lines",
        22, other_threads, 120,
    ),
    Attack(
        "killed workers", "workers",
        "`kill -9` on workers of `--workers 2`: every line once, in order",
        4, kill_workers, 150,
    ),
    Attack(
        "killed Ray workers", "ray",
        "`kill -9` on workers of a Ray cluster with a real model: every line once, in order",
        2, kill_ray_workers, 200, alone=True,
    ),
]  # fmt: skip
