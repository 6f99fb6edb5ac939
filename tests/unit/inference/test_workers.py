"""Files in shards: the same bytes by any number of workers, after any death and any stop."""

import json
import os
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from samples import sentences, write_lines
from undivided.core.console import Console
from undivided.core.errors import InputError, UndividedError
from undivided.data.text_files import MAX_LINE_BYTES, raw_lines
from undivided.inference.workers import coordinator, joined_output, shards
from undivided.inference.workers.coordinator import Coordinator, make_plan, translate_file
from undivided.inference.workers.joined_output import JoinedOutput
from undivided.inference.workers.process_pool import Event, ProcessPool
from undivided.inference.workers.worker import Worker, attempt

SENTENCES = [source for source, _ in sentences(30, seed=7)]
GREEDY = {"beam_size": 1}


def many(path: Path, count: int = 5000) -> Path:
    """More than two windows of lines, most of them again and again, so that they are translated in a moment."""
    return write_lines(path, [SENTENCES[number * number % 30] if number % 7 else "" for number in range(count)])


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    return many(tmp_path_factory.mktemp("text") / "in")


@pytest.fixture(scope="session")
def expected(translator, text):
    """What a translator writes that knows of no shards."""
    results = translator.stream(text.read_text().splitlines(), **GREEDY)
    return "".join(f"{result.text}\n" for result in results).encode()


class Inside(ProcessPool):
    """The same workers without processes of their own, which take seconds to start."""

    def __init__(self, job):
        self.job, self.events, self.workers = job, [], {}

    def start(self, slot):
        failed = attempt(lambda: self.workers.update({slot: Worker(self.job, slot)}))
        self.events.append(Event(slot, **failed or {"ready": True}))

    def assign(self, slot, shard):
        told = lambda count: self.events.append(Event(slot, lines=count))  # noqa: E731
        failed = attempt(lambda: self.workers[slot].translate(shard, told))
        self.events.append(Event(slot, **failed or {"done": shard.number}))

    def poll(self, seconds):
        events, self.events = self.events, []
        return events

    def stop(self):
        pass


@pytest.fixture
def inside(monkeypatch):
    monkeypatch.setattr(coordinator, "ProcessPool", Inside)


def share(model, text, out, **more):
    translate_file(
        str(model), str(text), str(out), more.pop("workers", 2), more.pop("console", Console(quiet=True)), GREEDY, **more
    )
    return out.read_bytes()


# Cutting.


def pieces(path, monkeypatch, window, block):
    monkeypatch.setattr(shards, "CHUNK_LINES", window)
    monkeypatch.setattr(shards, "BLOCK", block)
    scanned = shards.scan_file(str(path))
    job = shards.Job("", "", [str(path)], [scanned.stamp], "", {}, False, "cpu", 1)
    cut = shards.cut_shards([scanned])
    assert [shard.first for shard in cut] == [sum(each.lines for each in cut[:number]) for number in range(len(cut))]
    assert [shard.ranges[0][0] for shard in cut] == [0, *(shard.ranges[0][1] for shard in cut)][: len(cut)]
    assert sum(shard.lines for shard in cut) == scanned.lines
    return [line for shard in cut for line in job.lines(shard, 0)]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"a",
        b"a\n",
        b"\n\n\n",
        b"a\r\nb\r\n",
        b"a\r\nb",
        b"\xef\xbb\xbfa\nb\n",
        b"a\n\xef\xbb\xbfb",
        b"\xff\n\xfe",
        b"\r",
        b"a\n\n",
    ],
)
def test_shards_hold_the_lines_of_the_file(tmp_path, monkeypatch, content):
    (tmp_path / "in").write_bytes(content)
    for window, block in ((1, 1), (1, 100), (2, 3), (3, 1)):
        assert pieces(tmp_path / "in", monkeypatch, window, block) == list(raw_lines(tmp_path / "in"))


def test_random_files_are_cut_without_loss(tmp_path, monkeypatch):
    chance = random.Random(5)
    for _ in range(150):
        parts = [b"\n", b"\n", b"\r\n", b"word", b" ", "ü".encode(), b"\xff", b"\xef\xbb\xbf"]
        (tmp_path / "in").write_bytes(b"".join(chance.choice(parts) for _ in range(chance.randrange(60))))
        window, block = chance.randrange(1, 6), chance.randrange(1, 20)
        assert pieces(tmp_path / "in", monkeypatch, window, block) == list(raw_lines(tmp_path / "in"))


