"""Files made to harm: none runs code, none takes memory without bound, none writes elsewhere, each is refused in clear words."""

import dataclasses
import gzip
import io
import json
import lzma
import os
import pickle
import shutil
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from samples import environment, flags, sentences, tiny_recipe, write_lines, write_pairs
from undivided.artifact import demand, load_artifact, save_artifact, weights
from undivided.cli.demo import corpus as demo_text
from undivided.config import PRESETS, SearchConfig, build_recipe
from undivided.config.yaml_file import read_yaml
from undivided.core import manifest
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.data.subwords import Subwords
from undivided.data.text_files import raw_lines, zstd_module
from undivided.inference.classify import Classifier

# Canaries: pickles that leave a trace if anything unpickles them.


class Canary:
    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


def payloads(trace) -> dict[str, bytes]:
    tensors, array = io.BytesIO(), io.BytesIO()
    torch.save({"weight": Canary(trace)}, tensors)
    np.save(array, np.array([Canary(trace)], dtype=object), allow_pickle=True)
    return {"pickle": pickle.dumps(Canary(trace)), "torch": tensors.getvalue(), "numpy": array.getvalue()}


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "the canary has sung"


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A training that was begun and may go on, with everything it keeps."""
    from undivided.training.loop import train

    home = tmp_path_factory.mktemp("begun")
    recipe = tiny_recipe(home / "run", write_pairs(home, "train", sentences(40)), write_pairs(home, "valid", sentences(5, seed=2)))
    recipe["train"] |= {"max_steps": 2, "save_every": 1}
    train(recipe, Console(quiet=True))
    return home / "run"


@pytest.fixture
def copied(begun, tmp_path):
    return shutil.copytree(begun, tmp_path / "run")


def resign(path: Path) -> None:
    """Make the manifest beside a changed part agree with it, as somebody who makes a folder would."""
    beside = path.parent / manifest.NAME
    if beside.exists() and path != beside:
        listed = json.loads(beside.read_text())["sha256"]
        if path.name in listed:
            manifest.write(path.parent, listed)


MODEL_PARTS = [
    "config.json",
    "model.safetensors",
    "subwords.model",
    "shortlist.safetensors",
    "manifest.json",
    "README.md",
    "pytorch_model.bin",
    "source.model",
]
TRAINING_PARTS = [
    "training/recipe.json",
    "training/log.jsonl",
    "training/subwords/subwords.model",
    "training/store-*/store.json",
    "training/store-*/src.ids",
    "training/store-*/tgt.ends",
    *(f"training/checkpoints/step-000000002/{part}" for part in ("state.json", "manifest.json")),
    *(f"training/checkpoints/step-000000002/{part}.safetensors" for part in ("model", "optimizer", "random")),
]

MADE_AGAIN = {"training/log.jsonl", *(part for part in TRAINING_PARTS if "store-" in part), TRAINING_PARTS[7]}
"""Without these training continues: a log is only written, a store is tokenised again, of a checkpoint there is an older one."""


def test_the_canary_can_sing(trace):
    for content in payloads(trace).values():
        if content.startswith(b"\x80"):
            pickle.loads(content)
    assert trace.exists()


def plant(copied, part, content):
    path = next(iter(copied.glob(part)), copied / part)
    path.write_bytes(content)
    resign(path)


@pytest.mark.parametrize("kind", ["pickle", "torch", "numpy"])
@pytest.mark.parametrize("part", MODEL_PARTS)
def test_a_canary_in_a_model_folder(run, copied, trace, part, kind, tmp_path):
    plant(copied, part, payloads(trace)[kind])
    result = run("translate", copied, write_lines(tmp_path / "in", ["a"]), "--threads", "1", "-q")
    assert not trace.exists()
    assert "Traceback" not in result.err
    assert result.code == (0 if part in ("README.md", "pytorch_model.bin") else 2)
    assert result.code == 0 or part in result.err


@pytest.mark.parametrize("part", TRAINING_PARTS)
def test_a_canary_in_a_training(run, copied, trace, part):
    kinds = list(payloads(trace).values())
    plant(copied, part, kinds[TRAINING_PARTS.index(part) % 3])
    result = run("train", "--out", copied, "--max-steps", "3", "--quiet")
    assert not trace.exists()
    assert "Traceback" not in result.err
    assert result.code == (0 if part in MADE_AGAIN else 2)
    assert result.code == 0 or Path(part).name in result.err
    result = run("average", copied, "--last", "1", "-o", copied / "averaged")
    assert not trace.exists()
    assert "Traceback" not in result.err


def test_canaries_as_text(run, copied, trace, tmp_path):
    content = payloads(trace)["pickle"]
    names = ["a", "b", "a.tsv", "a.gz", "a.xz", "a.zst", "r.yaml"]
    for name in names:
        (tmp_path / name).write_bytes(content)
    a, b = tmp_path / "a", tmp_path / "b"
    commands = [["train", "--train", a, b, "--out", tmp_path / "m"], ["train", tmp_path / "r.yaml", "--out", tmp_path / "m"]]
    commands += [["train", "--train", tmp_path / name, b, "--out", tmp_path / "m"] for name in names[2:6]]
    commands += [["translate", copied, a, "--threads", "1", "--prefix", b], ["score", a, b], ["score", a, a, "--model", copied]]
    translations = [["translate", copied, tmp_path / name, "--threads", "1"] for name in names]
    for command in commands + translations:
        result = run(*command)
        # Bytes that are no text do not end a translation: their segments are reported.
        reported = "unknown-script" in result.err or "broken-text" in result.err
        assert result.code == 2 or (command in translations and result.code == 0 and reported), command
        assert "Traceback" not in result.err
    assert not trace.exists()


# Model folders that keep their own manifest right and lie in everything else.


@pytest.fixture
def folder(model, tmp_path):
    return shutil.copytree(model, tmp_path / "model", ignore=shutil.ignore_patterns("training"))


def refused(folder, *words):
    resign(folder / "config.json")
    with pytest.raises(InputError) as caught:
        load_artifact(folder)
    for word in words:
        assert word in str(caught.value)
    return str(caught.value)


def change(folder, *keys, value):
    config = json.loads((folder / "config.json").read_text())
    place = config
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    (folder / "config.json").write_text(json.dumps(config))


ENORMOUS = [
    (("model", "d_model"), 10**9),
    (("model", "d_model"), 10**30),
    (("model", "d_ff"), 2**40),
    (("model", "encoder_layers"), 10**12),
    (("model", "decoder_layers"), 10**30),
    (("model", "d_k"), 10**15),
    (("search", "beam_size"), 10**9),
    (("search", "n_best"), 10**9),
    (("search", "max_extra"), 10**12),
    (("search", "length_penalty"), 1e300),
    (("data", "max_length"), 10**12),
    (("data", "max_chars"), 10**18),
]


@pytest.mark.parametrize(("keys", "value"), ENORMOUS, ids=lambda value: ".".join(value) if isinstance(value, tuple) else "")
def test_a_config_that_claims_too_much_is_refused_before_memory_is_taken(folder, keys, value):
    change(folder, "recipe", *keys, value=value)
    refused(folder)


GREEDY = {"beam_size": 1000, "n_best": 1, "max_extra": 100_000}


def test_a_search_that_would_grow_without_end_is_refused_with_its_size(run, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(demand, "memory_limit", lambda: 4 << 30)
    for key, value in GREEDY.items():
        change(folder, "recipe", "search", key, value=value)
    resign(folder / "config.json")
    text = write_lines(tmp_path / "in", ["a"])
    for command in (["translate", folder, text], ["score", text, text, "--model", folder], ["look", folder, "a"]):
        result = run(*command, "--threads", "1")
        assert result.code == 2
        assert "GiB of memory" in result.err
        assert "--trust" in result.err
    for more in (["--beam-size", "2", "--max-extra", "5"], ["--trust", "--beam-size", "2", "--max-extra", "5"]):
        assert run("translate", folder, text, "--threads", "1", *more).code == 0
    from undivided import Translator

    assert Translator(folder, threads=1, engine="torch", trust=True).search_config().beam_size == 1000


def test_a_single_stack_model_that_asks_for_too_much_is_refused_before_its_weights_are_read(run, tmp_path, monkeypatch):
    text = write_lines(tmp_path / "text", ["the dog sees a tree"] * 20)
    small = ["--model.d_model", "16", "--model.d_ff", "16", "--model.n_heads", "2", "--vocab-size", "280", "--max-steps", "1"]
    train = ["train", "--model.kind", "decoder_only", "--train", text, "--out", tmp_path / "m", *small]
    assert run(*train, "--threads", "1", "--data.max_length", "8").code == 0
    change(tmp_path / "m", "recipe", "data", "max_length", value=100_000)
    resign(tmp_path / "m" / "config.json")
    monkeypatch.setattr(demand, "memory_limit", lambda: 1 << 30)
    monkeypatch.setattr(weights, "build_model", lambda *_: pytest.fail("its weights are read"))
    done = run("generate", tmp_path / "m", "the")
    assert done.code == 2
    assert "GiB of memory" in done.err


def test_an_ensemble_asks_for_no_more_memory_than_one_model(run, folder, model, tmp_path, monkeypatch):
    monkeypatch.setattr(demand, "memory_limit", lambda: 4 << 30)
    for key, value in GREEDY.items():
        change(folder, "recipe", "search", key, value=value)
    resign(folder / "config.json")
    text = write_lines(tmp_path / "in", ["a"])
    done = run("translate", folder, text, "--with", model, "--threads", "1")
    assert done.code == 2
    assert "GiB of memory" in done.err
    small = ["--beam-size", "2", "--max-extra", "5"]
    assert run("translate", folder, text, "--with", model, "--threads", "1", *small).code == 0


def test_images_are_drawn_many_at_once_and_counted_so():
    sizes = {"kind": "drawing", "image_height": 256, "image_width": 256, "patch": 2, "d_model": 64}
    recipe = build_recipe({"model": sizes})
    one, many = (demand.estimate_memory(recipe, 300, SearchConfig(beam_size=1, n_best=count), 1) for count in (1, 1000))
    assert many > one + 40 * (1 << 30), "keys and values of a thousand images"


@pytest.mark.parametrize(("length", "most"), [(16_385, 1), (257, 15), (17, 64)])
def test_long_images_are_classified_few_at_once(length, most):
    found = SimpleNamespace(
        artifact=SimpleNamespace(recipe=SimpleNamespace(max_sequence=length)), image_shape=(1, 2, 2), seen=[],
        _image_logits=lambda images: found.seen.append(len(images)) or images, _to_classes=list,
    )  # fmt: skip
    assert len(Classifier.images(found, np.zeros((100, 1, 2, 2), np.uint8))) == 100
    assert max(found.seen) == most


def test_heads_that_need_no_weights_are_refused_with_their_size(tmp_path, model, monkeypatch):
    monkeypatch.setattr(demand, "memory_limit", lambda: 4 << 30)
    from undivided import Translator
    from undivided.artifact import Artifact
    from undivided.models import make_model

    found = load_artifact(model)
    size = len(found.tokenizer.source)
    wide = dataclasses.replace(found.recipe.model, d_model=2, n_heads=65536, d_k=1, d_v=1)
    recipe = dataclasses.replace(found.recipe, model=wide)
    save_artifact(Artifact(recipe, found.tokenizer, make_model(wide, size, size)), tmp_path / "wide")
    with pytest.raises(InputError, match=r"65,536 heads.* GiB of memory.*--trust"):
        Translator(tmp_path / "wide", threads=1)


def test_settings_of_honest_models_are_not_refused():
    for preset in PRESETS:
        recipe = build_recipe({"data": {"train": []}}, preset)
        assert demand.estimate_memory(recipe, 37_000, recipe.search) < 2 << 30


def test_learned_positions_without_end(folder):
    change(folder, "recipe", "model", "positions", value="learned")
    change(folder, "recipe", "model", "max_positions", value=10**13)
    refused(folder, "do not fit")


@pytest.mark.parametrize("value", [None, [], "x", 3, {"a": {"b": 1}}, True], ids=repr)
@pytest.mark.parametrize("key", ["recipe", "vocabulary", "facts", "format", "format_version"])
def test_a_config_of_the_wrong_kind(folder, key, value):
    change(folder, key, value=value)
    if key == "facts" and isinstance(value, dict):
        # What a later release may note down does no harm.
        resign(folder / "config.json")
        load_artifact(folder)
    else:
        refused(folder, "newer" if (key, value) == ("format_version", 3) else "config.json")


def test_facts_that_no_card_can_tell(folder):
    for value in (
        {"parameters": "many", "vocabulary": 3},
        {"scores": [1]},
        {"scores": {"x": 3}},
        {"steps": 3},
        {"data": {"train": 5}},
    ):
        change(folder, "facts", value=value)
        refused(folder, "config.json is damaged")


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"recipe":' * 50_000, b"9" * 5000, b"[]", b"", b"\xff\xfe", b"{" + b" " * (17 << 20)]
)
@pytest.mark.parametrize("part", ["config.json", "manifest.json"])
def test_json_bombs(folder, part, content):
    (folder / part).write_bytes(content)
    if part == "config.json":
        resign(folder / part)
    with pytest.raises(InputError, match=part):
        load_artifact(folder)


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def claim(shape, start=0, end=4, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


OVERDECLARED = {
    "huge shape": safetensors({"output_weight": claim([10**12])}, b"\0" * 4),
    "huge shape and end": safetensors({"output_weight": claim([2**60], 0, 2**62)}, b"\0" * 4),
    "overflowing shape": safetensors({"output_weight": claim([2**33, 2**33])}, b"\0" * 4),
    "negative shape": safetensors({"output_weight": claim([-1])}, b"\0" * 4),
    "header longer than the file": safetensors({}, b"", 2**40),
    "header longer than all memory": safetensors({}, b"", 2**64 - 1),
    "overlapping": safetensors({"a": claim([1]), "b": claim([1])}, b"\0" * 4),
    "with a hole": safetensors({"a": claim([1]), "b": claim([1], 8, 12)}, b"\0" * 12),
    "nested header": safetensors(b'{"a":' * 100_000),
    "of a strange type": safetensors({"a": claim([1], dtype="PICKLE")}, b"\0" * 4),
    "of another shape": safetensors({"output_weight": claim([1])}, b"\0" * 4),
    "empty": b"",
}


@pytest.mark.parametrize("name", OVERDECLARED)
def test_overdeclared_tensors(folder, name):
    (folder / "model.safetensors").write_bytes(OVERDECLARED[name])
    refused(folder, "model.safetensors")


def varint(number: int) -> bytes:
    high, low = number >> 7, number & 0x7F
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def test_subword_models_that_lie(model, python):
    good = (model / "subwords.model").read_bytes()
    character_map = struct.pack("<I", 1024) + b"\xff\xff\xff\x7f" * 256 + b"x\0"
    bad = {
        "empty": b"",
        "not one": b"\x80\x04pickle",
        "cut": good[: len(good) // 2],
        "a piece of a megabyte": good + message(1, message(1, b"x" * 2**20)),
        "a piece twice": good + message(1, message(1, b"<s>")),
        "a piece that is no text": good + message(1, message(1, b"\xff\xfe")),
        "a character map that leads astray": good + message(3, message(2, character_map)),
        "no pieces": message(2, b""),
    }
    for name, content in bad.items():
        with pytest.raises(InputError, match="subword model"):
            pytest.fail(f"{name}: read as {len(Subwords(content))} subwords")


def test_a_subword_model_too_large_to_be_one(folder):
    with (folder / "subwords.model").open("ab") as stream:
        stream.truncate((64 << 20) + 1)
    resign(folder / "subwords.model")
    refused(folder, "subwords.model", "more than")


def test_changed_subword_models_do_not_crash(model, python):
    """A process of its own, because a fault in C++ would take this one along."""
    code = """
