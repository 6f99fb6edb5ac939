"""Export for Marian, Bergamot and Firefox: what is written is what the formats say, and comes in again."""

import itertools
import struct

import numpy as np
import pytest
import sentencepiece
import torch

from bergamot_models import random_model, trained_model
from samples import sentences
from undivided.artifact import load_artifact, save_artifact
from undivided.config import SearchConfig
from undivided.core.errors import InputError, UndividedError
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.data.shortlist import Shortlist
from undivided.inference.search import search
from undivided.interop import bergamot_parity
from undivided.interop.bergamot_out import export_bergamot
from undivided.interop.bergamot_parity import sample_rows
from undivided.interop.door import import_model
from undivided.interop.export import export_model
from undivided.interop.input_scales import measure_inputs
from undivided.interop.lexical_shortlist import MAGIC, word_lists, write_shortlist
from undivided.interop.marian_bin import is_bin, is_weight, read_bin, write_bin

KINDS = {"ssru": {}, "attention": {"decoder_self": "attention"}, "two vocabularies": {"tie": "target"}, "untied": {"tie": "none"}}


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    return trained_model(tmp_path_factory.mktemp("learned"))


@pytest.fixture(scope="module", params=KINDS)
def artifact(request, translator):
    return random_model(translator.artifact.tokenizer, **KINDS[request.param])


@torch.inference_mode()
def logits(model, source, read):
    return model.logits(model.decode(model.encode(torch.tensor([source]), None), torch.tensor([read])))[0]


def test_float_weights_come_in_again_as_they_went_out(artifact, tmp_path, console):
    """The same logits, to the last bit; out once more, the same arrays."""
    save_artifact(artifact, tmp_path / "m")
    export_model(tmp_path / "m", tmp_path / "out", "bergamot", console, "float32")
    again = import_model(tmp_path / "out", tmp_path / "again", console)
    assert (again.recipe.model.decoder_self, again.recipe.model.start) == (artifact.recipe.model.decoder_self, "zero")
    ids = {piece: token for token, piece in enumerate(again.tokenizer.source.pieces(range(len(again.tokenizer.source))))}
    theirs = {piece: token for token, piece in enumerate(again.tokenizer.target.pieces(range(len(again.tokenizer.target))))}
    columns = [theirs[piece] for piece in artifact.tokenizer.target.pieces(range(EOS, len(artifact.tokenizer.target)))]
    for row in sample_rows(artifact, 5):
        read = [BOS, *row[:4]]
        moved = [ids[piece] for piece in artifact.tokenizer.source.pieces(row)]
        other = [BOS, *(theirs[piece] for piece in artifact.tokenizer.target.pieces(read[1:]))]
        torch.testing.assert_close(
            logits(again.model, moved, other)[:, columns], logits(artifact.model, row, read)[:, EOS:], atol=1e-6, rtol=0
        )
    export_model(tmp_path / "again", tmp_path / "third", "bergamot", console, "float32")
    first, third = (np.load(tmp_path / name / "model.npz") for name in ("out", "third"))
    for name in first:
        known = third[name][: len(first[name])] if "Wemb" in name else third[name][..., : first[name].shape[-1]]
        if "logit_out_b" not in name and "special" not in name:
            assert np.array_equal(known, first[name]), name


def test_rounded_weights_are_near_and_come_in(artifact, tmp_path, console):
    save_artifact(artifact, tmp_path / "m")
    export_model(tmp_path / "m", tmp_path / "floats", "bergamot", console, "float32")
    parts = bergamot_parity.splits_by_merges(artifact.tokenizer.source.model)
    assert parts, "the subwords of the shared model are merges, so nothing is compared here"
    export_model(tmp_path / "m", tmp_path / "bytes", "bergamot", console)
    exact, near = np.load(tmp_path / "floats" / "model.npz"), read_bin(tmp_path / "bytes" / "model.intgemm8.bin")
    for name in exact:
        if is_weight(name):
            assert np.abs(near[name] - exact[name]).max() <= np.abs(exact[name]).max() / 127 / 2 + 1e-6, name
            alpha = "none" if "Wemb" in name else name
            assert near[f"{alpha}_QuantMultA"].shape == (1, 1)
        else:
            assert np.array_equal(near[name], exact[name]), name
    again = import_model(tmp_path / "bytes", tmp_path / "again", console)
    assert again.facts["origin"]["format"] == "Marian"


