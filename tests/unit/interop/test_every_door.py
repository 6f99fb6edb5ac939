"""Every door in, with files that are cut, changed, linked or gone: one line, exit 2, nothing written; or a model like any other."""

import json
import os
import random
import shutil
import zipfile

import pytest
import torch

from marian_models import make_marian, make_npz
from undivided.artifact import load_any
from undivided.cli import main
from undivided.core.console import Console
from undivided.interop.door import import_model
from undivided.interop.export import export_model

from test_fairseq_in import make_fairseq  # isort: skip
from test_marian_out import make_translator  # isort: skip
from test_opennmt_in import make_opennmt  # isort: skip
from test_relatives_in import bert, byte_bpe, gpt2, saved, wordpiece  # isort: skip

transformers = pytest.importorskip("transformers")
pytest.importorskip("ctranslate2")


def make_ctranslate2(folder):
    make_translator(folder.parent / "made", {"data.source_lang": "en", "data.target_lang": "xx"})
    export_model(folder.parent / "made", folder, "ctranslate2", Console(quiet=True))


def make_argos(folder):
    folder.mkdir()
    make_translator(folder.parent / "made", {"data.source_lang": "en", "data.target_lang": "xx"})
    export_model(folder.parent / "made", folder / "a.argosmodel", "argos", Console(quiet=True))


def make_gpt2(folder):
    folder.mkdir()
    split = byte_bpe(folder, apart=True)
    gpt2(folder, len(split), *split.convert_tokens_to_ids(["<|endoftext|>"] * 2))


def make_bert(folder):
    folder.mkdir()
    bert(folder, "BertForMaskedLM", len(wordpiece(folder, apart=False)))


def make_vit(folder):
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    saved(transformers.ViTForImageClassification(transformers.ViTConfig(**shape, image_size=8, patch_size=4)), folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5], "image_std": [0.5], "do_normalize": True}))


DOORS = {
    "marian": make_marian, "marian, pickled": lambda folder: make_marian(folder, binary=True), "npz": make_npz,
    "fairseq": make_fairseq, "opennmt": make_opennmt, "ctranslate2": make_ctranslate2, "argos": make_argos, "gpt2": make_gpt2,
    "bert": make_bert, "vit": make_vit,
}  # fmt: skip


@pytest.fixture(scope="module", params=DOORS)
def good(request, tmp_path_factory):
    """A good folder, and what to import of it."""
    home = tmp_path_factory.mktemp("good")
    DOORS[request.param](home / "theirs")
    name = "theirs/a.argosmodel" if request.param == "argos" else "theirs"
    import_model(home / name, home / "ours", Console(quiet=True))
    return home / "theirs", name


UNREAD = (
    "generation_config.json", "README.md", "translate.py", "special_tokens_map.json", "tokenizer_config.json", "training_args.bin",
)  # fmt: skip
"""Files that some of these folders have and that nothing, or not every door, reads."""


def judge(path, home, capsys):
    """Import; either a model that loads, or one line, exit 2 and nothing."""
    capsys.readouterr()
    code = main(["import", str(path), str(home / "ours")])
    err = capsys.readouterr().err
    if code == 0:
        load_any(home / "ours")
        shutil.rmtree(home / "ours")
    else:
        # Changed weights may be a model that another engine computes otherwise; that is found out at the end and is exit 1.
        assert code == 2 or "computes something else" in err, err
        assert err.count("\n") == 1, err
        assert "Traceback" not in err
        assert not (home / "ours").exists()
    return code


def copies(good, tmp_path):
    """For each file of the folder a copy of the folder, and that file in it."""
    folder, name = good
    for part in sorted(path.name for path in folder.iterdir()):
        shutil.rmtree(tmp_path / "theirs", ignore_errors=True)
        shutil.copytree(folder, tmp_path / "theirs")
        yield tmp_path / "theirs" / part, tmp_path / name


def test_truncated_files(good, tmp_path, capsys):
    codes = []
    for share in (0.0, 0.3, 0.9):
        for part, path in copies(good, tmp_path):
            part.write_bytes(part.read_bytes()[: int(share * part.stat().st_size)])
            codes.append(judge(path, tmp_path, capsys))
    # A part of a list of words is a list of words: of most files it is nothing.
    assert codes.count(0) <= len(codes) / 2


