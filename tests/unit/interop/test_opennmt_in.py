"""Checkpoints in OpenNMT-py's layout come in: probabilities and translations are those of CTranslate2's own converter for it."""

import argparse
import os

import pytest
import sentencepiece
import torch

from marian_models import learn, sentences
from samples import write_pairs
from undivided.artifact import load_artifact
from undivided.cli import main
from undivided.config import ModelConfig, SearchConfig
from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS
from undivided.inference.search import forced_scores, search
from undivided.inference.translator import Translator
from undivided.interop.door import import_model
from undivided.interop.export import export_model
from undivided.interop.foreign import read_foreign_json
from undivided.look.live.page import check_live
from undivided.models import make_model
from undivided.nn.layers import sinusoids

ctranslate2 = pytest.importorskip("ctranslate2")
WIDTH, INNER, LAYERS = 32, 48, 2


class Vocab:
    """As torchtext pickles one."""

    def __init__(self, itos):
        self.itos = itos


class Field:
    def __init__(self, itos):
        self.vocab = Vocab(itos)


class MultiField:
    def __init__(self, itos):
        self.fields = [("src", Field(itos))]


def weights_of(pieces):
    chance = torch.Generator().manual_seed(5)
    found = {}

    def linear(name, rows, columns):
        found[f"{name}.weight"] = torch.randn(rows, columns, generator=chance) * 0.25
        found[f"{name}.bias"] = torch.randn(rows, generator=chance) * 0.25

    def norm(name):
        found[f"{name}.weight"] = 1 + torch.randn(WIDTH, generator=chance) * 0.2
        found[f"{name}.bias"] = torch.randn(WIDTH, generator=chance) * 0.2

    def attention(name):
        for part in ("linear_query", "linear_keys", "linear_values", "final_linear"):
            linear(f"{name}.{part}", WIDTH, WIDTH)

    for side, stack, size in (("encoder", "transformer", len(pieces[0])), ("decoder", "transformer_layers", len(pieces[1]))):
        for number in range(LAYERS):
            at = f"{side}.{stack}.{number}"
            attention(f"{at}.self_attn")
            linear(f"{at}.feed_forward.w_1", INNER, WIDTH)
            linear(f"{at}.feed_forward.w_2", WIDTH, INNER)
            norm(f"{at}.feed_forward.layer_norm")
            if side == "encoder":
                norm(f"{at}.layer_norm")
            else:
                attention(f"{at}.context_attn")
                norm(f"{at}.layer_norm_1")
                norm(f"{at}.layer_norm_2")
        norm(f"{side}.layer_norm")
        found[f"{side}.embeddings.make_embedding.emb_luts.0.weight"] = torch.randn(size, WIDTH, generator=chance) * 0.3
        found[f"{side}.embeddings.make_embedding.pe.pe"] = sinusoids(200, WIDTH)[:, None]
    return found


def make_opennmt(folder, shared=False, old=False, **changes):
    folder.mkdir()
    lines = sentences(400, 1), [line.upper() for line in sentences(400, 2)]
    models = [learn(lines[0] + lines[1], size=120)] * 2 if shared else [learn(each) for each in lines]
    pieces = []
    for model, name in zip(models, ("source.spm", "target.spm")):
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        (folder / name).write_bytes(model)
        pieces.append([processor.id_to_piece(token) for token in range(3, len(processor))])
    begins = (
        ["<unk>", "<blank>"] if old and not shared else ["<unk>", "<blank>", "<s>", "</s>"],
        ["<unk>", "<blank>", "<s>", "</s>"],
    )
    vocab = [[*first, *some] for first, some in zip(begins, pieces)]
    state = weights_of(vocab)
    if shared:
        names = [f"{side}.embeddings.make_embedding.emb_luts.0.weight" for side in ("encoder", "decoder")]
        state[names[1]] = state[names[0]]
    target = state["decoder.embeddings.make_embedding.emb_luts.0.weight"]
    chance = torch.Generator().manual_seed(6)
    drawn = torch.randn(target.shape, generator=chance) * 0.3
    generator = {"weight": target if shared else drawn, "bias": torch.randn(len(target), generator=chance) * 0.1}
    settings = {
        "encoder_type": "transformer", "decoder_type": "transformer", "enc_layers": LAYERS, "dec_layers": LAYERS, "heads": 4,
        "position_encoding": True, "max_relative_positions": 0, "pos_ffn_activation_fn": "relu", "self_attn_type": "scaled-dot",
    } | changes  # fmt: skip
    known = {"src": MultiField(vocab[0]), "tgt": MultiField(vocab[1])} if old else {"src": vocab[0], "tgt": vocab[1]}
    content = {"model": state, "generator": generator, "vocab": known, "opt": argparse.Namespace(**settings), "optim": None}
    torch.save(content, folder / "model.pt")