def test_a_file_is_laid_out_as_its_readers_read_it(tmp_path):
    """By another reading of the same bytes: contents begin at multiples of 256, matrices lie transposed, embeddings do not."""
    chance = np.random.default_rng(1)
    arrays = {
        "Wemb": chance.normal(size=(5, 3)).astype(np.float32),
        "encoder_l1_self_Wq": chance.normal(size=(3, 4)).astype(np.float32),
        "encoder_l1_self_bq": chance.normal(size=(1, 4)).astype(np.float32),
        "special:model.yml": np.frombuffer(b"a: b\n\0", np.int8),
    }
    content = write_bin(arrays, rounded=True)
    version, count = struct.unpack_from("<QQ", content)
    assert (version, count) == (1, 4)
    headers = [struct.unpack_from("<4Q", content, 16 + 32 * at) for at in range(count)]
    assert [header[1] for header in headers] == [0x4101, 0x4101, 0x0404, 0x0101]
    place = 16 + 32 * count + sum(header[0] for header in headers) + 4 * sum(header[2] for header in headers)
    place += 8 + struct.unpack_from("<Q", content, place)[0]
    assert place % 256 == 0
    for name, header in zip(arrays, headers):
        assert header[3] % 256 == 0
        held, place = content[place : place + header[3]], place + header[3]
        if header[1] == 0x4101:
            stored = arrays[name] if name == "Wemb" else arrays[name].T
            (scale,) = struct.unpack_from("<f", held, stored.size)
            assert scale == pytest.approx(127 / np.abs(stored).max())
            assert np.frombuffer(held, np.int8, stored.size).tolist() == np.rint(stored * np.float32(scale)).flatten().tolist()
    assert place == len(content)


