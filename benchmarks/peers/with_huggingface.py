"""Hugging Face's MarianMT: a plain training loop, and `generate`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from transformers import MarianConfig, MarianMTModel
from worker import BOS, EOS, FAIRSEQ_NAMES, PAD, Weights, at_its_best, by_length, compiled, padded, read_batches, serve, shifted


def make_model(job: dict) -> MarianMTModel:
    shape, weights = job["model"], Weights(job["weights"])
    config = MarianConfig(
        vocab_size=job["vocabulary"], decoder_vocab_size=job["vocabulary"], max_position_embeddings=len(weights.positions),
        d_model=shape["d_model"], encoder_layers=shape["encoder_layers"], decoder_layers=shape["decoder_layers"],
        encoder_attention_heads=shape["n_heads"], decoder_attention_heads=shape["n_heads"],
        encoder_ffn_dim=shape["d_ff"], decoder_ffn_dim=shape["d_ff"], activation_function="relu", scale_embedding=True,
        dropout=shape["dropout"], attention_dropout=0.0, activation_dropout=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0,
        pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS, forced_eos_token_id=None,
        share_encoder_decoder_embeddings=True, tie_word_embeddings=True,
    )  # fmt: skip
    model = MarianMTModel(config)
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(weights.embedding)
        for side in (model.model.encoder, model.model.decoder):
            side.embed_positions.weight.copy_(weights.positions)
    weights.fill(model.model.encoder.layers, "encoder", FAIRSEQ_NAMES)
    weights.fill(model.model.decoder.layers, "decoder", FAIRSEQ_NAMES)
    return model


class Training:
    def __init__(self, job: dict) -> None:
        self.batches, self.smoothing = read_batches(job), job["smoothing"]
        self.job, self.model = job, make_model(job).train()
        self.forward = compiled(job, self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)

    def loss(self, number: int, smoothing: float, forward):
        sources, targets = self.batches[number]
        src = padded(sources)
        logits = forward(input_ids=src, attention_mask=src != PAD, decoder_input_ids=shifted(targets), use_cache=False).logits
        return F.cross_entropy(logits.float().flatten(0, 1), padded(targets).flatten(), ignore_index=PAD, label_smoothing=smoothing)

    def likelihood(self) -> float:
        self.model.eval()
        with torch.no_grad():
            found = float(self.loss(0, 0.0, self.model))
        self.model.train()
        return found

    def step(self, number: int) -> None:
        self.optimizer.zero_grad()
        with at_its_best(self.job):
            loss = self.loss(number, self.smoothing, self.forward)
        loss.backward()
        self.optimizer.step()


class Translating:
    def __init__(self, job: dict) -> None:
        self.job, self.model = job, make_model(job).eval()
        self.model.forward = compiled(job, self.model.forward)

    def translate(self, sources: list[list[int]]) -> list[list[int]]:
        outputs: list[list[int]] = [[] for _ in sources]
        length = self.job["length"]
        limits = {"min_new_tokens": length, "max_new_tokens": length} if length else {}
        for batch in by_length(sources, self.job["batch_tokens"]):
            src = padded([sources[place] for place in batch])
            if not length:
                limits = {"max_new_tokens": src.shape[1] + 50}
            with torch.inference_mode(), at_its_best(self.job):
                found = self.model.generate(
                    input_ids=src, attention_mask=src != PAD, num_beams=self.job["beam"], length_penalty=0.0, do_sample=False,
                    bad_words_ids=None, **limits,
                )  # fmt: skip
            for place, row in zip(batch, found.tolist(), strict=True):
                outputs[place] = [token for token in row[1:] if token not in (PAD, EOS)]
        return outputs


if __name__ == "__main__":
    serve(Training, Translating)
