"""CTranslate2 called directly: ready-made tokens in, tokens out, with the settings that a job names."""

from __future__ import annotations

import json

import ctranslate2
from worker import serve


class Translating:
    def __init__(self, job: dict) -> None:
        self.job = job
        with open(job["pieces"], encoding="utf-8") as stream:
            self.pieces = json.load(stream)
        self.ids = {piece: token for token, piece in enumerate(self.pieces)}
        self.translator = ctranslate2.Translator(job["converted"], inter_threads=job["workers"], intra_threads=job["each"])

    def translate(self, sources: list[list[str]]) -> list[list[int]]:
        length = self.job["length"]
        limits = {"min_decoding_length": length, "max_decoding_length": length} if length else {"max_decoding_length": 200}
        found = self.translator.translate_batch(
            sources, beam_size=self.job["beam"], length_penalty=0.0, max_batch_size=self.job["batch_tokens"],
            batch_type="tokens", max_input_length=0, disable_unk=True, **limits,
        )  # fmt: skip
        return [[self.ids[piece] for piece in result.hypotheses[0]] for result in found]


if __name__ == "__main__":
    serve(None, Translating)
