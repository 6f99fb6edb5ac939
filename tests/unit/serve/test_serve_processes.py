"""Signals and worker processes: nothing that was accepted is lost, and the end is in order."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import requests

from samples import sentences

SENTENCES = [source for source, _ in sentences(64, seed=11)]


class Load:
    """Clients that translate until they are told to stop; every answer is kept."""

    def __init__(self, running, clients=8):
        self.running, self.stopped = running, threading.Event()
        self.answers, self.failures = [], []
        self.threads = [threading.Thread(target=self.work, args=(number,)) for number in range(clients)]
        for thread in self.threads:
            thread.start()

    def work(self, number):
        with requests.Session() as session:
            count = 0
            while not self.stopped.is_set():
                text = f"{SENTENCES[count * 8 + number & 63]} {number} {count}"
                count += 1
                try:
                    fields = {"q": text, "source": "en", "target": "de"}
                    got = session.post(self.running.url + "/translate", json=fields, timeout=60)
                    self.answers.append((text, got.status_code, got.json()))
                except requests.ConnectionError as error:
                    self.failures.append(error)
                    if self.running.process.poll() is not None:
                        return
                    time.sleep(0.02)

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(60)

    def wait(self, count):
        deadline = time.monotonic() + 60
        goal = len(self.answers) + count
        while len(self.answers) < goal and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(self.answers) >= goal


ARGUMENTS = ["--threads", "1", "--req-limit", "-1"]


def test_reload_drops_no_request_and_sigterm_answers_what_was_accepted(serve, model):
    with serve(str(model), *ARGUMENTS) as running:
        load = Load(running)
        load.wait(50)
        running.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while not any("reloaded" in line for line in running.log) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert any("reloaded" in line for line in running.log)
        load.wait(50)
        assert load.failures == []
        assert {status for _, status, _ in load.answers} == {200}
        assert running.stop() == 0
        load.stop()
        assert {status for _, status, _ in load.answers} == {200}
        # What failed was refused a connection, or had one closed before it sent anything: never cut off within an answer.
        assert not [each for each in load.failures if "IncompleteRead" in str(each)]


def test_many_clients_at_once_each_get_their_own(serve, model, translator):
    """Without a cache, which would answer a second time what was wrong the first."""
    texts = list(dict.fromkeys(SENTENCES))
    expected = dict(zip(texts, translator.translate(texts)))
    owners = {}
    for text, translation in expected.items():
        owners.setdefault(translation, set()).add(text)
    answers = []

    def client(number):
        with requests.Session() as session:
            for text in texts[number:] + texts[:number]:
                got = session.post(running.url + "/translate", json={"q": text, "source": "en", "target": "de"}, timeout=60)
                answers.append((text, got.json()["translatedText"]))

    with serve(str(model), *ARGUMENTS, "--cache-characters", "0") as running:
        threads = [threading.Thread(target=client, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert len(answers) == 12 * len(texts)
    assert [each for each in answers if each[0] not in owners.get(each[1], {each[0]})] == []
    # The fixture runs PyTorch and the server CTranslate2 in int8, so a rare one differs.
    assert sum(expected[text] == found for text, found in answers) > 0.9 * len(answers)


def test_a_model_that_is_gone_is_not_reloaded_but_still_served(serve, model, tmp_path):
    import shutil

    folder = shutil.copytree(model, tmp_path / "m")
    with serve(str(folder), *ARGUMENTS) as running:
        (folder / "config.json").rename(folder / "away")
        running.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 60
        while not any("not reloaded" in line for line in running.log) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert any("not reloaded" in line for line in running.log)
        assert running.translate(SENTENCES[0])["translatedText"]
        assert running.stop(signal.SIGINT) == 130


def children(pid):
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs /proc")
def test_workers_share_a_port_and_a_killed_one_is_replaced(serve, model):
    with serve(str(model), *ARGUMENTS, "--workers", "2") as running:
        workers = children(running.process.pid)
        assert len(workers) == 2
        load = Load(running)
        load.wait(40)
        assert load.failures == []
        os.kill(workers[0], signal.SIGKILL)
        load.wait(60)
        deadline = time.monotonic() + 60
        while len(set(children(running.process.pid)) - {workers[0]}) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert any(f"process {workers[0]}) ended with signal 9" in line for line in running.log)
        assert {status for _, status, _ in load.answers} == {200}
        assert len(load.failures) <= 16  # At most what the killed worker had in its hands, twice.
        load.stop()
        assert running.stop() == 0
        assert not [pid for pid in workers if os.path.exists(f"/proc/{pid}")]


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs /proc")
def test_workers_end_with_their_supervisor(serve, model):
    with serve(str(model), *ARGUMENTS, "--workers", "2") as running:
        workers = children(running.process.pid)
        running.process.kill()
        running.process.wait()
        deadline = time.monotonic() + 60
        while any(os.path.exists(f"/proc/{pid}") for pid in workers) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not [pid for pid in workers if os.path.exists(f"/proc/{pid}")]