KINDS = {"separate": {}, "shared, gelu": {"shared": True, "pos_ffn_activation_fn": "gelu"}, "older": {"old": True}}


@pytest.fixture
def both(request, tmp_path, console):
    make_opennmt(tmp_path / "theirs", **KINDS[request.param])
    import_model(tmp_path / "theirs", tmp_path / "ours", console, "mit")
    # The file is our own: to unpickle it is safe here.
    converter = ctranslate2.converters.OpenNMTPyConverter(str(tmp_path / "theirs" / "model.pt"), unsafe_deserialization=True)
    converter.convert(str(tmp_path / "converted"))
    return load_artifact(tmp_path / "ours"), ctranslate2.Translator(str(tmp_path / "converted"), intra_threads=1)


@pytest.mark.parametrize("both", KINDS, indirect=True)
def test_it_computes_what_the_converted_model_computes(both):
    ours, theirs = both
    lines = sentences(20, 3)
    rows = ours.tokenizer.source.encode(lines)
    split = [ours.tokenizer.source.pieces(row[:-1]) for row in rows]
    found = search(ours.model, rows, SearchConfig(beam_size=1, max_extra=10), torch.device("cpu"))
    targets = [[*each[0].tokens[:15], EOS] for each in found]
    scores = forced_scores(ours.model, rows, targets, torch.device("cpu"))
    wanted = theirs.score_batch(split, [ours.tokenizer.target.pieces(row[:-1]) for row in targets])
    for one, other in zip(scores, wanted):
        assert one == pytest.approx(other.log_probs, abs=1e-4)
    # A sentence by itself and in a batch with longer ones: where `</s>` would have stood is no padding.
    single = [forced_scores(ours.model, [row], [target], torch.device("cpu"))[0] for row, target in zip(rows, targets)]
    assert all(one == pytest.approx(other, abs=1e-5) for one, other in zip(single, scores))
    never = [["<s>"], ["<blank>"]]
    written = theirs.translate_batch(split, beam_size=1, max_decoding_length=12, disable_unk=True, suppress_sequences=never)
    for one, other in zip(found, written):
        pieces = ours.tokenizer.target.pieces(one[0].tokens)[:12]
        assert other.hypotheses[0][: len(pieces)] == pieces[: len(other.hypotheses[0])]


def test_the_mark_behind_a_source_changes_nothing():
    shape = {"d_model": 16, "d_ff": 16, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 1, "tie": "none"}
    model = make_model(ModelConfig(**shape, source_eos=False), 20, 20).eval()
    read = torch.tensor([[BOS, 5, 6]])
    with torch.inference_mode():
        with_mark = model.logits(model.decode(model.encode(torch.tensor([[7, 8, EOS]]), None), read))
        model.source_embedding.weight[EOS] = 100.0
        changed = model.logits(model.decode(model.encode(torch.tensor([[7, 8, EOS]]), None), read))
        padded = model.encode(torch.tensor([[7, 8, EOS, 0, 0]]), torch.tensor([[True, True, True, False, False]]))
        empty = model.encode(torch.tensor([[EOS, 0]]), None)
    assert torch.equal(with_mark, changed)
    assert padded.mask.tolist() == [[True, True, False, False, False]]
    assert bool(empty.states.isfinite().all())


