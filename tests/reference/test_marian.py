"""Logits and generated tokens equal Hugging Face's `MarianMTModel` with the same weights."""

import pytest
import torch
from torch import nn

from undivided.config import ModelConfig, SearchConfig
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.data.batches import make_batch, pad_rows
from undivided.inference.search import search
from undivided.models import make_model

transformers = pytest.importorskip("transformers")

VOCAB = 24
SOURCES = [[5, 6, 7, 8, 9, 10, EOS], [11, 12, EOS], [13, 14, 15, 16, EOS], [EOS], [9, 9, 9, 9, EOS]]
TARGETS = [[17, 18, EOS], [19, 20, 21, 22, 23, EOS], [5, EOS], [EOS], [6, 7, 8, EOS]]


def copy(target, weight, bias):
    with torch.no_grad():
        target.weight.copy_(weight)
        target.bias.copy_(bias)


def copy_attention(target, source):
    if hasattr(source, "qkv"):
        weights, biases = source.qkv.weight.chunk(3), source.qkv.bias.chunk(3)
    else:
        weights = [source.query.weight, *source.key_value.weight.chunk(2)]
        biases = [source.query.bias, *source.key_value.bias.chunk(2)]
    for part, weight, bias in zip((target.q_proj, target.k_proj, target.v_proj), weights, biases):
        copy(part, weight, bias)
    copy(target.out_proj, source.output.weight, source.output.bias)


def copy_layer(target, source):
    copy_attention(target.self_attn, source.self_attention)
    norms = [target.self_attn_layer_norm, target.final_layer_norm]
    if hasattr(source, "cross_attention"):
        copy_attention(target.encoder_attn, source.cross_attention)
        norms.insert(1, target.encoder_attn_layer_norm)
    copy(target.fc1, source.feed_forward.inner.weight, source.feed_forward.inner.bias)
    copy(target.fc2, source.feed_forward.outer.weight, source.feed_forward.outer.bias)
    for norm, residual in zip(norms, source.residuals, strict=True):
        copy(norm, residual.norm.weight, residual.norm.bias)


def marian(ours):
    """Marian's model with the weights of ours."""
    theirs = transformers.MarianMTModel(marian_config(ours.config)).eval()
    for stack, layers in ((theirs.model.encoder, ours.encoder), (theirs.model.decoder, ours.decoder)):
        with torch.no_grad():
            stack.embed_tokens.weight.copy_(ours.output_weight)
        for layer, source in zip(stack.layers, layers, strict=True):
            copy_layer(layer, source)
    return theirs


def random_model(activation, encoder_layers, decoder_layers):
    """Biases and norms random too: they start at 0 and 1, where mistakes in them would not show."""
    torch.manual_seed(0)
    config = ModelConfig(
        d_model=16, d_ff=40, n_heads=4, encoder_layers=encoder_layers, decoder_layers=decoder_layers,
        activation=activation, positions="halves", attention_bias=True,
    )  # fmt: skip
    ours = make_model(config, VOCAB, VOCAB).eval()
    for name, parameter in ours.named_parameters():
        if name.endswith("bias") or "norm" in name:
            nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
    return ours


def marian_config(config):
    return transformers.MarianConfig(
        vocab_size=VOCAB, d_model=config.d_model, max_position_embeddings=64,
        encoder_layers=config.encoder_layers, encoder_attention_heads=config.n_heads, encoder_ffn_dim=config.d_ff,
        decoder_layers=config.decoder_layers, decoder_attention_heads=config.n_heads, decoder_ffn_dim=config.d_ff,
        activation_function=config.activation, scale_embedding=True, share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
        decoder_start_token_id=BOS, forced_eos_token_id=None,
    )  # fmt: skip


@pytest.mark.parametrize(("activation", "encoder_layers", "decoder_layers"), [("relu", 2, 2), ("swish", 2, 2), ("gelu", 3, 1)])
def test_logits_equal_marian(activation, encoder_layers, decoder_layers):
    ours = random_model(activation, encoder_layers, decoder_layers)
    theirs = marian(ours)
    batch = make_batch(SOURCES, TARGETS)
    with torch.no_grad():
        logits = ours.logits(ours.decode(ours.encode(batch.src, batch.src_mask), batch.tgt_in))
        wanted = theirs(input_ids=batch.src, attention_mask=batch.src_mask.long(), decoder_input_ids=batch.tgt_in).logits
    real = batch.tgt_out != PAD
    torch.testing.assert_close(logits[real], wanted[real], atol=1e-5, rtol=0)


def test_the_weights_were_copied_and_not_shared():
    ours = random_model("relu", 1, 1)
    theirs = marian(ours)
    assert theirs.model.encoder.embed_tokens.weight.data_ptr() != ours.output_weight.data_ptr()
    assert theirs.lm_head.weight.data_ptr() == theirs.model.decoder.embed_tokens.weight.data_ptr()


def generated(theirs, beam, steps, returned=1):
    """Tokens of each sentence without <s>, </s> and padding, and scores (a beam search's only)."""
    src = pad_rows(SOURCES)
    with torch.no_grad():
        result = theirs.generate(
            input_ids=src, attention_mask=(src != PAD).long(), num_beams=beam, num_return_sequences=returned, do_sample=False,
            max_new_tokens=steps, min_length=0, max_length=None, length_penalty=0.0, early_stopping=False,
            bad_words_ids=[[PAD], [UNK], [BOS]], return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
    rows = [[token for token in row if token > EOS] for row in result.sequences.tolist()]
    return rows, result.sequences_scores.tolist() if beam > 1 else []


def found(ours, beam, steps, n_best=1):
    """Each sentence searched alone, with the same number of steps whatever its length."""
    results = []
    for source in SOURCES:
        config = SearchConfig(beam_size=beam, n_best=n_best, length_penalty=0.0, max_extra=steps - (len(source) - 1))
        results += search(ours, [source], config, torch.device("cpu"))[0]
    return results


@pytest.fixture(scope="module")
def pair(half_learned):
    ours = half_learned(positions="halves", attention_bias=True)
    return ours, marian(ours)


@pytest.mark.parametrize("steps", [40, 9])
def test_greedy_search_equals_marian(pair, steps):
    ours, theirs = pair
    results = found(ours, 1, steps)
    assert [hypothesis.tokens for hypothesis in results] == generated(theirs, 1, steps)[0]
    assert len({tuple(hypothesis.tokens) for hypothesis in results}) == len(SOURCES)


@pytest.mark.parametrize(("beam", "n_best"), [(2, 1), (4, 1), (3, 3), (5, 5)])
def test_beam_search_equals_marian(pair, beam, n_best):
    """Marian's length penalty is another formula, so without one; it too stops when as many have ended as there are beams."""
    ours, theirs = pair
    results = found(ours, beam, 40, n_best)
    assert all(hypothesis.finished for hypothesis in results)
    rows, scores = generated(theirs, beam, 40, n_best)
    assert [hypothesis.tokens for hypothesis in results] == rows
    assert [hypothesis.score for hypothesis in results] == pytest.approx(scores, abs=1e-4)


def test_greedy_search_that_is_cut_equals_marian(pair):
    """At a limit of 3 tokens an output has 3 tokens, whether or not the last is </s>."""
    ours, theirs = pair
    results = found(ours, 1, 3)
    assert {hypothesis.finished for hypothesis in results} == {True, False}
    assert [hypothesis.tokens for hypothesis in results] == generated(theirs, 1, 3)[0]
