"""JoeyNMT 2.3: its model, loss, batch and optimizer in the steps of its training loop, and its search."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from joeynmt.batch import Batch
from joeynmt.builders import build_optimizer
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary
from worker import EOS, Ids, Weights, by_length, padded, read_batches, serve

IDS = Ids(pad=1, unk=0, bos=2, eos=3)
SPECIALS = SimpleNamespace(
    unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None, lang_tags=[],
    unk_id=0, pad_id=1, bos_id=2, eos_id=3, sep_id=None,
)  # fmt: skip


def names(own: str, norm: str) -> dict[str, str]:
    """Our parts in the words of its layers."""
    attentions = {"self": own, "cross": "src_trg_att"}
    found = {f"{ours}.{one}": f"{theirs}.{one}_layer" for ours, theirs in attentions.items() for one in "qkv"}
    found |= {f"{ours}.out": f"{theirs}.output_layer" for ours, theirs in attentions.items()}
    found |= {"feed.inner": "feed_forward.pwff_layer.0", "feed.outer": "feed_forward.pwff_layer.3"}
    return found | {"self.norm": norm, "cross.norm": "dec_layer_norm", "feed.norm": "feed_forward.layer_norm"}


def make_model(job: dict):
    shape, weights = job["model"], Weights(job["weights"])
    words = Vocabulary([f"t{token}" for token in range(EOS + 1, job["vocabulary"])], SPECIALS)

    def side(layers: int) -> dict:
        return {
            "type": "transformer", "num_layers": layers, "num_heads": shape["n_heads"], "hidden_size": shape["d_model"],
            "ff_size": shape["d_ff"], "dropout": shape["dropout"], "layer_norm": "post", "freeze": False,
            "embeddings": {"embedding_dim": shape["d_model"], "scale": True, "freeze": False, "dropout": shape["dropout"]},
        }  # fmt: skip

    config = {
        "encoder": side(shape["encoder_layers"]), "decoder": side(shape["decoder_layers"]),
        "tied_embeddings": True, "tied_softmax": True,
    }  # fmt: skip
    model = build_model(config, words, words)
    with torch.no_grad():
        model.src_embed.lut.weight.copy_(IDS.matrix(weights.embedding))
    weights.fill(model.encoder.layers, "encoder", names("src_src_att", "layer_norm"))
    weights.fill(model.decoder.layers, "decoder", names("trg_trg_att", "x_layer_norm"))
    for layer in [*model.encoder.layers, *model.decoder.layers]:
        layer.feed_forward.pwff_layer[2].p = 0.0
        for name in ("src_src_att", "trg_trg_att", "src_trg_att"):
            if hasattr(layer, name):
                getattr(layer, name).dropout.p = 0.0
    return model


def batch_of(sources, targets=None) -> Batch:
    rows = [IDS.row(row) for row in sources]
    return Batch(
        src=padded(rows, IDS.pad), src_length=torch.tensor([len(row) for row in rows]), src_prompt_mask=None,
        trg=None if targets is None else padded([[IDS.bos, *IDS.row(row)] for row in targets], IDS.pad), trg_prompt_mask=None,
        indices=torch.arange(len(rows)), device=torch.device("cpu"), pad_index=IDS.pad, eos_index=IDS.eos,
        is_train=targets is not None,
    )  # fmt: skip


class Training:
    def __init__(self, job: dict) -> None:
        self.batches, self.model = read_batches(job), make_model(job)
        self.model.loss_function = ("crossentropy", job["smoothing"])
        config = {"optimizer": "adam", "learning_rate": 1e-4, "adam_betas": (0.9, 0.98), "weight_decay": 0.0}
        self.optimizer = build_optimizer(config, self.model.parameters())

    def likelihood(self) -> float:
        self.model.eval()
        batch = batch_of(*self.batches[0])
        with torch.no_grad():
            _, scores, _, _ = self.model(return_type="loss", **vars(batch))
        return float(torch.nn.functional.nll_loss(scores.flatten(0, 1), batch.trg.flatten(), ignore_index=IDS.pad))

    def step(self, number: int) -> None:
        batch = batch_of(*self.batches[number])
        self.model.train()
        batch.sort_by_src_length()
        loss, _, _, _ = self.model(return_type="loss", **vars(batch))
        batch.normalize(loss, normalization="tokens").backward()
        self.optimizer.step()
        self.model.zero_grad()


class Translating:
    def __init__(self, job: dict) -> None:
        self.job, self.model = job, make_model(job).eval()

    def translate(self, sources: list[list[int]]) -> list[list[int]]:
        outputs: list[list[int]] = [[] for _ in sources]
        for batch in by_length(sources, self.job["batch_tokens"]):
            rows = [sources[place] for place in batch]
            length = self.job["length"]
            found, _, _ = search(
                model=self.model, batch=batch_of(rows), max_output_length=length or max(map(len, rows)) + 50,
                beam_size=self.job["beam"], beam_alpha=0.0, min_output_length=length or 1, generate_unk=False,
            )  # fmt: skip
            for place, row in zip(batch, found.tolist(), strict=True):
                outputs[place] = IDS.back(row)
        return outputs


if __name__ == "__main__":
    serve(Training, Translating)