def test_damaged_files_are_refused(tmp_path, console):
    content = write_bin({"a_W": np.ones((8, 8), np.float32), "special:model.yml": np.frombuffer(b"a: b\n\0", np.int8)}, True)
    path = tmp_path / "model.bin"
    for size in (17, 40, 90, 130, 300, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(InputError, match="damaged, it cannot be read as a binary model of Marian"):
            read_bin(path)
    for at, value in (
        (8, 1 << 40),
        (16, 1 << 60),
        (24, 0x999),
        (32, 1 << 50),
        (40, 1 << 62),
        (16 + 64 + 4 + 18, 8 << 32 | 1 << 30),
    ):
        path.write_bytes(content[:at] + struct.pack("<Q", value) + content[at + 8 :])
        with pytest.raises(InputError, match="damaged"):
            read_bin(path)
    path.write_bytes(content)
    assert is_bin(path)
    with pytest.raises(InputError, match="vocabulary"):
        import_model(tmp_path, tmp_path / "out", console)


def test_what_cannot_be_expressed_is_refused_with_every_reason(translator, tmp_path):
    bad = random_model(translator.artifact.tokenizer, norm="pre", activation="gelu", positions="sinusoidal", window=4, d_ff=100)
    bad.model.target_embedding.weight.data[BOS, 0] = 1.0
    with pytest.raises(InputError) as refused:
        export_bergamot(bad, tmp_path, "int8")
    for reason in (
        "pre-norm",
        "window",
        "gelu",
        "positions other than",
        "starts from the vector of <s>",
        "model.d_ff: no multiple",
    ):
        assert reason in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_only_some_types_of_weights(run, model, tmp_path):
    ran = run("export", model, tmp_path / "out", "--to", "bergamot", "--weights", "int16")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "bergamot does not store weights so" in ran.err


def test_the_subword_model_has_the_order_of_marian(artifact, tmp_path):
    export_bergamot(artifact, tmp_path, "float32")
    shared = artifact.recipe.model.tie == "all"
    for side, name in ((artifact.tokenizer.source, "source"), (artifact.tokenizer.target, "target")):
        theirs = sentencepiece.SentencePieceProcessor(str(tmp_path / ("vocab.spm" if shared else f"{name}.spm")))
        assert (theirs.eos_id(), theirs.unk_id(), theirs.bos_id(), theirs.pad_id()) == (0, 1, -1, -1)
        assert len(theirs) % 8 == 0
        for source, target in sentences(20, seed=3):
            for text in (source, target, "Zürich 東京 5"):
                wanted = side.pieces(side.encode([text])[0][:-1])
                assert theirs.encode(text, out_type=str) == wanted
                assert theirs.decode(theirs.encode(text)) == side.decode(side.encode([text]))[0]


def read_lists(content):
    """What a shortlist says of each source word, read as its readers do."""
    magic, _, first, _, offsets, words = struct.unpack_from("<6Q", content)
    assert magic == MAGIC
    assert len(content) == 48 + 8 * offsets + 4 * words
    table = np.frombuffer(content, "<u8", offsets, 48).tolist()
    assert all(each < words for each in table[:-1])
    assert table[-1] == words
    listed = np.frombuffer(content, "<u4", words, 48 + 8 * offsets).tolist()
    return first, [listed[begin:end] for begin, end in itertools.pairwise(table)]


def test_a_shortlist_allows_what_ours_allows():
    likely = np.full((8, 40), PAD, np.int32)
    likely[4, :2], likely[5, :1] = [6, 7], [4]
    source, target = [EOS, UNK, 4, 5, 6, 7, -1, -1], [EOS, UNK, 7, 6, 5, 4, -1, -1]
    lists = word_lists(Shortlist(np.array([EOS, 5], np.int32), likely), source, target, {5: 5})
    first, found = read_lists(write_shortlist(lists))
    assert (first, found) == (2, [[0, 4], [0], [2, 3], [4, 5], [0], [0], [0], [0]])
    assert word_lists(None, source, target, {})[0] == [0, 1, 2, 3, 4, 5]


def test_the_checksum_is_that_of_boost():
    """Of numbers combined one after another, in 64 bits."""
    content = write_shortlist([[0, 3], [1]])
    seed = 0
    for (number,) in struct.iter_unpack("<Q", content[16 : 16 + (len(content) - 16) // 8 * 8]):
        seed ^= (number + 0x9E3779B9 + ((seed << 6) % 2**64) + (seed >> 2)) % 2**64
    assert struct.unpack_from("<Q", content, 8) == (seed,)


@torch.inference_mode()
def test_input_scales_are_the_largest_inputs(translator):
    """Of one sentence, by a pass written out: what the first products of encoder and decoder read."""
    artifact = random_model(translator.artifact.tokenizer)
    row, model = sample_rows(artifact, 1)[0], artifact.model
    found = measure_inputs(model, [row])
    best = search(model, [row], SearchConfig(beam_size=1, max_extra=20), torch.device("cpu"))[0][0].tokens
    first = model.encoder[0]
    x = model.source_embedding(torch.tensor([row]))
    assert found["encoder.0.self_attention.qkv"] == pytest.approx(float(x.abs().max()))
    x = first.residuals[0](x, lambda x: first.self_attention(x, None))
    assert found["encoder.0.feed_forward.inner"] == pytest.approx(float(x.abs().max()), rel=1e-5)
    inner = torch.nn.functional.linear(x, first.feed_forward.inner.weight, first.feed_forward.inner.bias).relu()
    assert found["encoder.0.feed_forward.outer"] == pytest.approx(float(inner.max()), rel=1e-5)
    y = model.target_embedding(torch.tensor([[BOS, *best]]))
    assert found["decoder.0.recurrence.forget"] == found["decoder.0.recurrence.candidate"] == pytest.approx(float(y.abs().max()))
    states = model.decode(model.encode(torch.tensor([row]), None), torch.tensor([[BOS, *best]]))
    assert found["output"] == pytest.approx(float(states.abs().max()), rel=1e-5)


def test_an_engine_that_fails_is_named():
    with pytest.raises(UndividedError, match=r"the other engine failed: .*no such thing"):
        bergamot_parity.run_peer("raise SystemExit('no such thing')", [])


def test_a_trained_model_comes_back_from_8_bits(learned, tmp_path, console):
    """Dequantised, it still translates; the import says what was lost."""
    save_artifact(learned, tmp_path / "m")
    export_model(tmp_path / "m", tmp_path / "out", "bergamot", console)
    import_model(tmp_path / "out", tmp_path / "again", console)
    ours, theirs = learned, load_artifact(tmp_path / "again")
    lines, references = zip(*sentences(40, seed=5))

    def right(artifact):
        config, rows = SearchConfig(beam_size=1), artifact.tokenizer.source.encode(lines)
        found = search(artifact.model, rows, config, torch.device("cpu"))
        texts = artifact.tokenizer.target.decode([each[0].tokens for each in found])
        return sum(one == other for one, other in zip(texts, references))

    assert right(ours) >= 38
    assert right(theirs) >= right(ours) - 1
