"""What stops and continues a process."""

import os
import signal
import subprocess
import sys
import time

import pytest

from samples import environment

WORKER = """
import time
from undivided.core.signals import WorkClock
clock = WorkClock()
with clock.listen():
    clock.start()
    print("started", flush=True)
    began = time.process_time()
    while time.process_time() - began < 0.5:
        pass
    print(clock.seconds(), flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no SIGSTOP here")
def test_time_in_which_a_process_is_stopped_is_no_work():
    with subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE, env=environment()) as worker:
        assert worker.stdout.readline() == b"started\n"
        os.kill(worker.pid, signal.SIGSTOP)
        time.sleep(3)
        os.kill(worker.pid, signal.SIGCONT)
        assert 0.4 < float(worker.stdout.readline()) < 2


STUCK = """
import sys, time
from pathlib import Path
from undivided.core.files import open_atomic
from undivided.core.signals import stop_in_time
with stop_in_time(lambda number: None), open_atomic(Path(sys.argv[1])) as stream:
    stream.write(b"half")
    stream.flush()
    print("started", flush=True)
    while True:
        time.sleep(1)
"""


def test_a_process_that_must_end_leaves_no_half_file(tmp_path):
    command = [sys.executable, "-c", STUCK, str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as worker:
        assert worker.stdout.readline() == b"started\n"
        assert len(list(tmp_path.iterdir())) == 1
        os.kill(worker.pid, signal.SIGINT)
        assert worker.wait(30) == 130
    assert list(tmp_path.iterdir()) == []
