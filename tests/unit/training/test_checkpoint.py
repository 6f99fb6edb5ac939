import io

import pytest
import torch

from undivided.core import manifest
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.training import checkpoint
from undivided.training.checkpoint import Checkpoint, average_weights, newest, paths, prune, read, write


def make(value: float) -> Checkpoint:
    return Checkpoint(
        {"step": value}, {"model": {"w": torch.full((3,), value)}, "random": {"cpu": torch.zeros(2, dtype=torch.uint8)}}
    )


def gone(*_, **__):
    raise OSError("gone")


def flip(path, at=-1):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_round_trip(tmp_path):
    path = write(tmp_path, 7, make(1.0))
    found = read(path)
    assert found.state == {"step": 1.0}
    assert found.tensors.keys() == {"model", "random"}
    assert torch.equal(found.tensors["model"]["w"], torch.ones(3))


@pytest.mark.parametrize(
    ("place", "name"), [("json", "dumps"), (None, "write_tensors"), (None, "fsync"), ("manifest", "sha256_of")]
)
def test_a_failure_in_the_middle_leaves_the_previous(tmp_path, monkeypatch, place, name):
    write(tmp_path, 1, make(1.0))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint if place is None else getattr(checkpoint, place), name, gone)
        with pytest.raises(OSError, match="gone"):
            write(tmp_path, 2, make(2.0))
    assert paths(tmp_path) == [tmp_path / "step-000000001"]
    assert newest(tmp_path, Console(quiet=True)).state == {"step": 1.0}
    write(tmp_path, 3, make(3.0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000001", "step-000000003"]


def test_a_whole_checkpoint_of_the_same_step_is_left_alone(tmp_path):
    write(tmp_path, 1, make(1.0))
    write(tmp_path, 1, make(2.0))
    assert newest(tmp_path, Console(quiet=True)).state == {"step": 1.0}


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(tmp_path):
    write(tmp_path, 1, make(1.0))
    (tmp_path / "step-000000001" / "model.safetensors").write_bytes(b"broken")
    write(tmp_path, 1, make(2.0))
    assert newest(tmp_path, Console(quiet=True)).state == {"step": 2.0}
    assert (tmp_path / "step-000000001.unreadable-1" / "model.safetensors").read_bytes() == b"broken"


def test_where_none_can_be_read_it_is_an_error_that_names_them(tmp_path, monkeypatch):
    folder = tmp_path / "run" / "training" / "checkpoints"
    for step in (1, 2):
        write(folder, step, make(step))

    def refuse(*_):
        raise PermissionError(13, "Permission denied", "manifest.json")

    with monkeypatch.context() as patch:
        patch.setattr(manifest, "read_bounded", refuse)
        with pytest.raises(InputError, match=r"none of its 2 checkpoints can be read(?s:.)*step-000000001(?s:.)*--restart"):
            newest(folder, Console(quiet=True))
    assert newest(folder, Console(quiet=True)).state == {"step": 2.0}


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(tmp_path):
    (tmp_path / "checkpoints").write_text("no folder")
    with pytest.raises(OSError, match="Not a directory"):
        paths(tmp_path / "checkpoints")


def test_prune_removes_nothing_that_cannot_be_read(tmp_path):
    for step in (1, 2, 3, 4):
        write(tmp_path, step, make(step))
    (tmp_path / "step-000000001" / "manifest.json").unlink()
    flip(tmp_path / "step-000000002" / "model.safetensors")
    prune(tmp_path, 1, Console(quiet=True))
    assert [path.name[-1] for path in paths(tmp_path)] == ["1", "2", "4"]


def test_newest_passes_over_damage_and_names_it(tmp_path):
    stream = io.StringIO()
    for step in (1, 2, 3, 4, 5):
        write(tmp_path, step, make(step))
    flip(tmp_path / "step-000000005" / "model.safetensors")
    (tmp_path / "step-000000004" / "manifest.json").unlink()
    (tmp_path / "step-000000003" / "state.json").write_text("{}")
    assert newest(tmp_path, Console(quiet=True, stream=stream)).state == {"step": 2}
    said = stream.getvalue()
    assert "step-000000005: model.safetensors is damaged" in said
    assert "step-000000004: manifest.json" in said
    assert "step-000000003: state.json" in said


def test_no_checkpoint_at_all(tmp_path):
    assert newest(tmp_path, Console()) is None
    (tmp_path / "step-000000001.99.building").mkdir()
    assert newest(tmp_path, Console()) is None


def test_prune_keeps_the_newest(tmp_path):
    for step in (8, 9, 10, 100):
        write(tmp_path, step, make(step))
    prune(tmp_path, 2, Console())
    assert [path.name for path in paths(tmp_path)] == ["step-000000010", "step-000000100"]
    prune(tmp_path, 5, Console())
    assert len(paths(tmp_path)) == 2


def test_average_is_the_mean(tmp_path):
    where = [write(tmp_path, step, make(value)) for step, value in enumerate((1.0, 2.0, 6.0))]
    assert average_weights(where)["w"].tolist() == [3.0] * 3
    assert average_weights(where)["w"].dtype == torch.float32


def test_average_refuses_damaged_weights(tmp_path):
    where = [write(tmp_path, step, make(step)) for step in (1, 2)]
    flip(where[0] / "model.safetensors")
    with pytest.raises(InputError, match="step-000000001"):
        average_weights(where)


def test_no_space_is_said_before_anything_is_written(tmp_path, monkeypatch):
    write(tmp_path, 1, make(1.0))
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(OSError, match="a checkpoint needs") as caught:
        write(tmp_path, 2, make(2.0))
    assert caught.value.errno == 28
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_optimizer_goes_on_as_if_never_stopped(tmp_path, kind):
    def start():
        torch.manual_seed(1)
        layer = torch.nn.Linear(4, 4)
        return layer, kind(layer.parameters(), lr=0.1, fused=True)

    def step(layer, optimizer, number):
        layer(torch.full((2, 4), float(number))).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    whole, optimizer = start()
    names = [name for name, _ in whole.named_parameters()]
    for number in range(3):
        step(whole, optimizer, number)
    tensors = {"model": dict(whole.named_parameters()), "optimizer": checkpoint.optimizer_tensors(optimizer, names)}
    tensors["model"] = {name: tensor.detach() for name, tensor in tensors["model"].items()}
    found = read(write(tmp_path, 3, Checkpoint({}, tensors)))
    step(whole, optimizer, 3)

    other, optimizer = start()
    other.load_state_dict(found.tensors["model"])
    checkpoint.fill_optimizer(optimizer, names, found.tensors["optimizer"])
    step(other, optimizer, 3)
    assert torch.equal(whole.weight, other.weight)
    assert torch.equal(whole.bias, other.bias)


def test_random_state_round_trip(tmp_path):
    torch.manual_seed(3)
    torch.rand(5)
    path = write(tmp_path, 1, Checkpoint({}, make(1.0).tensors | {"random": checkpoint.random_tensors()}))
    expected = torch.rand(7)
    torch.manual_seed(99)
    checkpoint.fill_random(read(path).tensors["random"])
    assert torch.equal(torch.rand(7), expected)
