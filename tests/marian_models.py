"""Marian models made by `transformers`, with random weights and real sentencepiece."""

import io
import json
import random

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