def test_a_large_file_has_larger_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MAX_SHARDS", 4)
    (tmp_path / "in").write_bytes(b"x\n" * 95)
    assert pieces(tmp_path / "in", monkeypatch, 5, 1000) == [b"x"] * 95
    assert [shard.lines for shard in shards.cut_shards([shards.scan_file(str(tmp_path / "in"))])] == [25, 25, 25, 20]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("wide text\nmore\n".encode("utf-16-le"), r"in, line 1: holds a NUL"),
        (b"a\n" + b"x" * (MAX_LINE_BYTES + 1) + b"\nb\n", r"in, line 2: longer than"),
        (b"x" * (MAX_LINE_BYTES + 1), r"in, line 1: longer than"),
    ],
    ids=["utf-16", "huge line", "huge last line"],
)
def test_what_cannot_be_translated_is_refused_before_any_work(tmp_path, model, content, said):
    (tmp_path / "in").write_bytes(content)
    with pytest.raises(InputError, match=said):
        share(model, tmp_path / "in", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_the_longest_line_is_allowed(tmp_path):
    (tmp_path / "in").write_bytes(b"x" * MAX_LINE_BYTES + b"\n" + b"y" * MAX_LINE_BYTES)
    assert shards.scan_file(str(tmp_path / "in")).lines == 2


# The same bytes.


def test_any_number_of_workers_writes_what_one_process_writes(run, tmp_path, model, text, expected):
    assert share(model, text, tmp_path / "two") == share(model, text, tmp_path / "one", workers=1) == expected
    assert (
        run(
            "translate", model, text, "-o", tmp_path / "plain", "--threads", "1", "--engine", "torch", "--beam-size", "1", "-q"
        ).code
        == 0
    )
    assert (tmp_path / "plain").read_bytes() == expected
    assert expected.count(b"\n") == 5000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "plain", "two"]


@pytest.mark.parametrize(
    "flags", [["--scores"], ["--n-best", "2", "--beam-size", "2"], ["--sample", "--temperature", "3"]], ids=" ".join
)
def test_formats_and_samples_too(run, tmp_path, model, flags, inside):
    lines = [SENTENCES[0], "", SENTENCES[1], "  ", *[SENTENCES[2]] * 2010, "the end"]
    text = write_lines(tmp_path / "in", lines)
    flags = [*flags, "--max-extra", "5", "-q", "--threads", "1"]
    if "--sample" in flags:
        text = write_lines(tmp_path / "in", lines[:60])
    assert run("translate", model, text, "-o", tmp_path / "plain", *flags).code == 0
    result = run("translate", model, text, "-o", tmp_path / "shared", *flags, "--workers", "2")
    assert (result.code, result.out) == (0, "")
    assert (tmp_path / "shared").read_bytes() == (tmp_path / "plain").read_bytes()


def test_odd_text_and_its_remarks(run, tmp_path, model, inside):
    content = b"\xef\xbb\xbf" + f"{SENTENCES[0]}\r\n\r\n".encode() + b"a \xff b\n \n" + b"x" * 1200 + b"\n\xe2\x80\xa8\nlast"
    (tmp_path / "in").write_bytes(content)
    flags = ["--beam-size", "1", "-q", "--threads", "1"]
    plain = run("translate", model, tmp_path / "in", "-o", tmp_path / "plain", *flags)
    shared = run("translate", model, tmp_path / "in", "-o", tmp_path / "shared", *flags, "--workers", "1")
    assert (tmp_path / "shared").read_bytes() == (tmp_path / "plain").read_bytes()
    assert (tmp_path / "shared").read_bytes().count(b"\n") == 7
    # What the whole file looks like, no worker knows.
    assert sorted(shared.err.splitlines()) == sorted(line for line in plain.err.splitlines() if "looks like cp1252" not in line)
    assert "line 3: not valid UTF-8" in shared.err
    assert "line 5: " in shared.err


