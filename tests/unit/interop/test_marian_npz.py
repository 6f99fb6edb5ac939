"""Models in Marian's own format come in: the logits are those of `transformers` with the same weights and Marian's positions."""

import json
import zipfile

import numpy as np
import pytest
import torch

from marian_models import make_npz, sentences
from undivided.artifact import load_artifact
from undivided.core.errors import InputError
from undivided.core.ids import BOS
from undivided.interop.door import import_model, read_model
from undivided.interop.export import export_model
from undivided.interop.parity import transformers_runtime
from undivided.nn.layers import sinusoids

KINDS = {
    "shared": {},
    "separate, YAML": {"tie": "target", "yaml_vocabulary": True},
    "untied, relu": {"tie": "none", "activation": "relu"},
}


def by_transformers(settings, arrays):
    """What `transformers` computes with the weights of an archive, by its own names for them."""
    size, target = settings["dim-vocabs"]
    width = settings["dim-emb"]
    found = {}

    def put(ours, theirs, *, turned=True):
        value = torch.from_numpy(arrays[theirs].copy())
        found[ours] = value.t() if turned else value.flatten()

    for side, depth in (("encoder", 2), ("decoder", 2)):
        for place in range(depth):
            at, there = f"model.{side}.layers.{place}", f"{side}_l{place + 1}"
            parts = {"self_attn": "self"} | ({"encoder_attn": "context"} if side == "decoder" else {})
            for name, part in parts.items():
                for letter, projection in zip("qkvo", ("q_proj", "k_proj", "v_proj", "out_proj")):
                    put(f"{at}.{name}.{projection}.weight", f"{there}_{part}_W{letter}")
                    put(f"{at}.{name}.{projection}.bias", f"{there}_{part}_b{letter}", turned=False)
                for kind, suffix in (("weight", "scale"), ("bias", "bias")):
                    put(f"{at}.{name}_layer_norm.{kind}", f"{there}_{part}_Wo_ln_{suffix}", turned=False)
            for number in (1, 2):
                put(f"{at}.fc{number}.weight", f"{there}_ffn_W{number}")
                put(f"{at}.fc{number}.bias", f"{there}_ffn_b{number}", turned=False)
            for kind, suffix in (("weight", "scale"), ("bias", "bias")):
                put(f"{at}.final_layer_norm.{kind}", f"{there}_ffn_ffn_ln_{suffix}", turned=False)
        found[f"model.{side}.embed_positions.weight"] = sinusoids(128, width, "marian")
    # One more row, of zeros: what Marian starts from.
    matrices = [torch.from_numpy(arrays.get("Wemb", arrays.get(f"{side}_Wemb")).copy()) for side in ("encoder", "decoder")]
    zero = torch.zeros(1, width)
    found["model.encoder.embed_tokens.weight"], found["model.decoder.embed_tokens.weight"] = (
        torch.cat([matrix, zero]) for matrix in matrices
    )
    output = torch.from_numpy(arrays["decoder_ff_logit_out_W"].T.copy()) if "decoder_ff_logit_out_W" in arrays else matrices[1]
    found["lm_head.weight"] = torch.cat([output, zero])
    found["final_logits_bias"] = torch.cat([torch.from_numpy(arrays["decoder_ff_logit_out_b"].copy()), torch.zeros(1, 1)], dim=1)
    config = {
        "model_type": "marian", "vocab_size": size + 1, "decoder_vocab_size": target + 1, "d_model": width, "encoder_layers": 2,
        "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "encoder_attention_heads": 4, "pad_token_id": 1,
        "decoder_attention_heads": 4, "activation_function": settings["transformer-ffn-activation"], "scale_embedding": True,
        "decoder_start_token_id": target, "eos_token_id": 0, "max_position_embeddings": 128, "tie_word_embeddings": False,
        "share_encoder_decoder_embeddings": False, "forced_eos_token_id": None,
    }  # fmt: skip
    return transformers_runtime(config, found)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(kind, tmp_path):
    settings, arrays = make_npz(tmp_path / "theirs", **KINDS[kind])
    found = read_model(tmp_path / "theirs")
    theirs = by_transformers(settings, arrays)
    source, target = found.vocabularies
    rows = torch.tensor(target.rows)
    kept = torch.tensor([not masked for masked in target.masked]) & (rows >= 0)
    for row in found.tokenizer.source.encode(sentences(8, 3)):
        read = [BOS, *range(5, 25)]
        with torch.inference_mode():
            ours = found.model.logits(found.model.decode(found.model.encode(torch.tensor([row]), None), torch.tensor([read])))[0]
        other = theirs([source.rows[token] for token in row], [settings["dim-vocabs"][1], *rows[torch.tensor(read[1:])].tolist()])
        assert torch.allclose(ours[:, kept], other[:, rows[kept]], atol=1e-4)


