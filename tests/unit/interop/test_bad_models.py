"""Foreign folders that are damaged, incomplete or hostile: one line, and nothing is written."""

import json
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

from marian_models import make_marian
from undivided.cli import main
from undivided.core.errors import InputError
from undivided.interop.door import import_model
from undivided.interop.npz_file import read_npz
from undivided.interop.torch_file import read_torch_file


@pytest.fixture
def folder(tmp_path):
    make_marian(tmp_path / "theirs")
    return tmp_path / "theirs"


def change(name, **settings):
    def act(folder):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))

    return act


def truncate(name):
    def act(folder):
        path = folder / name
        path.write_bytes(path.read_bytes()[:200])

    return act


def link(folder):
    (folder / "target.spm").unlink()
    os.symlink("/etc/passwd", folder / "target.spm")


CASES = {
    "truncated weights": (truncate("model.safetensors"), "model.safetensors: damaged"),
    "truncated subwords": (truncate("source.spm"), "damaged"),
    "truncated vocabulary": (truncate("vocab.json"), "vocab.json: damaged"),
    "no vocabulary": (lambda folder: (folder / "vocab.json").unlink(), "vocab.json: missing"),
    "a link": (link, "is a link"),
    "another architecture": (change("config.json", model_type="t5"), "model_type is 't5'"),
    "two reasons": (change("config.json", decoder_ffn_dim=7, activation_function="tanh"), "ffn_dim 7 differ.*'tanh'"),
    "other sizes": (change("config.json", d_model=64), "do not fit"),
    "many layers": (change("config.json", encoder_layers=500), "expected form|only"),
    "a huge vocabulary": (change("config.json", vocab_size=10**9), "config.json says 1,000,000,000"),
    "a token of no place": (change("config.json", eos_token_id=10**6), "special tokens"),
    "text for a number": (change("config.json", d_model="32"), "d_model is '32'"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_folder_is_refused_in_one_line(case, folder, tmp_path, console):
    damage, said = CASES[case]
    damage(folder)
    with pytest.raises(InputError, match=said) as raised:
        import_model(folder, tmp_path / "out", console)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_the_command_ends_with_2_and_one_line(folder, tmp_path, capsys):
    (folder / "vocab.json").unlink()
    assert main(["import", str(folder), str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("protocol", range(6))
def test_a_canary_in_a_checkpoint_does_not_sing(protocol, tmp_path):
    program = pickle.dumps({"a": Canary(tmp_path / "sang")}, protocol)
    with zipfile.ZipFile(tmp_path / "model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", program)
    with pytest.raises(InputError, match=r"not allowed to run|no table of tensors"):
        read_torch_file(tmp_path / "model.bin")
    (tmp_path / "old.bin").write_bytes(program)
    with pytest.raises(InputError):
        read_torch_file(tmp_path / "old.bin")
    assert not (tmp_path / "sang").exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_checkpoint_is_read_without_unpickling(zipped, tmp_path):
    tensors = {"a": torch.randn(3, 4), "half": torch.randn(5).half(), "weight": torch.nn.Parameter(torch.randn(2, 2))}
    tensors["turned"] = tensors["a"].t()
    torch.save(tensors, tmp_path / "a.bin", _use_new_zipfile_serialization=zipped)
    found = read_torch_file(tmp_path / "a.bin")
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    whole = (tmp_path / "a.bin").read_bytes()
    (tmp_path / "cut.bin").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError):
        read_torch_file(tmp_path / "cut.bin")


def test_an_existing_folder_is_not_written_over(folder, tmp_path, console):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(InputError, match="exists already"):
        import_model(folder, tmp_path / "out", console)


def test_a_tensor_that_repeats_its_numbers_cannot_ask_for_10_gb(tmp_path):
    torch.save({"a": torch.zeros(1).expand(10 << 28)}, tmp_path / "a.bin")
    assert (tmp_path / "a.bin").stat().st_size < 10_000
    with pytest.raises(InputError, match="claims 2,684,354,560 numbers of a storage of 1"):
        read_torch_file(tmp_path / "a.bin")


def test_many_views_of_the_same_numbers_cannot_ask_for_10_gb(tmp_path):
    numbers = torch.zeros(1 << 18)
    torch.save({f"a{start}": numbers[start:] for start in range(100)}, tmp_path / "a.bin")
    with pytest.raises(InputError, match="4 times as large"):
        read_torch_file(tmp_path / "a.bin")


def test_names_of_the_same_view_are_no_more_than_one_tensor(tmp_path):
    numbers = torch.randn(5)
    torch.save({f"a{number}": numbers for number in range(100)}, tmp_path / "a.bin")
    found = read_torch_file(tmp_path / "a.bin")
    assert len(found) == 100
    assert all(torch.equal(each, numbers) for each in found.values())


def test_compressed_storages_cannot_ask_for_more_than_the_file_has(tmp_path):
    torch.save({f"a{number}": torch.zeros(1000) for number in range(40)}, tmp_path / "a.bin")
    with zipfile.ZipFile(tmp_path / "a.bin") as stored, zipfile.ZipFile(tmp_path / "b.bin", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in stored.namelist():
            packed.writestr(name, stored.read(name))
    assert (tmp_path / "b.bin").stat().st_size > 4000
    with pytest.raises(InputError, match="more bytes than the file has"):
        read_torch_file(tmp_path / "b.bin")


def test_an_archive_of_numpy_cannot_become_many_times_its_size(tmp_path):
    half = np.zeros(1 << 20, np.uint8)
    half[:: 1 << 7] = np.random.default_rng(1).integers(0, 256, 1 << 13)  # a hundred times as large unpacked
    np.savez_compressed(tmp_path / "a.npz", a=half)
    assert (1 << 20) / 150 < (tmp_path / "a.npz").stat().st_size < (1 << 20) / 25
    with pytest.raises(InputError, match="more than is believable"):
        read_npz(tmp_path / "a.npz")


def declare(tmp_path, size):
    header = json.dumps({"model.shared.weight": {"dtype": "F32", "shape": [size >> 2], "data_offsets": [0, size]}}).encode()
    return len(header).to_bytes(8, "little") + header + b"\0" * 64


def test_safetensors_that_declare_10_gb_are_refused(folder, tmp_path, capsys):
    (folder / "model.safetensors").write_bytes(declare(tmp_path, 10 << 30))
    assert main(["import", str(folder), str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "model.safetensors: damaged" in said
    assert not (tmp_path / "out").exists()