import random, sys
from undivided.core.errors import InputError
from undivided.data.subwords import Subwords
good, chance = open(sys.argv[1], "rb").read(), random.Random(1)
for _ in range(400):
    bad = bytearray(good)
    for _ in range(chance.choice([1, 3, 20])):
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
    try:
        words = Subwords(bytes(bad))
        words.decode(words.encode(["A dog \\u2581 sees.", "\\u6771" * 40]))
    except InputError:
        pass
print("alive")
"""
    assert python(code, model / "subwords.model") == "alive\n"


def test_a_subword_model_that_no_manifest_lists(folder):
    (folder / "source.model").write_bytes((folder / "subwords.model").read_bytes())
    refused(folder, "source.model is not listed")


# Links and names.


def test_links_and_pipes_in_place_of_parts(folder, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("top secret")
    for part in ("config.json", "model.safetensors", "subwords.model", "shortlist.safetensors", "manifest.json"):
        content = (folder / part).read_bytes()
        (folder / part).unlink()
        (folder / part).symlink_to(secret)
        with pytest.raises(InputError, match=part) as caught:
            load_artifact(folder)
        assert "top secret" not in str(caught.value)
        (folder / part).unlink()
        os.mkfifo(folder / part)
        with pytest.raises(InputError, match=f"{part} is missing"):
            load_artifact(folder)
        (folder / part).unlink()
        (folder / part).write_bytes(content)
    load_artifact(folder)


def test_a_part_may_be_a_link_to_the_right_file(folder, tmp_path):
    """Stores of models keep their files elsewhere and link to them."""
    for part in ("config.json", "model.safetensors", "subwords.model", "shortlist.safetensors", "manifest.json"):
        (folder / part).rename(tmp_path / part)
        (folder / part).symlink_to(tmp_path / part)
    load_artifact(folder)


def test_saving_into_a_planted_folder_writes_nowhere_else(folder, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    out = tmp_path / "out"
    (out / ".incoming").mkdir(parents=True)
    (out / ".incoming" / "leak").symlink_to(precious)
    for name in ("config.json", "config.json.new", "model.safetensors.new", "manifest.json", "README.md.new"):
        (out / name).symlink_to(precious)
    save_artifact(load_artifact(folder), out)
    assert precious.read_text() == "mine"
    assert not (out / "leak").exists()
    load_artifact(out)


def test_output_is_not_written_through_a_planted_link(run, model, tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out.part").symlink_to(tmp_path / "precious")
    assert run("translate", model, write_lines(tmp_path / "in", ["a"]), "-o", tmp_path / "out", "--threads", "1", "-q").code == 0
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symlink", "hard link"])
@pytest.mark.parametrize("name", ["out.shards/worker-0.log", "out.shards/joined"])
def test_workers_write_through_no_planted_link(run, model, tmp_path, name, link):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out.shards").mkdir()
    link(tmp_path / "precious", tmp_path / name)
    text = write_lines(tmp_path / "in", ["a"])
    result = run("translate", model, text, "-o", tmp_path / "out", "--workers", "1", "--engine", "torch", "-q")
    assert (tmp_path / "precious").read_text() == "mine"
    assert result.code == (2 if name.endswith("joined") and link is os.symlink else 0)
    assert result.code == 0 or "is no plain file" in result.err


def test_shards_are_not_kept_in_a_linked_folder(run, model, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.part").write_text("mine")
    (tmp_path / "out.shards").symlink_to(tmp_path / "elsewhere")
    text = write_lines(tmp_path / "in", ["a"])
    result = run("translate", model, text, "-o", tmp_path / "out", "--workers", "1", "--engine", "torch", "-q")
    assert result.code == 2
    assert "is a link" in result.err
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["mine.part"]


@pytest.mark.parametrize("name", ["out", "out.part"])
def test_score_and_look_write_through_no_planted_link(run, model, tmp_path, name):
    (tmp_path / "precious").write_text("mine")
    text = write_lines(tmp_path / "in", ["a"])
    (tmp_path / name).symlink_to(tmp_path / "precious")
    (tmp_path / name.replace("out", "out.html")).symlink_to(tmp_path / "precious")
    assert run("score", text, text, "--model", model, "-o", tmp_path / "out", "-q").code == 0
    assert run("look", model, "a", "-o", tmp_path / "out.html", "--fast", "-q").code == 0
    assert (tmp_path / "precious").read_text() == "mine"


# Packages of the demo.


def wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in members.items():
            package.writestr(name, content)
    return path


def test_packages_are_read_within_bounds_and_not_unpacked(tmp_path):
    members = {
        "../../evil/translations/de.json": b'{"a": "b c d"}',
        "/etc/translations/de.json": b'{"a": "b"}',
        "bomb/translations/de.json": b'{"a": "' + b"x" * (9 << 20) + b'"}',
        "translations/" * 4000 + "x": b"",
        "good/translations/de.json": b'{"k": "gut"}',
    }
    before = set(tmp_path.rglob("*"))
    found = demo_text.messages(wheel(tmp_path / "a.whl", members), "de")
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "a.whl"}
    assert found["good/translations/", "k"] == "gut"
    assert not any(keys[0].startswith("bomb") for keys in found)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"{", b'{"a":' * 100_000, b"\xff", b"9" * 9999])
def test_json_bombs_in_packages(tmp_path, content):
    with pytest.raises(demo_text.Unavailable, match=r"a\.whl is damaged"):
        demo_text.messages(wheel(tmp_path / "a.whl", {"x/translations/de.json": content}), "de")


def test_packages_that_are_none(tmp_path):
    good = wheel(tmp_path / "a.whl", {"x/translations/de.json": b'{"a": "b"}'}).read_bytes()
    harmed = bytearray(good)
    harmed[40] ^= 0xFF
    for content in (b"", b"PK\x03\x04", good[:-10], bytes(harmed)):
        (tmp_path / "a.whl").write_bytes(content)
        with pytest.raises(demo_text.Unavailable):
            demo_text.messages(tmp_path / "a.whl", "de")


def test_links_in_packages_lead_nowhere(tmp_path):
    (tmp_path / "secret.html").write_text("<p id=par_id1>top secret</p>")
    folder = tmp_path / "scratch" / "help" / "de" / "text"
    folder.mkdir(parents=True)
    (folder / "a.html").symlink_to(tmp_path / "secret.html")
    (folder / "b.html").write_text("<p id=par_id1>gut</p>")
    os.mkfifo(folder / "c.html")
    assert set(demo_text.help_paragraphs(tmp_path / "scratch", "de").values()) == {"gut"}


# Recipes.


BILLION_LAUGHS = "a: &a [x, x]\n" + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("!!python/object/apply:os.mkdir ['{trace}']", "no tags"),
        ("train: !!python/object/new:os.mkdir ['{trace}']", "no tags"),
        ("train: !!python/name:os.mkdir", "no tags"),
        ("train: !mine 3", "no tags"),
        (BILLION_LAUGHS, "no aliases"),
        ("a: &a\n  b: *a\n", "line 2: a recipe has no aliases"),
        ("a: &a {{b: 1}}\nc:\n  <<: *a\n", "no aliases"),
        ("[" * 100_000, "nested deeper"),
        ("".join(" " * n + "a:\n" for n in range(200)), "nested deeper"),
        ("train: {{seed: " + "9" * 5000 + "}}", "not valid YAML"),
        ("train: {{seed: 2026-99-99}}", "not valid YAML"),
        ("x" * (2 << 20), "more than"),
        ("a: \x00", "not valid YAML"),
        ("- a", "'section:' blocks"),
    ],
    ids=range(14),
)
def test_hostile_recipes(tmp_path, trace, text, said):
    text = text.replace("{trace}", str(trace)).replace("{{", "{").replace("}}", "}")
    (tmp_path / "r.yaml").write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        read_yaml(tmp_path / "r.yaml")
    assert not trace.exists()
    assert len(str(caught.value)) < 2000


def test_a_huge_value_is_quoted_in_short(run, tmp_path):
    (tmp_path / "r.yaml").write_text(f"model: {{d_model: {'x' * 500_000}}}\ntrain: {{out: {tmp_path / 'm'}}}")
    result = run("train", tmp_path / "r.yaml")
    assert result.code == 2
    assert "model.d_model: expected a whole number" in result.err
    assert len(result.err) < 2000


# Corpora.

BOMB = 150 << 20
"""Bytes that a few kilobytes unpack to."""

READER = """
import sys
from undivided.config import CorpusFiles, DataConfig
from undivided.data.corpus import CorpusReport, read_pairs
findings = CorpusReport("bomb")
kept = sum(1 for _ in read_pairs(CorpusFiles(sys.argv[1]), DataConfig(), findings))
print(kept, findings.counts.get("too_long", 0), open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


def pack(path: Path, name: str) -> Path:
    opened = {"gz": gzip.open, "xz": lzma.open, "zst": zstd_module().open}[name]
    with opened(path, "wb") as stream:
        stream.write(b"good\tgut\n")
        for _ in range(BOMB >> 20):
            stream.write(b"x" * (1 << 20))
        stream.write(b"\nlast\tzuletzt\n")
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
@pytest.mark.parametrize("name", ["gz", "xz", "zst"])
def test_a_decompression_bomb_takes_no_memory(tmp_path, python, name):
    path = pack(tmp_path / f"a.tsv.{name}", name)
    assert path.stat().st_size < 1 << 20
    kept, too_long, kilobytes = map(int, python(READER, path).split())
    assert (kept, too_long) == (2, 1)
    assert kilobytes < 100_000


def test_an_xz_file_that_asks_for_4_gib_is_refused(tmp_path):
    content = bytearray(lzma.compress(b"hello\n"))
    size = (content[12] + 1) * 4
    assert content[14:16] == b"\x21\x01", "the filter is LZMA2 with one byte of properties"
    content[16] = 40
    content[12 + size - 4 : 12 + size] = struct.pack("<I", zlib.crc32(content[12 : 12 + size - 4]))
    (tmp_path / "a.xz").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.xz: damaged.*[Mm]emory"):
        list(raw_lines(tmp_path / "a.xz"))


def test_a_zstd_file_that_asks_for_2_gib_is_refused(tmp_path):
    frame = struct.pack("<I", 0xFD2FB528) + bytes([0, 21 << 3]) + struct.pack("<I", (6 << 3) | 1)[:3] + b"hello\n"
    (tmp_path / "a.zst").write_bytes(frame)
    with pytest.raises(InputError, match=r"a\.zst: damaged.*memory"):
        list(raw_lines(tmp_path / "a.zst"))
    (tmp_path / "a.zst").write_bytes(frame[:5] + bytes([10 << 3]) + frame[6:])
    assert list(raw_lines(tmp_path / "a.zst")) == [b"hello"]


# Terminals.

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f\r\u202eevil\u2066\u2028"


def harmless(text: str) -> bool:
    return not set(text) & set("\x1b\x07\x9b\x7f\r\u202e\u2066\u2028")


def test_messages_command_no_terminal(run, model, tmp_path, folder):
    name = EVIL.replace("/", "")
    (tmp_path / "r.yaml").write_text(json.dumps({"model": {EVIL: 1}, EVIL: 3, "train": {"out": EVIL}}))
    (tmp_path / name).write_bytes(b"\0")
    change(folder, "undivided_version", value=EVIL)
    change(folder, "format_version", value=99)
    resign(folder / "config.json")
    for command in (
        ["translate", model, tmp_path / f"none{name}"],
        ["translate", tmp_path / name, tmp_path / "r.yaml"],
        ["translate", folder, tmp_path / "r.yaml"],
        ["translate", model, tmp_path / "r.yaml", "--device", EVIL],
        ["translate", model, tmp_path / "r.yaml", "--beam-size", EVIL],
        ["translate", model, tmp_path / name, "-o", tmp_path / name / "x", "--workers", "1"],
        ["train", tmp_path / "r.yaml"],
        ["train", "--train", tmp_path / name, tmp_path / name, "--out", tmp_path / "m"],
        ["train", f"--{EVIL}"],
        [EVIL],
    ):
        result = run(*command)
        assert result.code == 2, command
        assert harmless(result.err), command
        assert harmless(result.out), command
    result = run("translate", model, tmp_path / name, "--threads", "1")
    assert result.code == 0, "a NUL does not end a translation: its line is reported"
    assert "1 segment: 1 " in result.err
    assert harmless(result.err)


class Screen(io.TextIOWrapper):
    def isatty(self):
        return True


def test_translations_are_data_for_a_pipe_and_harmless_for_a_terminal(run, model, tmp_path, monkeypatch):
    from undivided.inference.translator import Translation, Translator

    def stream(self, lines, *_, **__):
        return (Translation(line, EVIL, 0.0, True) for line in lines)

    monkeypatch.setattr(Translator, "stream", stream)
    text = write_lines(tmp_path / "in", ["a"])
    assert run("translate", model, text, "--threads", "1").out == EVIL + "\n"
    run("translate", model, text, "--threads", "1", "-o", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == f"{EVIL}\n".encode()
    screen = Screen(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", screen)
    run("translate", model, text, "--threads", "1")
    screen.flush()
    shown = screen.buffer.getvalue().decode()
    assert harmless(shown)
    assert r"\x1b]0;title\x07" in shown
    assert shown.endswith("\n")
    monkeypatch.undo()


def test_console_lines_command_no_terminal():
    stream = Screen(io.BytesIO(), encoding="utf-8")
    console = Console(stream=stream)
    console.live = console.colour = False
    for tell in (console.say, console.warn, console.status):
        tell(EVIL)
    stream.flush()
    assert harmless(stream.buffer.getvalue().decode())


# The command as a whole.


def test_a_folder_from_elsewhere_runs_nothing_by_being_near(model, tmp_path):
    """Modules beside a model are not imported: the folder is data."""
    home = shutil.copytree(model, tmp_path / "m", ignore=shutil.ignore_patterns("training"))
    for name in ("sitecustomize", "torch", "json", "undivided", "conftest"):
        (home / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    command = [Path(sys.executable).with_name("undivided"), "translate", home, "--threads", "1", "-q"]
    if not command[0].exists():
        command[:1] = [sys.executable, "-P", "-m", "undivided"]
    done = subprocess.run(command, input=b"a\n", cwd=home, env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()


def test_training_flags_cannot_leave_their_kind(run, tmp_path):
    files = write_pairs(tmp_path, "train", sentences(5))
    recipe = tiny_recipe(tmp_path / "m", files)
    for text in ("__import__('os').mkdir('x')", "!!python/name:os.system", "${HOME}", "1;2"):
        result = run("train", *flags(recipe), "--model.d_model", text)
        assert result.code == 2
        assert "whole number" in result.err
