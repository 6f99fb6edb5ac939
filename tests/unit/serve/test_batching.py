"""The queue: who shares a batch, who waits, who is refused, what becomes of those who leave."""

import asyncio
import threading
import time

import pytest

from undivided.config.serve import ServeConfig
from undivided.inference.translation import Translation
from undivided.serve.batching import DOCUMENT_TEXTS, Batcher, Group, OwnEngine, Text
from undivided.serve.cache import TranslationCache
from undivided.serve.errors import Refusal


class Engine:
    is_parallel = False
    name = "fake"


class FakeTranslator:
    """Upper case, one batch at a time; it can be made to wait, and fails on texts with a `!`."""

    def __init__(self):
        self.engine, self.batches, self.gate = Engine(), [], threading.Event()
        self.gate.set()

    def stream(self, lines, prefixes=None, **changes):
        self.gate.wait(20)
        self.batches.append(list(lines))
        if any("!" in line for line in lines):
            raise RuntimeError("boom")
        return [Translation(line, line.upper(), -1.0, True) for line in lines]


def texts(*lines, tokens=10):
    return [Text(line, tokens) for line in lines]


def run(scenario, **settings):
    """Run a scenario with a batcher over a fake translator."""
    translator = FakeTranslator()

    async def main():
        config = ServeConfig(**{"batch_delay": 0.02, "batch_tokens": 100, "queue_tokens": 200, "queue_seconds": 1e3} | settings)
        batcher = Batcher(OwnEngine(translator), config)
        try:
            return await asyncio.wait_for(scenario(batcher, translator), 30)
        finally:
            translator.gate.set()
            await asyncio.wait_for(batcher.close(), 10)
            assert (batcher.queued_tokens, batcher.load) == (0, 0)

    return asyncio.run(main())


async def text_of(batcher, *lines, **more):
    return [each.text for each in await batcher.translate(texts(*lines), Group(), **more)]


def test_requests_share_a_batch_and_each_gets_its_own():
    async def scenario(batcher, translator):
        found = await asyncio.gather(*(text_of(batcher, f"a{number}", f"b{number}") for number in range(4)))
        assert found == [[f"A{number}", f"B{number}"] for number in range(4)]
        assert len(translator.batches) == 1
        assert len(translator.batches[0]) == 8

    run(scenario)


def test_a_batch_has_a_bound_and_requests_take_turns():
    async def scenario(batcher, translator):
        translator.gate.clear()
        first = asyncio.create_task(text_of(batcher, "x"))
        await asyncio.sleep(0.1)
        long = asyncio.create_task(text_of(batcher, *(f"l{number}" for number in range(15))))
        short = asyncio.create_task(text_of(batcher, "s"))
        await asyncio.sleep(0.05)
        translator.gate.set()
        await asyncio.gather(first, long, short)
        assert "s" in translator.batches[1]
        assert all(len(batch) <= 10 for batch in translator.batches)

    run(scenario)


def test_a_document_does_not_hold_up_a_sentence():
    async def scenario(batcher, translator):
        translator.gate.clear()
        document = asyncio.create_task(text_of(batcher, *(f"d{number}" for number in range(300)), is_document=True))
        await asyncio.sleep(0.1)
        sentence = asyncio.create_task(text_of(batcher, "s"))
        await asyncio.sleep(0.05)
        translator.gate.set()
        assert await sentence == ["S"]
        assert len(translator.batches) <= 3
        assert all(len(batch) <= DOCUMENT_TEXTS + 1 for batch in translator.batches)
        assert await document == [f"D{number}" for number in range(300)]

    run(scenario)


def test_a_document_is_not_starved_by_sentences():
    async def scenario(batcher, translator):
        document = asyncio.create_task(text_of(batcher, *(f"d{number}" for number in range(20)), is_document=True))
        until = time.monotonic() + 20

        async def client(name):
            while not document.done() and time.monotonic() < until:
                await text_of(batcher, name)

        await asyncio.gather(*(client(f"s{number}") for number in range(18)))
        assert document.done()

    run(scenario)