@pytest.mark.parametrize(("content", "lines"), [(b"", 0), (b"\n", 1), (b"no end", 1), (b"\n\n", 2)])
def test_tiny_files(tmp_path, model, content, lines, inside):
    (tmp_path / "in").write_bytes(content)
    assert share(model, tmp_path / "in", tmp_path / "out").count(b"\n") == lines
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_prefixes_are_shared_out_with_their_lines(run, tmp_path, model, inside):
    text, prefix = many(tmp_path / "in", 2003), write_lines(tmp_path / "prefix", ["der", "", "ein "] * 700)
    flags = ["--prefix", prefix, "--beam-size", "1", "-q", "--threads", "1"]
    assert run("translate", model, text, "-o", tmp_path / "plain", *flags).code == 0
    assert run("translate", model, text, "-o", tmp_path / "shared", *flags, "--workers", "2").code == 0
    assert (tmp_path / "shared").read_bytes() == (tmp_path / "plain").read_bytes()
    few = write_lines(tmp_path / "few", ["der"] * 2002)
    with pytest.raises(InputError, match=r"only 2,002 prefix lines for 2,003"):
        share(model, text, tmp_path / "out", prefix=str(few))
    few.write_bytes(b"a\n" * 2001 + b"\xff\n" * 5)
    with pytest.raises(InputError, match=r"few, line 2002: not valid UTF-8"):
        share(model, text, tmp_path / "out", prefix=str(few))


# Deaths.


class Deadly(ProcessPool):
    """A pool whose workers are killed when they have translated some lines."""

    kills = ()

    def __init__(self, job):
        super().__init__(job)
        self.left = list(self.kills)

    def poll(self, seconds):
        events = super().poll(seconds)
        for event in events:
            if self.left and (event.lines or event.ready) and not event.done and event.ready == self.left[0]:
                self._workers[event.slot].kill()
                self.left.pop(0)
        return events


def test_dead_workers_are_replaced(tmp_path, model, text, expected, monkeypatch, capsys):
    monkeypatch.setattr(Deadly, "kills", (True, False))
    monkeypatch.setattr(coordinator, "ProcessPool", Deadly)
    assert share(model, text, tmp_path / "out", console=Console()) == expected
    said = capsys.readouterr().err
    assert said.count("a worker died at lines ") == 2
    assert "SIGKILL" in said


class Made(ProcessPool):
    """A pool without processes: shards are done, or kill, as a test says. It notes what it was given."""

    def __init__(self, plan, deadly=(), fail=""):
        self.plan, self.deadly, self.fail = plan, deadly, fail
        self.assigned, self.events, self.stopped = [], [], 0

    def start(self, slot):
        self.events.append(Event(slot, ready=True))

    def assign(self, slot, shard):
        self.assigned.append(shard.number)
        if shard.number in self.deadly:
            self.events.append(Event(slot, dead="SIGSEGV"))
        elif self.fail:
            self.events.append(Event(slot, failed=self.fail, code=2))
        else:
            complete(self.plan, shard)
            self.events += [Event(slot, lines=5), Event(slot, done=shard.number)]

    def poll(self, seconds):
        events, self.events = self.events[:1], self.events[1:]
        return events

    def stop(self):
        self.stopped += 1


def complete(plan, shard):
    """Do a shard's work: each line of it becomes its number."""
    import hashlib

    content = "".join(f"{shard.first + number}\n" for number in range(shard.lines)).encode()
    shard.path(plan.folder).write_bytes(content)
    facts = {"sha256": hashlib.sha256(content).hexdigest(), "lines": shard.lines, "remarks": ["x"], "more": 3}
    shard.marker(plan.folder).write_text(json.dumps(facts))


@pytest.fixture
def planned(tmp_path, model):
    """A plan of ten shards, and a folder for it."""
    text = write_lines(tmp_path / "in", ["x"] * 19_000)
    plan = make_plan(str(model), str(text), tmp_path / "out.shards", {}, None, False, "cpu", 1)
    plan.folder.mkdir()
    return plan


NUMBERS = "".join(f"{number}\n" for number in range(19_000))


class Sickly(Made):
    """The first worker of the pool is well; every other one dies before it begins, as often as a test says."""

    def __init__(self, plan, deaths, healthy):
        super().__init__(plan)
        self.left, self.healthy = deaths, healthy

    def start(self, slot):
        if (slot or not self.healthy) and self.left:
            self.left -= 1
            self.events.append(Event(slot, dead="SIGKILL"))
        else:
            super().start(slot)


def test_workers_may_die_at_birth_while_others_work(planned, tmp_path):
    Coordinator(planned, joined := JoinedOutput(planned, tmp_path / "out"), Console()).run(Sickly(planned, 9, healthy=True), 2)
    assert joined.count == len(planned.shards)


@pytest.mark.parametrize("deaths", [4, 5])
def test_a_pool_that_never_starts_is_given_up(planned, tmp_path, deaths):
    coordinating = Coordinator(planned, joined := JoinedOutput(planned, tmp_path / "out"), Console())
    if deaths == 4:
        coordinating.run(Sickly(planned, deaths, healthy=False), 1)
        assert joined.count == len(planned.shards)
    else:
        with pytest.raises(
            UndividedError, match=r"5 workers one after the other died before they were ready .SIGKILL.\n.*to resume"
        ):
            coordinating.run(Sickly(planned, deaths, healthy=False), 1)