def test_changed_bytes(good, tmp_path, capsys):
    chance = random.Random(1)
    for _ in range(3):
        for part, path in copies(good, tmp_path):
            content = bytearray(part.read_bytes())
            for _ in range(chance.choice((1, 10, 200))):
                content[chance.randrange(min(len(content), chance.choice((50, 1000, 1 << 30))))] = chance.randrange(256)
            part.write_bytes(content)
            judge(path, tmp_path, capsys)


def test_missing_and_linked_files(good, tmp_path, capsys):
    for part, path in copies(good, tmp_path):
        aside = tmp_path / "aside"
        shutil.move(part, aside)
        judge(path, tmp_path, capsys)
        part.symlink_to(aside)
        if part != path and part.name not in UNREAD:
            assert judge(path, tmp_path, capsys) == 2, part.name


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize(("door", "make"), [("fairseq", make_fairseq), ("opennmt", make_opennmt)])
def test_a_canary_in_a_checkpoint_does_not_sing(door, make, tmp_path, capsys):
    make(tmp_path / "theirs")
    path = next((tmp_path / "theirs").glob("*.pt"))
    found = torch.load(path, weights_only=False)
    torch.save(found | {"canary": Canary(tmp_path / "sang")}, path)
    # Beside the weights it is data that nothing looks at; in their place it is no weight.
    assert judge(tmp_path / "theirs", tmp_path, capsys) == 0
    torch.save(found | {"model": Canary(tmp_path / "sang")}, path)
    assert judge(tmp_path / "theirs", tmp_path, capsys) == 2
    assert not (tmp_path / "sang").exists()


def changed(name, **settings):
    def act(folder):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))

    return act


def aliases(folder):
    """A licence whose text would have 10¹⁰ words."""
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    (folder / "README.md").write_text("---\n" + "\n".join([*rows, "license: *a9"]) + "\n---\n")


def nested(folder):
    (folder / "README.md").write_text("---\nlicense: " + "[" * 50_000 + "\n---\n")


GREEDY = {
    "labels": changed("config.json", num_labels=10**10),
    "positions": changed("config.json", max_position_embeddings=10**10),
    "a card of aliases": aliases,
    "a card of brackets": nested,
}


@pytest.mark.parametrize("case", GREEDY)
def test_a_folder_cannot_ask_for_memory_by_what_is_not_needed(case, tmp_path, capsys):
    make_marian(tmp_path / "theirs")
    GREEDY[case](tmp_path / "theirs")
    assert judge(tmp_path / "theirs", tmp_path, capsys) == 0


@pytest.mark.parametrize("changes", [{"encoder_embed_dim": 10**7, "decoder_embed_dim": 10**7}, {"encoder_layers": 10**9}])
def test_a_checkpoint_of_fairseq_cannot_ask_for_memory(changes, tmp_path, capsys):
    make_fairseq(tmp_path / "theirs", **changes)
    assert judge(tmp_path / "theirs", tmp_path, capsys) == 2


@pytest.mark.parametrize("language", ["../../x", "/etc/x", "a/../../x", "..\\x"])
def test_languages_are_no_paths(language, tmp_path, capsys):
    make_fairseq(tmp_path / "theirs", source_lang=language)
    assert judge(tmp_path / "theirs", tmp_path, capsys) == 2
    make_argos(tmp_path / "package")
    path = tmp_path / "package" / "a.argosmodel"
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            other = json.dumps({"from_code": language, "to_code": "en"}).encode()
            archive.writestr(name, other if name.endswith("metadata.json") else content)
    assert judge(path, tmp_path, capsys) == 2


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "C:\\x", "b/metadata.json"])
def test_entries_outside_of_a_package(name, tmp_path, capsys):
    make_argos(tmp_path / "theirs")
    with zipfile.ZipFile(tmp_path / "theirs" / "a.argosmodel", "a") as archive:
        archive.writestr(name, b"x")
    assert judge(tmp_path / "theirs" / "a.argosmodel", tmp_path, capsys) == 2
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["theirs", "made.npz", "made.bin", "made.argosmodel", "model.safetensors"])
def test_other_things_are_refused(name, tmp_path, capsys):
    path = tmp_path / name
    (path.mkdir if name == "theirs" else path.touch)()
    assert judge(path, tmp_path, capsys) == 2
    assert judge(tmp_path / "none", tmp_path, capsys) == 2