def test_a_full_queue_refuses_and_says_when_to_come_back():
    async def scenario(batcher, translator):
        translator.gate.clear()
        first = [asyncio.create_task(text_of(batcher, f"w{number}")) for number in range(10)]
        await asyncio.sleep(0.1)  # These are under way now.
        waiting = [asyncio.create_task(text_of(batcher, f"q{number}")) for number in range(10)]
        await asyncio.sleep(0.05)
        with pytest.raises(Refusal) as refused:
            await text_of(batcher, "late")
        assert refused.value.status == 429
        assert refused.value.retry_after >= 1
        translator.gate.set()
        found = await asyncio.gather(*first, *waiting)
        assert found == [[f"W{number}"] for number in range(10)] + [[f"Q{number}"] for number in range(10)]
        assert await text_of(batcher, "later") == ["LATER"]

    run(scenario)


def test_what_is_accepted_is_what_takes_a_few_seconds_as_measured():
    async def scenario(batcher, translator):
        assert batcher.room == 5000
        batcher.rate = 1.0
        assert batcher.room == 50  # Half a batch.
        batcher.rate = 1000.0
        assert batcher.room == 3000
        batcher.rate = 1e9
        assert batcher.room == 5000

    run(scenario, queue_tokens=5000, queue_seconds=3.0)


def test_a_request_with_many_texts_keeps_nobody_out():
    async def scenario(batcher, translator):
        translator.gate.clear()
        large = asyncio.create_task(text_of(batcher, *(f"l{number}" for number in range(500))))
        await asyncio.sleep(0.05)
        small = asyncio.create_task(text_of(batcher, "s"))
        await asyncio.sleep(0.05)
        translator.gate.set()
        assert await small == ["S"]
        assert not large.done()
        assert len(await large) == 500
        assert batcher.load == 0

    run(scenario)


def test_whoever_leaves_takes_nothing_of_others_and_frees_the_queue():
    async def scenario(batcher, translator):
        translator.gate.clear()
        first = asyncio.create_task(text_of(batcher, "x"))
        await asyncio.sleep(0.1)
        gone = [asyncio.create_task(text_of(batcher, f"g{number}", f"h{number}")) for number in range(8)]
        stays = asyncio.create_task(text_of(batcher, "stay"))
        await asyncio.sleep(0.05)
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        assert batcher.queued_tokens == 10
        translator.gate.set()
        assert await asyncio.gather(first, stays) == [["X"], ["STAY"]]
        assert translator.batches == [["x"], ["stay"]]

    run(scenario)


def test_only_what_is_at_fault_fails():
    async def scenario(batcher, translator):
        found = await asyncio.gather(
            text_of(batcher, "a"), text_of(batcher, "boom!"), text_of(batcher, "c", "d"), return_exceptions=True
        )
        assert found[0] == ["A"]
        assert isinstance(found[1], RuntimeError)
        assert found[2] == ["C", "D"]

    run(scenario)


def test_requests_with_other_settings_have_other_batches():
    async def scenario(batcher, translator):
        tasks = [batcher.translate(texts(f"a{number}"), Group(number % 2)) for number in range(6)]
        found = await asyncio.gather(*tasks)
        assert [each[0].text for each in found] == [f"A{number}" for number in range(6)]
        assert {frozenset(int(line[1]) % 2 for line in batch) for batch in translator.batches} == {frozenset({0}), frozenset({1})}

    run(scenario)


def test_a_fault_in_one_request_keeps_no_others_back():
    async def scenario(batcher, translator):
        def fail(place, found):
            raise ValueError("mine")

        found = await asyncio.gather(
            batcher.translate(texts("a"), Group(), on_result=fail), text_of(batcher, "b"), return_exceptions=True
        )
        assert isinstance(found[0], ValueError)
        assert found[1] == ["B"]

    run(scenario)


def test_results_come_as_they_are_found():
    async def scenario(batcher, translator):
        seen = []
        await batcher.translate(texts(*"abc"), Group(), on_result=lambda place, found: seen.append((place, found.text)))
        assert sorted(seen) == [(0, "A"), (1, "B"), (2, "C")]

    run(scenario)


def test_the_cache_is_bounded_and_keeps_what_was_used_last():
    cache = TranslationCache(10_000)
    for number in range(100):
        cache.put(number, Translation("s" * 100, "t" * 100, 0.0, True))
        assert cache.used <= 10_000
        assert cache.get(0) is not None
    assert len(cache) == 10_000 // 600
    assert cache.get(50) is None
    assert cache.get(99) is not None
    cache.put("long", Translation("s" * 9000, "t" * 9000, 0.0, True))
    assert cache.get("long") is None
    nothing = TranslationCache(0)
    nothing.put(1, Translation("a", "b", 0.0, True))
    assert len(nothing) == 0
