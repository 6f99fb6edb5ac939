"""What of several processes can be seen in one; tests/system/test_processes.py starts several."""

import pytest
import torch

from undivided.config import BatchesConfig, Recipe
from undivided.core.errors import InputError
from undivided.training.distributed import BUCKET, Group, _buckets, full_tensor, join_processes, local_rows, shard_like
from undivided.training.recipe import ResolvedRun
from undivided.training.resume import Record


def test_alone_nothing_is_sent_and_everything_is_so():
    group, tensor = Group(), torch.ones(3)
    group.all_reduce_sum([tensor])
    group.broadcast([tensor])
    group.wait()
    assert group.is_main
    assert tensor.tolist() == [1.0] * 3
    assert (group.sum_values(1, 2), group.min_values(3.0), group.broadcast_values(4)) == ([1, 2], [3.0], [4])
    assert local_rows(tensor) is full_tensor(tensor) is shard_like(tensor, tensor) is tensor


def test_without_torchrun_one_process_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join_processes("cpu") as group:
        assert (group.rank, group.size, group.device.type) == (0, 1, "cpu")


@pytest.mark.parametrize(
    ("environment", "device", "said"),
    [
        ({"WORLD_SIZE": "two"}, "cpu", "WORLD_SIZE is 'two'; start several processes with torchrun"),
        ({"WORLD_SIZE": "2"}, "cpu", "RANK is ''"),
        ({"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}, "cpu:0", "cpu:0 is one device, but several processes train"),
    ],
)
def test_an_environment_that_makes_no_sense_is_named(monkeypatch, environment, device, said):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=said), join_processes(device):
        pass


def test_buckets_hold_all_in_order_and_one_type_each():
    tensors = [torch.empty(BUCKET // 2, device="meta") for _ in range(3)] + [torch.empty(2, dtype=torch.float64, device="meta")]
    buckets = list(_buckets(tensors))
    assert [id(tensor) for bucket in buckets for tensor in bucket] == [id(tensor) for tensor in tensors]
    assert [len(bucket) for bucket in buckets] == [2, 1, 1]


@pytest.mark.parametrize(
    ("accumulate", "workers", "processes", "parts"),
    [(1, 1, 1, 1), (2, 2, 1, 2), (1, 1, 8, 8), (16, 1, 8, 1), (3, 2, 8, 16), (4, 1, 8, 2)],
)
def test_processes_share_the_micro_batches_of_a_step_evenly(accumulate, workers, processes, parts):
    resolved = ResolvedRun(Recipe(batches=BatchesConfig(accumulate=accumulate)), Record({}, {}, {}, 0), resumes=False)
    run = resolved.with_micro_batches(workers, processes)
    assert run.record.recipe["batches"]["parts"] == parts
    assert run.recipe.batches.parts == parts
    assert accumulate * parts % processes == 0
    assert run.with_micro_batches(5, 7) is run