def test_a_shard_that_kills_is_named_and_the_rest_is_kept(planned, tmp_path, capsys):
    pool = Made(planned, deadly=[3])
    coordinating = Coordinator(planned, JoinedOutput(planned, tmp_path / "out"), Console())
    with pytest.raises(
        UndividedError, match=r"in, lines 6,001–8,000 \(bytes 12,000–16,000\): 3 workers died over it \(SIGSEGV\)"
    ) as caught:
        coordinating.run(pool, 2)
    assert caught.value.exit_code == 1
    assert pool.assigned.count(3) == 3
    assert pool.stopped == 1
    assert "more warnings of these kinds" in capsys.readouterr().err
    again = Made(planned)
    coordinating = Coordinator(planned, JoinedOutput(planned, tmp_path / "out"), Console())
    assert "resuming: " in capsys.readouterr().err
    coordinating.run(again, 2)
    coordinating.output.finish()
    assert not set(pool.assigned) - {3} & set(again.assigned)
    assert (tmp_path / "out").read_text() == NUMBERS


def test_workers_that_die_before_they_begin(planned, tmp_path):
    pool = Made(planned)
    pool.start = lambda slot: pool.events.append(Event(slot, dead="exit code 1: no such thing"))
    with pytest.raises(UndividedError, match=r"5 workers one after the other died .* \(exit code 1: no such thing\)"):
        Coordinator(planned, JoinedOutput(planned, tmp_path / "out"), Console(quiet=True)).run(pool, 2)


def test_a_failure_of_a_worker_ends_all_with_its_message(planned, tmp_path):
    pool = Made(planned, fail="in, line 3: broken")
    with pytest.raises(InputError, match=r"(?s)line 3: broken.*run the same command to resume"):
        Coordinator(planned, JoinedOutput(planned, tmp_path / "out"), Console(quiet=True)).run(pool, 2)
    assert pool.stopped == 1


def test_a_worker_that_dies_after_its_work_is_done(planned, tmp_path):
    pool = Made(planned)
    assign, lost = pool.assign, []

    def assign_and_die(slot, shard):
        assign(slot, shard)
        if shard.number == 4 and not lost:
            lost.append(4)
            pool.events[-1:] = [Event(slot, dead="SIGKILL")]

    pool.assign = assign_and_die
    coordinating = Coordinator(planned, JoinedOutput(planned, tmp_path / "out"), Console(quiet=True))
    coordinating.run(pool, 2)
    coordinating.output.finish()
    assert pool.assigned.count(4) == 1
    assert (tmp_path / "out").read_text() == NUMBERS
    assert coordinating.progress.done == 19_000


def test_a_damaged_shard_is_translated_again(planned, tmp_path):
    for shard in planned.shards:
        complete(planned, shard)
    planned.shards[2].path(planned.folder).write_bytes(b"broken")
    planned.shards[5].marker(planned.folder).write_text('{"sha256": 3')
    pool = Made(planned)
    coordinating = Coordinator(planned, JoinedOutput(planned, tmp_path / "out"), Console(quiet=True))
    coordinating.run(pool, 2)
    coordinating.output.finish()
    assert sorted(pool.assigned) == [2, 5]
    assert (tmp_path / "out").read_text() == NUMBERS


class Crash(BaseException):
    """As if the power had gone."""


@pytest.mark.parametrize("place", ["write_atomic", "fsync", "copyfileobj", "unlink", "os.fsync", "replace", "rmtree"])
@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_joining_can_be_cut_off_anywhere(planned, tmp_path, monkeypatch, place, number):
    homes = {
        "copyfileobj": joined_output.shutil,
        "rmtree": joined_output.shutil,
        "os.fsync": joined_output.os,
        "unlink": Path,
        "replace": Path,
    }
    home, name = homes.get(place, joined_output), place.removeprefix("os.")
    real, calls = getattr(home, name), []

    def cut(*arguments, **more):
        calls.append(1)
        if len(calls) == number:
            raise Crash
        return real(*arguments, **more)

    def work():
        done = JoinedOutput(planned, tmp_path / "out")
        for shard in planned.shards[done.count :]:
            if shard.number not in done.ready:
                complete(planned, shard)
        joined = JoinedOutput(planned, tmp_path / "out")
        for _ in range(3):
            joined.advance()
        joined.finish()
        shutil.rmtree(planned.folder)

    with monkeypatch.context() as patch:
        patch.setattr(home, name, cut)
        with suppress(Crash):
            work()
    if planned.folder.exists():
        work()
    assert (tmp_path / "out").read_text() == NUMBERS


