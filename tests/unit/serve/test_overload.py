"""How long is waited under load, by a clock of its own: an engine that takes a time for each batch and for each subword."""

import asyncio
import random

import pytest
from virtual_time import VirtualLoop

from undivided.config.serve import ServeConfig
from undivided.inference.translation import Translation
from undivided.serve.batching import Batcher, Group, Text
from undivided.serve.errors import Refusal

TOKENS = 11


class Runner:
    lanes, engines = 2, 1

    def run(self, texts, group, n_best):
        return [Translation(each.text, each.text.upper(), -1.0, True) for each in texts]

    def close(self):
        pass


class Load:
    """Requests of some texts each to a queue with the usual limits; how long the accepted took, and how many were refused."""

    def __init__(self, a_batch, a_token, pieces):
        self.loop = VirtualLoop(lambda texts, *_: a_batch + a_token * sum(each.tokens for each in texts))
        self.batcher, self.pieces = Batcher(Runner(), ServeConfig()), pieces
        self.seconds, self.refused = [], 0

    async def ask(self, number):
        begun = self.loop.time()
        try:
            wanted = [Text(f"t{number}-{place}", TOKENS) for place in range(self.pieces)]
            found = await self.batcher.translate(wanted, Group())
        except Refusal:
            self.refused += 1
            return
        assert [each.text for each in found] == [each.text.upper() for each in wanted]
        self.seconds.append(self.loop.time() - begun)

    def run(self, work):
        begun = self.loop.time()
        try:
            self.loop.run_until_complete(work)
        finally:
            passed = self.loop.time() - begun
            self.loop.close()
        assert (self.batcher.load, self.batcher.requests, self.batcher.queued_tokens) == (0, 0, 0)
        return len(self.seconds) / passed

    async def clients(self, count, requests):
        async def client(name):
            for number in range(requests):
                await self.ask(f"{name}-{number}")

        await asyncio.gather(*(client(name) for name in range(count)))

    async def arrivals(self, rate, requests):
        chance, asked = random.Random(1), []
        for number in range(requests):
            await asyncio.sleep(chance.expovariate(rate))
            asked.append(asyncio.ensure_future(self.ask(number)))
        await asyncio.gather(*asked)

    @property
    def slowest(self):
        return sorted(self.seconds)[int(0.99 * len(self.seconds))]


@pytest.mark.parametrize(("a_batch", "a_token", "pieces"), [(0.05, 1 / 1800, 4), (0.02, 1 / 1800, 1), (0.002, 1 / 900, 4)])
def test_ten_times_too_much_makes_the_slowest_answer_at_most_twice_as_slow(a_batch, a_token, pieces):
    engine = (a_batch, a_token, pieces)
    closed = Load(*engine)
    capacity = closed.run(closed.clients(20, 10))
    assert closed.refused == 0
    usual, crowded = Load(*engine), Load(*engine)
    usual.run(usual.arrivals(0.8 * capacity, 600))
    rate = crowded.run(crowded.arrivals(10 * capacity, 1500))
    assert usual.refused < 0.05 * 600
    assert crowded.refused > 0.8 * 1500
    assert rate > 0.75 * capacity
    assert crowded.slowest < 2 * usual.slowest


def test_64_clients_share_few_large_batches():
    """The next batch is put together while the one before is under way: neither does the engine wait, nor do batches crumble."""
    load = Load(0.02, 1 / 1800, 1)
    load.batcher.config = ServeConfig(queue_requests=64)
    assert load.run(load.clients(64, 10)) > 0.9 * 30 / (0.02 + 30 * TOKENS / 1600)
    assert load.batcher.translated_texts / load.batcher.batches > 20
    assert load.refused == 0
