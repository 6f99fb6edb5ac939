"""Marian models made by `transformers`, with random weights and real sentencepiece."""

import io
import json
import random

import numpy as np
import sentencepiece
import torch

WORDS = [
    "the",
    "a",
    "dog",
    "cat",
    "house",
    "runs",
    "sees",
    "old",
    "new",
    "green",
    "very",
    "under",
    "over",
    "bird",
    "tree",
    "river",
    "small",
    "big",
    "eats",
    "drinks",
    "water",
    "bread",
]


def sentences(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randrange(2, 9))).capitalize() + "." for _ in range(count)]


def learn(lines: list[str], kind: str = "unigram", size: int = 90) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type=kind, vocab_size=size, hard_vocab_limit=False, minloglevel=2
    )
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model)
    return [processor.id_to_piece(token) for token in range(3, len(processor))]


def make_marian(folder, *, separate=False, tied=True, activation="swish", scale=True, languages=(), kind="unigram", binary=False):
    """A folder as `save_pretrained` writes it, beside the tokenizer's files."""
    from transformers import MarianConfig, MarianMTModel

    folder.mkdir(parents=True, exist_ok=True)
    models = [learn(sentences(400, 1), kind), learn([line.upper() for line in sentences(400, 2)], kind)]
    sides = [pieces_of(model) for model in models]
    tables = sides if separate else [list(dict.fromkeys([*sides[0][:-3], *sides[1]]))]
    for words, name in zip(tables, ("vocab.json", "target_vocab.json")):
        table = ["</s>", "<unk>", *(f">>{code}<<" for code in languages), *words, "<pad>"]
        # One pad for both sides: the shorter vocabulary is filled up, as Marian pads to a round size.
        table[-1:-1] = [f"<filler {place}>" for place in range(max(map(len, tables)) - len(words))]
        (folder / name).write_text(json.dumps({word: token for token, word in enumerate(table)}))
    for model, name in zip(models, ("source.spm", "target.spm")):
        (folder / name).write_bytes(model)
    size = len(table)
    config = MarianConfig(
        vocab_size=size, decoder_vocab_size=size, d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=48,
        decoder_ffn_dim=48, encoder_attention_heads=4, decoder_attention_heads=4, activation_function=activation,
        scale_embedding=scale, pad_token_id=size - 1, decoder_start_token_id=size - 1, eos_token_id=0, forced_eos_token_id=None,
        max_position_embeddings=128, share_encoder_decoder_embeddings=not separate, tie_word_embeddings=tied,
    )  # fmt: skip
    torch.manual_seed(3)
    model = MarianMTModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.normal_(0, 0.25)
        model.final_logits_bias.normal_(0, 0.3)
        model.final_logits_bias[0, 0] = 3.0
    model.eval()
    if binary:
        model.config.save_pretrained(folder)
        torch.save(dict(model.state_dict().items()), folder / "pytorch_model.bin")
    else:
        model.save_pretrained(folder)
    settings = {"source_lang": "en", "target_lang": "xx", "separate_vocabs": separate, "tokenizer_class": "MarianTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return model


def learn_for_marian(lines: list[str], size: int = 90) -> bytes:
    """A sentencepiece model with the ids that Marian asks for."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="unigram", vocab_size=size, hard_vocab_limit=False,
        minloglevel=2, eos_id=0, unk_id=1, bos_id=-1, pad_id=-1,
    )  # fmt: skip
    return model.getvalue()


NPZ = {"type": "transformer", "dim-emb": 32, "enc-depth": 2, "dec-depth": 2, "transformer-heads": 4, "transformer-dim-ffn": 48,
       "transformer-ffn-depth": 2, "transformer-ffn-activation": "swish", "transformer-decoder-autoreg": "self-attention",
       "transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-emb": "d",
       "transformer-postprocess-top": "", "skip": "false", "input-types": "[]", "version": "v1.12.0"}  # fmt: skip


def npz_arrays(settings: dict, sizes: tuple[int, int]) -> dict[str, np.ndarray]:
    """Random weights under the names that Marian gives them, its matrices `in out`."""
    chance, width, inner = np.random.default_rng(5), settings["dim-emb"], settings["transformer-dim-ffn"]

    def draw(*shape: int) -> np.ndarray:
        return chance.normal(0, 0.25, shape).astype(np.float32)

    found: dict[str, np.ndarray] = {}

    def norm(name: str) -> None:
        found[f"{name}_ln_scale"], found[f"{name}_ln_bias"] = 1 + draw(1, width), draw(1, width)

    for side, depth in (("encoder", settings["enc-depth"]), ("decoder", settings["dec-depth"])):
        for place in range(1, depth + 1):
            for part in ("self", "context") if side == "decoder" else ("self",):
                for kind in "qkvo":
                    found[f"{side}_l{place}_{part}_W{kind}"] = draw(width, width)
                    found[f"{side}_l{place}_{part}_b{kind}"] = draw(1, width)
                norm(f"{side}_l{place}_{part}_Wo")
            found[f"{side}_l{place}_ffn_W1"], found[f"{side}_l{place}_ffn_b1"] = draw(width, inner), draw(1, inner)
            found[f"{side}_l{place}_ffn_W2"], found[f"{side}_l{place}_ffn_b2"] = draw(inner, width), draw(1, width)
            norm(f"{side}_l{place}_ffn_ffn")
    if settings["tied-embeddings-all"] == "true":
        found["Wemb"] = draw(sizes[0], width)
    else:
        found["encoder_Wemb"], found["decoder_Wemb"] = draw(sizes[0], width), draw(sizes[1], width)
        if settings["tied-embeddings"] != "true":
            found["decoder_ff_logit_out_W"] = draw(width, sizes[1])
    found["decoder_ff_logit_out_b"] = draw(1, sizes[1])
    found["decoder_ff_logit_out_b"][0, 0] = 1.5
    return found


def make_npz(folder, *, tie="all", activation="swish", yaml_vocabulary=False, **changes):
    """A folder as OPUS-MT publishes them: the weights, the vocabulary, two sentencepiece models and decoder.yml."""
    folder.mkdir(parents=True, exist_ok=True)
    shared = tie == "all"
    lines = sentences(400, 1), [line.upper() for line in sentences(400, 2)]
    models = [learn_for_marian(lines[0] + lines[1], 120)] * 2 if shared else [learn_for_marian(each) for each in lines]
    processors = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
    names = []
    for side, (model, processor) in enumerate(zip(models, processors)):
        (folder / ("source.spm", "target.spm")[side]).write_bytes(model)
        name = f"vocab{'' if shared else side}.{'yml' if yaml_vocabulary else 'spm'}"
        rows = [f"{json.dumps(processor.id_to_piece(token), ensure_ascii=False)}: {token}\n" for token in range(len(processor))]
        (folder / name).write_bytes("".join(rows).encode() if yaml_vocabulary else model)
        names.append(name)
    ties = {"tied-embeddings-all": str(shared).lower(), "tied-embeddings": str(tie != "none").lower()}
    sizes = len(processors[0]), len(processors[1])
    settings = NPZ | ties | {"transformer-ffn-activation": activation, "dim-vocabs": list(sizes)} | changes
    arrays = npz_arrays(settings, sizes)
    text = "".join(f"{name}: {json.dumps(value) if value == '' else value}\n" for name, value in settings.items())
    np.savez(folder / "model.npz", **arrays, **{"special:model.yml": np.frombuffer(text.encode() + b"\0", np.int8)})
    decoder = f"relative-paths: true\nmodels:\n  - model.npz\nvocabs:\n  - {names[0]}\n  - {names[1]}\nbeam-size: 4\nnormalize: 1\n"
    (folder / "decoder.yml").write_text(decoder)
    return settings, arrays
