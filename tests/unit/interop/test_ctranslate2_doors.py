"""CTranslate2 folders and Argos packages: out, in again, and what does not fit is refused."""

import json
import subprocess
import sys
import zipfile

import pytest
import sentencepiece
import torch

from marian_models import sentences
from samples import sentences as pairs
from undivided.artifact import load_artifact
from undivided.cli import main
from undivided.config import SearchConfig
from undivided.core.errors import InputError
from undivided.inference.engines import ctranslate2_spec
from undivided.inference.search import search
from undivided.interop.ctranslate2_in import read_variables
from undivided.interop.door import import_model
from undivided.interop.export import export_model

from test_marian_out import make_translator  # isort: skip

pytest.importorskip("ctranslate2")
LANGUAGES = {"data.source_lang": "en", "data.target_lang": "xx"}
KINDS = {
    "paper": {},
    "pre-norm": {"model.norm": "pre"},
    "separate": {"model.tie": "target", "tokens.joint": False, "model.activation": "swish"},
    "learned": {"model.positions": "learned", "model.max_positions": 64},
}


def logits_of(artifact, line="The dog sees a house."):
    row = artifact.tokenizer.source.encode([line])
    read = torch.tensor([[2, 10, 11, 12]])
    with torch.inference_mode():
        return artifact.model.logits(artifact.model.decode(artifact.model.encode(torch.tensor(row), None), read))[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_comes_back_as_it_went_out(kind, tmp_path, console):
    ours = make_translator(tmp_path / "ours", LANGUAGES | KINDS[kind])
    export_model(tmp_path / "ours", tmp_path / "out", "ctranslate2", console)
    import_model(tmp_path / "out", tmp_path / "back", console)
    back = load_artifact(tmp_path / "back")
    line = "Under the old tree."
    assert back.tokenizer.source.encode([line]) == ours.tokenizer.source.encode([line])
    assert torch.allclose(logits_of(back)[:, 3:], logits_of(ours)[:, 3:], atol=1e-4)


def translations(ours, folder, lines, beams):
    """The pieces that CTranslate2 writes by its own API, and those that we write."""
    import ctranslate2

    translator = ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=1)
    split = sentencepiece.SentencePieceProcessor(str(folder / "source.spm"))
    rows = ours.tokenizer.source.encode(lines)
    # Without a length penalty no later hypothesis can win, so that it does not matter when a search ends.
    best = search(ours.model, rows, SearchConfig(beam_size=beams, length_penalty=0.0, max_extra=20), torch.device("cpu"))
    found = [
        translator.translate_batch(
            [split.encode(line, out_type=str)], beam_size=beams, length_penalty=0, disable_unk=True, min_decoding_length=0,
            max_decoding_length=len(row) + 19, suppress_sequences=[["<pad>"], ["<s>"]],
        )[0].hypotheses[0]
        for line, row in zip(lines, rows)
    ]  # fmt: skip
    return found, [ours.tokenizer.target.pieces(each[0].tokens) for each in best]


@pytest.mark.parametrize("kind", KINDS)
def test_ctranslate2_translates_greedily_as_we_do(kind, tmp_path, console):
    ours = make_translator(tmp_path / "ours", KINDS[kind])
    export_model(tmp_path / "ours", tmp_path / "out", "ctranslate2", console)
    theirs, wanted = translations(ours, tmp_path / "out", sentences(6, 9), 1)
    assert theirs == wanted


def test_ctranslate2_finds_our_beams(model, tmp_path, console):
    export_model(model, tmp_path / "out", "ctranslate2", console)
    theirs, wanted = translations(load_artifact(model), tmp_path / "out", [source for source, _ in pairs(20, seed=4)], 4)
    assert theirs == wanted


