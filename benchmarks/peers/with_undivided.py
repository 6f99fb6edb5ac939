"""Ours: the trainer that `undivided train` uses, and the `Translator`."""

from __future__ import annotations

import io

from worker import serve

from undivided.core.console import Console

QUIET = Console(quiet=True, stream=io.StringIO())


class Training:
    def __init__(self, job: dict) -> None:
        from undivided.training.loop import Trainer
        from undivided.training.prepare import prepare

        with prepare(job["recipe"], QUIET) as prepared:
            self.trainer = Trainer(prepared, QUIET)
        self.plans = self.trainer.task.stream.plans()
        self.trainer.model.train()

    def likelihood(self) -> float:
        """Of the first batch, without dropout, per target token."""
        import torch

        place, _ = next(self.trainer.task.stream.plans())
        self.trainer.task.stream.place = type(self.trainer.task.stream.place)()
        self.plans = self.trainer.task.stream.plans()
        self.trainer.model.eval()
        with torch.no_grad():
            found = self.trainer.task.loss(self.trainer.task.load(place))
        self.trainer.model.train()
        return float(found.likelihood) / found.tokens

    def step(self, number: int) -> None:
        self.trainer._step(self.plans)


class Forced:
    """A CTranslate2 translator that writes exactly so many tokens."""

    def __init__(self, translator, length: int) -> None:
        self.translator, self.length = translator, length

    def __getattr__(self, name: str):
        return getattr(self.translator, name)

    def translate_batch(self, *args, **options):
        options |= {"min_decoding_length": self.length, "max_decoding_length": self.length}
        return self.translator.translate_batch(*args, **options)


def force_length(length: int) -> None:
    """Every search ends after so many tokens. The model of the benchmark never ends by itself."""
    from undivided.inference import search

    begun = search.start_search

    def limited(*args):
        state, limits, forced = begun(*args)
        return state, limits.clamp(min=length, max=length), forced

    search.start_search = limited


def force_int8_length(length: int) -> None:
    """The same for our engine of 8 bits."""
    from undivided.inference.engines.int8 import Int8Search

    begin = Int8Search.__init__

    def limited(self, *args):
        begin(self, *args)
        self.limits[:] = length

    Int8Search.__init__ = limited


class Translating:
    """Raw text in, raw text out; what is returned are the ids that were found, caught on their way to the text."""

    def __init__(self, job: dict) -> None:
        from undivided import Translator

        self.translator = Translator(job["folder"], threads=job["threads"], engine=job["engine"], console=QUIET)
        self.name = self.translator.engine.name
        self.options = {"beam_size": job["beam"], "length_penalty": 0.0, "max_extra": 50, "shortlist": job["shortlist"]}
        if job["length"]:
            # A random model repeats itself. Here no sentence is decoded a second time for that, nor by the peers.
            self.translator._break_loops = lambda *_: {}
            if self.name == "int8":
                force_int8_length(job["length"])
            elif not hasattr(self.translator.engine, "translator"):
                force_length(job["length"])
            else:
                self.translator.engine.translator = Forced(self.translator.engine.translator, job["length"])
        self.found: dict[int, list[int]] = {}
        search = self.translator.engine.search

        def noted(*args):
            for place, hypotheses in search(*args):
                self.found[place] = hypotheses[0].tokens
                yield place, hypotheses

        self.translator.engine.search = noted

    def translate(self, sources: list[str]) -> list[list[int]]:
        self.found.clear()
        texts = self.translator.translate(sources, **self.options)
        assert len(texts) == len(sources)
        return [self.found[place] for place in sorted(self.found)]


if __name__ == "__main__":
    serve(Training, Translating)
