"""fairseq 0.12.2: its own Trainer and SequenceGenerator."""

from __future__ import annotations

import logging

import mended_fairseq  # noqa: F401
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer
from worker import EOS, FAIRSEQ_NAMES, Ids, Weights, by_length, padded, read_batches, serve, shifted

logging.disable(logging.INFO)
IDS = Ids(pad=1, unk=3, bos=0, eos=2)


def configured(job: dict):
    shape = job["model"]
    sizes = {"embed-dim": "d_model", "ffn-embed-dim": "d_ff", "attention-heads": "n_heads"}
    flags = ["none", "--arch", "transformer", "--task", "translation", "--share-all-embeddings", "--cpu"]
    for side in ("encoder", "decoder"):
        for flag, key in sizes.items():
            flags += [f"--{side}-{flag}", str(shape[key])]
        flags += [f"--{side}-layers", str(shape[f"{side}_layers"])]
    flags += ["--dropout", str(shape["dropout"]), "--attention-dropout", "0", "--activation-dropout", "0"]
    flags += ["--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-9", "--lr", "1e-4", "--lr-scheduler", "fixed"]
    flags += ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", str(job.get("smoothing", 0.1))]
    flags += ["--max-tokens", "4096", "--no-progress-bar", "--log-format", "none", "--clip-norm", "0"]
    parsed = options.parse_args_and_arch(options.get_training_parser(), input_args=flags)
    return convert_namespace_to_omegaconf(parsed)


def make_model(job: dict):
    config, words, weights = configured(job), Dictionary(), Weights(job["weights"])
    for token in range(EOS + 1, job["vocabulary"]):
        words.add_symbol(f"t{token}")
    task = TranslationTask(config.task, words, words)
    model = task.build_model(config.model)
    with torch.no_grad():
        model.encoder.embed_tokens.weight.copy_(IDS.matrix(weights.embedding))
    # Its own sinusoids begin at the place after the padding's id, and have slightly other wavelengths.
    before = torch.zeros(IDS.pad + 1, weights.positions.shape[1])
    for side, name in ((model.encoder, "encoder"), (model.decoder, "decoder")):
        side.embed_positions.weights = torch.cat([before, weights.positions])
        weights.fill(side.layers, name, FAIRSEQ_NAMES)
    return config, task, model


def sample_of(sources, targets=None) -> dict:
    sources = [IDS.row(row) for row in sources]
    net = {"src_tokens": padded(sources, IDS.pad, left=True), "src_lengths": torch.tensor([len(row) for row in sources])}
    sample = {"id": torch.arange(len(sources)), "nsentences": len(sources), "net_input": net}
    if targets is not None:
        targets = [IDS.row(row) for row in targets]
        net["prev_output_tokens"] = shifted(targets, IDS.bos, IDS.pad)
        sample |= {"target": padded(targets, IDS.pad), "ntokens": sum(map(len, targets))}
    return sample


class Training:
    def __init__(self, job: dict) -> None:
        self.batches = read_batches(job)
        config, task, self.model = make_model(job)
        self.trainer = Trainer(config, task, self.model, task.build_criterion(config.criterion))

    def likelihood(self) -> float:
        self.model.eval()
        sample = sample_of(*self.batches[0])
        with torch.no_grad():
            logits = self.model(**sample["net_input"])[0]
        return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), sample["target"].flatten(), ignore_index=IDS.pad))

    def step(self, number: int) -> None:
        self.trainer.train_step([sample_of(*self.batches[number])])


class Translating:
    def __init__(self, job: dict) -> None:
        self.job = job
        _, task, model = make_model(job)
        length = job["length"]
        # Its lengths do not count the `</s>` that it forces at the end.
        limits = {"max_len_b": length - 1, "min_len": length - 1} if length else {"max_len_a": 1, "max_len_b": 50}
        self.generator = SequenceGenerator([model.eval()], task.target_dictionary, job["beam"], len_penalty=0.0, **limits)

    def translate(self, sources: list[list[int]]) -> list[list[int]]:
        outputs: list[list[int]] = [[] for _ in sources]
        for batch in by_length(sources, self.job["batch_tokens"]):
            with torch.inference_mode():
                found = self.generator.generate([], sample_of([sources[place] for place in batch]), bos_token=IDS.bos)
            for place, hypotheses in zip(batch, found, strict=True):
                outputs[place] = IDS.back(hypotheses[0]["tokens"].tolist())
        return outputs


if __name__ == "__main__":
    serve(Training, Translating)