def test_the_example_runs(tmp_path, console):
    make_translator(tmp_path / "ours", LANGUAGES)
    export_model(tmp_path / "ours", tmp_path / "out", "ctranslate2", console)
    program = [sys.executable, tmp_path / "out" / "translate.py"]
    found = subprocess.run(program, check=False, input="The dog.\nA cat.\n", capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    assert len(found.stdout.splitlines()) == 2


@pytest.mark.parametrize(("weights", "said"), [("float32", "sample sentence 1, step 1"), ("int8", "most at sample sentence")])
def test_a_folder_that_computes_something_else_fails_and_leaves_nothing(weights, said, tmp_path, monkeypatch, capsys):
    make_translator(tmp_path / "ours", LANGUAGES)
    right = ctranslate2_spec.position_rows
    monkeypatch.setattr(ctranslate2_spec, "position_rows", lambda artifact, count: right(artifact, count)[::-1].copy())
    command = ["export", str(tmp_path / "ours"), str(tmp_path / "out.argosmodel"), "--to", "argos", "--weights", weights]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert "computes something else" in error
    assert said in error
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_16_bit_weights_go_out_wherever_they_are_computed(model, tmp_path, console):
    export_model(model, tmp_path / "out", "ctranslate2", console, "int16")
    import_model(tmp_path / "out", tmp_path / "back", console)
    assert load_artifact(tmp_path / "back").facts["dequantised"] == "int16"


def test_a_package_goes_out_and_in_with_8_bit_weights(tmp_path, console):
    ours = make_translator(tmp_path / "ours", LANGUAGES)
    export_model(tmp_path / "ours", tmp_path / "a.argosmodel", "argos", console, "int8")
    import_model(tmp_path / "a.argosmodel", tmp_path / "back", console, license="MIT")
    back = load_artifact(tmp_path / "back")
    assert (back.facts["dequantised"], back.facts["license"]) == ("int8", "MIT")
    assert (back.recipe.data.source_lang, back.recipe.data.target_lang) == ("en", "xx")
    assert float((logits_of(back)[:, 4:] - logits_of(ours)[:, 4:]).abs().mean()) < 0.2


def tampered(path, entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


GOOD = {"p/metadata.json": "{}", "p/sentencepiece.model": b"x", "p/model/config.json": "{}", "p/model/shared_vocabulary.json": "[]"}
BAD = {
    "outside": (GOOD | {"p/../../evil": "x"}, "outside of its folder"),
    "absolute": (GOOD | {"/etc/evil": "x"}, "outside of its folder"),
    "two folders": (GOOD | {"q/x": "x"}, "expected one folder"),
    "without weights": (GOOD, "model.bin is missing"),
    "a bomb": (GOOD | {"p/model/model.bin": b"\0" * (64 << 20)}, "more than is believable"),
    "no model": (GOOD | {"p/model/model.bin": b"abcdef"}, "no CTranslate2 model"),
    "no vocabulary": (GOOD | {"p/model/shared_vocabulary.json": "{", "p/model/model.bin": b"x"}, "cannot be read as JSON"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_package_is_refused_in_one_line(case, tmp_path, console):
    entries, said = BAD[case]
    with pytest.raises(InputError, match=said) as raised:
        import_model(tampered(tmp_path / "a.argosmodel", entries), tmp_path / "out", console)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_variable_that_claims_more_than_there_is():
    head = b"\x06\0\0\0" + b"\x10\0TransformerSpec\0" + b"\x07\0\0\0" + b"\x01\0\0\0" + b"\x02\0a\0"
    claim = b"\x02" + (100_000).to_bytes(4, "little") * 2 + b"\0" + (4_000_000_000).to_bytes(4, "little")
    with pytest.raises(ValueError, match="in the middle"):
        read_variables(head + claim + b"\0" * 8)


def test_every_reason_is_said_at_once(tmp_path, console):
    make_translator(tmp_path / "ours", {})
    with pytest.raises(InputError, match=r"does not end with .argosmodel; the languages"):
        export_model(tmp_path / "ours", tmp_path / "a.zip", "argos", console)


def test_a_folder_without_its_parts_is_refused(tmp_path, console):
    (tmp_path / "model.bin").write_bytes(b"")
    (tmp_path / "config.json").write_text(json.dumps({}))
    with pytest.raises(InputError, match=r"shared_vocabulary.*sentencepiece"):
        import_model(tmp_path, tmp_path / "out", console)