def test_the_folder_is_a_model_folder_and_goes_out_again(tmp_path, console):
    make_npz(tmp_path / "theirs")
    import_model(tmp_path / "theirs" / "model.npz", tmp_path / "ours", console, "cc-by-4.0")
    loaded = load_artifact(tmp_path / "ours")
    assert (loaded.recipe.model.positions, loaded.recipe.search.beam_size) == ("marian", 4)
    assert "Imported by undivided from `theirs` (Marian), licence: cc-by-4.0." in (tmp_path / "ours" / "README.md").read_text()
    export_model(tmp_path / "ours", tmp_path / "out", "marian", console)
    assert import_model(tmp_path / "out", tmp_path / "again", console).recipe.model.positions in ("learned", "marian")


def rewrite(folder, change):
    with np.load(folder / "model.npz") as archive:
        arrays = dict(archive.items())
    change(arrays)
    np.savez(folder / "model.npz", **arrays)


def declare(folder):
    """An entry of a few bytes whose header claims 10 GB."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10 << 28},), }}"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + b"\0" * 64
    with zipfile.ZipFile(folder / "model.npz", "a") as archive:
        archive.writestr("Wemb2.npy", content)


def pickled(folder):
    np.savez(folder / "model.npz", a=np.array([{"an": "object"}], dtype=object))


def decoder(text):
    return lambda folder: (folder / "decoder.yml").write_text(text)


CASES = {
    "truncated": (lambda folder: (folder / "model.npz").write_bytes((folder / "model.npz").read_bytes()[:3000]), "damaged"),
    "10 GB declared": (declare, "claims"),
    "an object": (pickled, "object"),
    "no settings": (lambda folder: rewrite(folder, lambda arrays: arrays.pop("special:model.yml")), "no entry special:model.yml"),
    "a weight is missing": (lambda folder: rewrite(folder, lambda arrays: arrays.pop("encoder_l2_ffn_W1")), "encoder_l2_ffn_W1"),
    "no vocabulary": (lambda folder: (folder / "vocab.spm").unlink(), "vocab.spm: missing"),
    "outside": (decoder("models: [../../etc/model.npz]\n"), "not directly in the folder"),
    "aliases": (decoder("a: &a [x]\nb: *a\n"), "aliases"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_files_are_refused_in_one_line(case, tmp_path, console):
    damage, said = CASES[case]
    make_npz(tmp_path / "theirs")
    damage(tmp_path / "theirs")
    with pytest.raises(InputError, match=said) as raised:
        import_model(tmp_path / "theirs", tmp_path / "ours", console)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "ours").exists()


def test_what_cannot_be_expressed_is_refused_with_every_reason(tmp_path, console):
    changes = {"transformer-decoder-autoreg": "rnn", "transformer-tied-layers": json.dumps([1, 1]), "transformer-preprocess": "n"}
    make_npz(tmp_path / "theirs", activation="gelu", **changes)
    with pytest.raises(InputError, match=r"decoder is rnn.*norms and residuals.*'gelu'.*share weights"):
        import_model(tmp_path / "theirs", tmp_path / "ours", console)
