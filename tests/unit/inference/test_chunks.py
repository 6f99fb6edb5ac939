"""A chunk is prefetched while the one before it is worked on."""

import itertools
import threading
import time
import weakref

import pytest

from samples import sentences
from undivided.config import SearchConfig
from undivided.inference.chunks import prefetch
from undivided.inference.engines.torch import TorchEngine
from undivided.inference.translator import Translator


def same(item, _):
    return item


def test_items_come_in_order():
    assert list(prefetch(range(1000), same)) == list(range(1000))


def test_what_is_finished_comes_before_the_stop_and_work_is_told_that_nobody_waits():
    second, ended = threading.Event(), threading.Event()

    def work(item, is_cancelled):
        second.set() if item else second.wait(20)
        while item and not is_cancelled():
            time.sleep(0.01)
        if item:
            ended.set()
        return item

    stopped = []
    results = prefetch(itertools.count(), work, lambda: bool(stopped))
    assert next(results) == 0
    stopped.append(True)
    assert list(results) == []
    assert ended.wait(20)


def test_no_thread_that_reads_knows_the_engine(translator):
    """It may still wait for a line when Python ends, and an engine that is destroyed by such a thread aborts the process."""
    other = Translator(translator.artifact)
    other.engine = Slow(translator.artifact, 1)
    engine, line = weakref.ref(other.engine), threading.Event()

    def lines():
        yield "The dog sees a tree today."
        line.wait(20)

    results = other.stream(lines())
    next(results)
    results.close()
    del other, results
    deadline = time.monotonic() + 5
    while engine() is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert engine() is None
    line.set()


def test_an_error_comes_where_it_was_made():
    def items():
        yield 1
        raise ValueError("no second")

    taken = prefetch(items(), same)
    assert next(taken) == 1
    with pytest.raises(ValueError, match="no second"):
        next(taken)


def test_never_far_ahead_and_gone_with_whoever_took():
    made = []
    items = prefetch((made.append(number) or number for number in itertools.count()), same, count=2)
    assert next(items) == 0
    time.sleep(0.3)
    assert len(made) <= 4
    items.close()
    time.sleep(0.5)
    count = len(made)
    time.sleep(0.3)
    assert len(made) == count <= 5


class Slow:
    """The reference behind a door: a call of `search` waits until the next one has come, or the last."""

    name, is_parallel, has_shortlist = "slow", True, False

    def __init__(self, artifact, calls):
        self.engine = TorchEngine(artifact)
        self.begun = [threading.Event() for _ in range(calls)]
        self.lock = threading.Lock()
        self.count = 0

    def search(self, sources, config: SearchConfig, prefixes, keys):
        with self.lock:
            number, self.count = self.count, self.count + 1
        self.begun[number].set()
        if number + 1 < len(self.begun):
            assert self.begun[number + 1].wait(20), "the next chunk was not started"
        with self.lock:
            yield from list(self.engine.search(sources, config, prefixes, keys))


def test_the_next_window_is_begun_before_the_last_is_done(translator, monkeypatch):
    lines = [source for source, _ in sentences(24, seed=8)]
    expected = translator.translate(lines)
    monkeypatch.setattr("undivided.inference.translator.CHUNK_LINES", 8)
    monkeypatch.setattr("undivided.inference.chunks.chunk_lines.__defaults__", (8,))
    other = Translator(translator.artifact)
    other.engine = Slow(translator.artifact, 3)
    told = []
    results = list(other.stream(lines, advance=told.append))
    assert [result.text for result in results] == expected
    assert other.engine.count == 3
    assert sum(told) == 24
