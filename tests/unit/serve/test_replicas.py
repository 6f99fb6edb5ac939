"""Replicas on a Ray cluster: what becomes of a batch whose replica dies, and a whole server over a cluster on this machine."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from samples import environment, sentences
from undivided.config.serve import ServeConfig
from undivided.inference.translation import Translation
from undivided.serve.batching import Group, Text
from undivided.serve.errors import Refusal

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
SENTENCES = [source for source, _ in sentences(40, seed=12)]
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


class Handle:
    """Answers of replicas, one for each call: an exception, or how texts are translated."""

    def __init__(self, *answers):
        self.answers, self.calls = list(answers), []
        self.translate = self

    def remote(self, *given):
        self.calls.append(given)
        return self

    def result(self, timeout_s):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [vars(Translation(text, answer(text), -1.0, True)) for text, *_ in self.calls[-1][0]]


def replicas(*answers):
    from undivided.serve.replicas import Replicas

    handle = Handle(*answers)
    return Replicas(handle, "name", ServeConfig(replicas=3)), handle


def test_a_batch_of_a_replica_that_died_goes_to_another():
    runner, handle = replicas(ray.exceptions.ActorDiedError(), ray.exceptions.ActorUnavailableError("soon", None), str.upper)
    assert runner.lanes == 6
    assert [each.text for each in runner.run([Text("a", 1), Text("b", 1, "p")], Group(5, ()), 2)] == ["A", "B"]
    assert handle.calls == [([("a", 1, ""), ("b", 1, "p")], 5, [], 2)] * 3


def test_where_no_replica_answers_the_request_is_refused():
    died = [ray.exceptions.ActorDiedError() for _ in range(9)]
    for answers, calls in ((died, 3), ([TimeoutError()], 1)):
        runner, handle = replicas(*answers)
        with pytest.raises(Refusal) as refused:
            runner.run([Text("a", 1)], Group(), 1)
        assert (refused.value.status, refused.value.retry_after) == (503, 5)
        assert len(handle.calls) == calls


def test_a_fault_of_the_batch_is_not_tried_again():
    fault = ray.exceptions.RayTaskError("translate", "", ValueError("mine"))
    runner, handle = replicas(fault)
    with pytest.raises(ray.exceptions.RayTaskError):
        runner.run([Text("a", 1)], Group(), 1)
    assert len(handle.calls) == 1


def run_serve(model, *arguments, **more):
    command = [sys.executable, "-m", "undivided", "serve", str(model), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment(), **more)


def test_replicas_and_workers_are_not_given_together(model):
    done = run_serve(model, "--ray", "local", "--workers", "2", "--port", "0")
    assert (done.returncode, "--workers and --ray" in done.stderr) == (2, True)


def listening(pids):
    """The addresses on which processes listen for TCP, as the kernel writes them."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]": row[1].split(":")[0] for row in rows if row[3] == "0A"}
    found = {sockets.get(os.readlink(handle)) for pid in pids for handle in Path(f"/proc/{pid}/fd").iterdir()}
    return found - {None}


def descendants(pid):
    """All processes that a process started, directly or not."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def title(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="/proc/net/tcp tells who listens; it is Linux's")
def test_a_server_over_replicas_loses_nothing_with_one_of_them(serve, model, translator):
    pytest.importorskip("grpc_reflection", reason="the extra `ray-serve` is not installed")
    answers = []

    def client(number):
        for text in SENTENCES[number:] + SENTENCES[:number]:
            answers.append((text, running.post("/translate", json={"q": text, "source": "en", "target": "de"})))

    # Ray Serve uses what pydantic no longer likes.
    settings = {"env": {"PYTHONWARNINGS": "ignore"}, "seconds": 300}
    with serve(str(model), "--ray", "local", "--req-limit", "-1", "--cache-characters", "0", **settings) as running:
        processes = descendants(running.process.pid)
        assert listening(processes) <= LOOPBACK
        # Ray starts what it needs in sessions of their own, so they are known by their names, and this server's by its process.
        own = [pid for pid in processes if f"ray::ServeReplica:undivided-{os.uname().nodename}-".encode() in title(pid)]
        assert len(own) == 2
        threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        os.kill(own[0], signal.SIGKILL)
        for thread in threads:
            thread.join(120)
        assert len(answers) == 8 * len(SENTENCES)
        assert {got.status_code for _, got in answers} == {200}
        expected = dict(zip(SENTENCES, translator.translate(SENTENCES)))
        same = sum(expected[text] == got.json()["translatedText"] for text, got in answers)
        assert same > 0.9 * len(answers)  # The fixture runs PyTorch and the replicas CTranslate2 in int8, so a rare one differs.
        assert running.stop() == 0
        deadline = time.monotonic() + 30
        while any(map(title, processes)) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not [pid for pid in processes if title(pid)]