# Stops.


def workers_of(pid):
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = status.read_text().rpartition(")")
        except OSError:
            continue
        if int(rest.split()[1]) == pid:
            found.append(int(name.split()[0]))
    return found


def gone(pids):
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "a worker outlived its coordinating"
        time.sleep(0.05)
    return True


@pytest.fixture
def begun(spawn, tmp_path, model):
    """A run that has finished a shard and has many to go."""
    text = write_lines(tmp_path / "in", [f"{SENTENCES[number % 30]} {number % 900}" for number in range(2000)] + ["x"] * 6000)
    text.write_bytes(b"y\n" * 2000 + text.read_bytes())
    process = spawn("translate", model, text, "-o", tmp_path / "out", "--workers", "2", "--beam-size", "4")
    while not (tmp_path / "out.shards" / "joined.json").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    yield process, text, tmp_path / "out"
    if process.poll() is None:
        process.kill()
    process.communicate()


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_stopped_run_resumes(begun, tmp_path, model, number, code):
    process, text, out = begun
    workers = workers_of(process.pid)
    process.send_signal(number)
    err = process.communicate(timeout=60)[1].decode()
    assert process.returncode == code
    assert "Traceback" not in err
    assert number == signal.SIGKILL or "run the same command to resume" in err
    assert workers
    assert gone(workers)
    assert not out.exists()
    before = json.loads((tmp_path / "out.shards" / "joined.json").read_text())["shards"]
    assert before >= 1
    plan = make_plan(str(model), str(text), tmp_path / "out.shards", {"beam_size": 4}, None, False, "auto", 1)
    pool = Made(plan)
    coordinating = Coordinator(plan, JoinedOutput(plan, out), Console(quiet=True))
    coordinating.run(pool, 1)
    assert min(pool.assigned, default=before) >= before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_an_exit_code(run, tmp_path, model, text, monkeypatch, number):
    class Signalled(Inside):
        def poll(self, seconds):
            if (Path(self.job.folder) / "shard-000001.txt").exists():
                signal.raise_signal(number)
            return super().poll(seconds)

    monkeypatch.setattr(coordinator, "ProcessPool", Signalled)
    before = signal.getsignal(number)
    result = run("translate", model, text, "-o", tmp_path / "out", "--workers", "1", "--beam-size", "1")
    assert result.code == 128 + number
    assert "stopped: " in result.err
    assert "of 3 shards" in result.err
    assert signal.getsignal(number) is before


def test_another_translation_is_refused_with_what_changed(tmp_path, model, text):
    copy = Path(shutil.copy(text, tmp_path / "in"))
    plan = make_plan(str(model), str(copy), tmp_path / "out.shards", GREEDY, None, False, "auto", 1)
    plan.folder.mkdir()
    plan.start()
    with pytest.raises(InputError, match=r"beam_size was 1, now not set") as caught:
        translate_file(str(model), str(copy), str(tmp_path / "out"), 1, Console(quiet=True))
    assert "remove the folder to start over" in str(caught.value)
    with pytest.raises(InputError, match="scores was false, now true"):
        share(model, copy, tmp_path / "out", scores=True)
    copy.write_bytes(copy.read_bytes() + b"one more\n")
    with pytest.raises(InputError, match="sha256 of the text was"):
        share(model, copy, tmp_path / "out")


def test_two_runs_on_one_output_are_refused(tmp_path, model, text):
    with (
        coordinator.lock_folder(tmp_path / "out.shards", ""),
        pytest.raises(InputError, match="another process is translating there"),
    ):
        share(model, text, tmp_path / "out")


