"""OpenNMT-py 3.5: its Trainer and Translator. Its Transformer is pre-norm only, so it keeps weights of its own."""

from __future__ import annotations

import sys
import types

# Named at import by transforms of text that nobody asks for here.
for absent in ("spacy", "fasttext"):
    sys.modules.setdefault(absent, types.ModuleType(absent))

import onmt.opts  # noqa: E402
import pyonmttok  # noqa: E402
import torch  # noqa: E402
from onmt.constants import DefaultTokens  # noqa: E402
from onmt.model_builder import build_model  # noqa: E402
from onmt.trainer import Trainer  # noqa: E402
from onmt.translate import GNMTGlobalScorer, Translator  # noqa: E402
from onmt.utils import Statistics  # noqa: E402
from onmt.utils.loss import LossCompute  # noqa: E402
from onmt.utils.optimizers import Optimizer  # noqa: E402
from onmt.utils.parse import ArgumentParser  # noqa: E402
from worker import EOS, Ids, by_length, padded, read_batches, serve  # noqa: E402

IDS = Ids(pad=1, unk=0, bos=2, eos=3)


def make_model(job: dict):
    shape = job["model"]
    parser = ArgumentParser()
    onmt.opts.train_opts(parser)
    flags = {
        "data": "none", "save_model": "none", "src_vocab": "none", "encoder_type": "transformer", "decoder_type": "transformer",
        "enc_layers": shape["encoder_layers"], "dec_layers": shape["decoder_layers"], "hidden_size": shape["d_model"],
        "word_vec_size": shape["d_model"], "transformer_ff": shape["d_ff"], "heads": shape["n_heads"],
        "dropout": shape["dropout"], "attention_dropout": 0.0, "optim": "adam", "adam_beta2": 0.98, "learning_rate": 1e-4,
        "label_smoothing": job.get("smoothing", 0.1), "max_grad_norm": 0,
    }  # fmt: skip
    switches = ["position_encoding", "share_vocab", "share_embeddings", "share_decoder_embeddings", "param_init_glorot"]
    line = [part for key, value in flags.items() for part in (f"--{key}", str(value))]
    options, _ = parser.parse_known_args([*line, *(f"--{switch}" for switch in switches), "--add_qkvbias", "--param_init", "0"])
    ArgumentParser.update_model_opts(options)
    specials = [DefaultTokens.UNK, DefaultTokens.PAD, DefaultTokens.BOS, DefaultTokens.EOS]
    words = pyonmttok.build_vocab_from_tokens([f"t{token}" for token in range(EOS + 1, job["vocabulary"])], special_tokens=specials)
    vocabularies = {"src": words, "tgt": words, "data_task": "seq2seq", "decoder_start_token": DefaultTokens.BOS}
    model = build_model(options, options, vocabularies, None, -1)
    for layer in [*model.encoder.transformer, *model.decoder.transformer_layers]:
        layer.feed_forward.dropout_1.p = 0.0
    return options, vocabularies, model


def batch_of(sources, targets=None) -> dict:
    rows = [IDS.row(row) for row in sources]
    batch = {"src": padded(rows, IDS.pad)[:, :, None], "srclen": torch.tensor([len(row) for row in rows])}
    if targets is not None:
        rows = [[IDS.bos, *IDS.row(row)] for row in targets]
        batch |= {"tgt": padded(rows, IDS.pad)[:, :, None], "tgtlen": torch.tensor([len(row) for row in rows])}
    return batch


class Training:
    def __init__(self, job: dict) -> None:
        self.batches = read_batches(job)
        options, vocabularies, self.model = make_model(job)
        losses = [LossCompute.from_opts(options, self.model, vocabularies["tgt"], train=train) for train in (True, False)]
        optimizer = Optimizer.from_opt(self.model, options)
        self.trainer = Trainer(
            self.model, *losses, None, {}, optimizer, norm_method="tokens", n_gpu=0, gpu_rank=-1,
            dropout=[options.dropout[0]], attention_dropout=[0.0],
        )  # fmt: skip

    def likelihood(self) -> float:
        self.model.eval()
        batch = batch_of(*self.batches[0])
        with torch.no_grad():
            states, _ = self.model(batch["src"], batch["tgt"], batch["srclen"])
            logits = self.model.generator(states)
        self.model.train()
        right = batch["tgt"][:, 1:, 0]
        return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), right.flatten(), ignore_index=IDS.pad))

    def step(self, number: int) -> None:
        batch = batch_of(*self.batches[number])
        tokens = int((batch["tgt"][:, 1:, 0] != IDS.pad).sum())
        self.trainer._gradient_accumulation([batch], tokens, Statistics(), Statistics())


class Translating:
    def __init__(self, job: dict) -> None:
        self.job = job
        _, vocabularies, model = make_model(job)
        length = job["length"]
        self.translator = Translator(
            model.eval(), vocabularies, beam_size=job["beam"], min_length=length, max_length=length or 200, max_length_ratio=0,
            global_scorer=GNMTGlobalScorer(0.0, 0.0, "none", "none"), dump_beam="", ban_unk_token=True, report_score=False,
        )  # fmt: skip

    def translate(self, sources: list[list[int]]) -> list[list[int]]:
        outputs: list[list[int]] = [[] for _ in sources]
        for batch in by_length(sources, self.job["batch_tokens"]):
            found = self.translator.translate_batch(batch_of([sources[place] for place in batch]), attn_debug=False)
            for place, hypotheses in zip(batch, found["predictions"], strict=True):
                outputs[place] = IDS.back(hypotheses[0].tolist())
        return outputs


if __name__ == "__main__":
    serve(Training, Translating)