def test_it_translates_by_both_engines_is_fine_tuned_and_goes_out_again(tmp_path, console, capsys):
    make_opennmt(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours", console, "mit")
    lines = sentences(10, 4)
    texts = [
        [each.text for each in Translator(tmp_path / "ours", engine=engine).stream(lines, beam_size=1, max_extra=3)]
        for engine in ("torch", "ctranslate2")
    ]
    # That engine may round weights to 8 bits.
    assert sum(one == other for one, other in zip(*texts)) >= 7
    export_model(tmp_path / "ours", tmp_path / "out", "ctranslate2", console)
    assert read_foreign_json(tmp_path / "out" / "config.json")["add_source_eos"] is False
    import_model(tmp_path / "out", tmp_path / "back", console)
    assert not load_artifact(tmp_path / "back").recipe.model.source_eos
    again = [each.text for each in Translator(tmp_path / "back", engine="torch").stream(lines, beam_size=1, max_extra=3)]
    assert again == texts[0]
    for to in ("marian", "onnx"):
        with pytest.raises(InputError, match=r"model\.source_eos"):
            export_model(tmp_path / "ours", tmp_path / to, to, console)
    with pytest.raises(InputError, match=r"model\.source_eos"):
        check_live(load_artifact(tmp_path / "ours"), "float32")
    pair = write_pairs(tmp_path, "new", [(line, line.upper()) for line in sentences(60, 5)])
    given = ["--train", *pair, "--out", str(tmp_path / "tuned"), "--max-steps", "2", "--threads", "1"]
    assert main(["train", "--from", str(tmp_path / "ours"), *given]) == 0
    assert not load_artifact(tmp_path / "tuned").recipe.model.source_eos
    assert main(["look", str(tmp_path / "ours"), lines[0], "-o", str(tmp_path / "look.json")]) == 0


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


BAD = {
    "truncated": (lambda folder: (folder / "model.pt").write_bytes((folder / "model.pt").read_bytes()[:900]), "damaged"),
    "no subwords": (lambda folder: (folder / "source.spm").unlink(), "holds no sentencepiece model"),
    "no subwords of one side": (lambda folder: (folder / "target.spm").unlink(), "target.spm: missing"),
    "two checkpoints": (lambda folder: (folder / "b.pt").touch(), "expected one checkpoint"),
    "a link": (lambda folder: ((folder / "model.pt").unlink(), (folder / "model.pt").symlink_to("/etc/passwd")), "is a link"),
    "a link to subwords": (
        lambda folder: ((folder / "source.spm").unlink(), (folder / "source.spm").symlink_to("/etc/passwd")), "is a link",
    ),
    "a canary": (lambda folder: torch.save({"model": Canary(folder.parent / "sang")}, folder / "model.pt"), "no table 'model'"),
    "10 GB": (
        lambda folder: torch.save({"model": {"a": torch.zeros(1).expand(10 << 28)}}, folder / "model.pt"), "claims 2,684,354,560",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_folders_are_refused_in_one_line(case, tmp_path, capsys):
    make_opennmt(tmp_path / "theirs")
    act, said = BAD[case]
    act(tmp_path / "theirs")
    assert main(["import", str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    assert said in err, err
    assert not (tmp_path / "ours").exists()
    assert not (tmp_path / "sang").exists()


def test_what_cannot_be_expressed_is_refused_with_every_reason(tmp_path, console):
    changes = {"encoder_type": "brnn", "pos_ffn_activation_fn": "silu", "max_relative_positions": -1, "heads": "4"}
    make_opennmt(tmp_path / "theirs", **changes)
    with pytest.raises(InputError, match=r"encoder is 'brnn'.*'silu'.*max_relative_positions -1.*heads is '4'") as raised:
        import_model(tmp_path / "theirs", tmp_path / "ours", console)
    assert "\n" not in str(raised.value)