def test_a_text_that_changes_while_it_is_translated(tmp_path, model, text, monkeypatch, inside):
    copy = Path(shutil.copy(text, tmp_path / "in"))
    begin = shards.ShardPlan.start

    def begin_and_change(self):
        begin(self)
        os.utime(copy, ns=(1, 1))

    monkeypatch.setattr(shards.ShardPlan, "start", begin_and_change)
    with pytest.raises(InputError, match="in: changed while it was being translated"):
        share(model, copy, tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()


def test_a_model_that_changes_while_it_is_used(tmp_path, model, text, monkeypatch, inside):
    home = shutil.copytree(model, tmp_path / "m", ignore=shutil.ignore_patterns("training"))
    monkeypatch.setattr(coordinator, "sha256_of", lambda path: "0" * 64)
    with pytest.raises(InputError, match="m: the model changed while it was in use"):
        share(home, text, tmp_path / "out", workers=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-", "-o", "out"], "name both"),
        (["in"], "name both"),
        (["in.gz", "-o", "out"], "unpack it first"),
        (["none", "-o", "out"], "none: no such file"),
        ([".", "-o", "out"], "is a directory"),
        (["in", "-o", "none/out"], "no such directory"),
        (["in", "-o", "out", "--workers", "0"], "less than 1"),
        (["in", "-o", "out", "--workers", "-3"], "less than 1"),
        (["in", "-o", "out", "--beam-size", "0"], "less than 1"),
        (["in", "-o", "out", "--n-best", "9", "--beam-size", "2"], "n_best"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use(run, tmp_path, model, arguments, said, monkeypatch, inside):
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "in", ["x"])
    write_lines(tmp_path / "in.gz", ["x"])
    result = run("translate", model, *arguments, *([] if "--workers" in arguments else ["--workers", "1"]))
    assert result.code == 2
    assert said in result.err
    assert "Traceback" not in result.err


def test_a_damaged_model_is_named(run, tmp_path, model, inside):
    home = shutil.copytree(model, tmp_path / "m", ignore=shutil.ignore_patterns("training"))
    (home / "model.safetensors").write_bytes(b"broken")
    result = run("translate", home, write_lines(tmp_path / "in", ["x"]), "-o", tmp_path / "out", "--workers", "1")
    assert result.code == 2
    assert "model.safetensors is damaged" in result.err
    result = run("translate", tmp_path / "none", tmp_path / "in", "-o", tmp_path / "out", "--workers", "1")
    assert (result.code, "no such model folder" in result.err) == (2, True)


# Ray.


def test_without_ray_the_extra_is_named(run, tmp_path, model, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    text = write_lines(tmp_path / "in", ["x"])
    result = run("translate", model, text, "-o", tmp_path / "out", "--ray", "local")
    assert (result.code, "pip install ray" in result.err) == (2, True)


@pytest.fixture
def at_most_four_minutes():
    """Ray may wait for ever for an actor that it never starts."""

    def give_up(*_):
        raise TimeoutError("Ray did not finish within four minutes")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(240)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def ray_addresses():
    """The addresses on which processes of Ray listen for TCP, as the kernel writes them."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    listening = {f"socket:[{row[9]}]": row[1].split(":")[0] for row in rows if row[3] == "0A"}
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"ray" in (process / "cmdline").read_bytes():
                found |= {listening.get(os.readlink(handle)) for handle in (process / "fd").iterdir()}
    return found - {None}


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="/proc/net/tcp tells who listens; it is Linux's")
@pytest.mark.filterwarnings("ignore")
def test_ray_writes_the_same_replaces_the_dead_and_listens_to_this_machine_only(
    tmp_path, model, text, expected, monkeypatch, capfd, at_most_four_minutes
):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    from undivided.inference.workers.ray_pool import RayPool

    killed, found, niceness, assign = [], [], set(), RayPool.assign

    def assign_and_kill(self, slot, shard):
        # Ray may never start another actor after one that was killed while it was being made.
        self.ray.get(self._actors[slot].__ray_ready__.remote(), timeout=120)
        found.extend(ray_addresses())
        niceness.add(self.ray.get(self._actors[slot].__ray_call__.remote(lambda _: os.nice(0)), timeout=120))
        assign(self, slot, shard)
        if len(killed) < 2:
            killed.append(slot)
            self.ray.kill(self._actors[slot])

    monkeypatch.setattr(RayPool, "assign", assign_and_kill)
    assert share(model, text, tmp_path / "out", ray="local", console=Console()) == expected
    assert capfd.readouterr().err.count("a worker died at lines ") == 2
    assert found
    assert set(found) <= LOOPBACK
    assert niceness == {os.nice(0)}


def test_a_ray_that_does_not_start_is_said(monkeypatch):
    """On a busy machine Ray gives up with a bare Exception."""
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    from undivided.core.errors import UndividedError
    from undivided.inference.workers.ray_pool import connect_ray

    def give_up(**_):
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", give_up)
    with pytest.raises(UndividedError, match="--ray local: Ray did not start: The current node timed out"):
        connect_ray("local", 1)
