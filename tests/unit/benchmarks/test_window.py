"""`benchmarks/window.py` measures what it says: every way, every attention, and blocks only where it says so."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import torch
import window

from undivided.nn.local import LocalMask


def test_speeds_of_every_way_and_attention():
    found = window.speeds({"length": 24, "windows": [8], "rounds": 1, "threads": torch.get_num_threads()})
    assert {way: set(each) for way, each in found.items()} == {
        "training": {"dense", "r = 8", "r = 8, masked"},
        "reading": {"dense", "r = 8", "r = 8, masked"},
        "writing": {"dense", "r = 8"},
    }
    assert all(seconds > 0 for each in found.values() for seconds in each.values())


def test_masked_means_over_all_scores(monkeypatch):
    made, original = [], LocalMask.attend
    monkeypatch.setattr(LocalMask, "attend", lambda self, *rest: made.append(self) or original(self, *rest))
    tokens, outs = torch.randint(5, 50, (1, 200)), []
    for name, blocks in (("dense", 0), ("r = 8", 2), ("r = 8, masked", 0)):
        made.clear()
        with window.blocks_allowed(name), torch.no_grad():
            outs.append(window.make(name).eval()(tokens))
        assert len(made) == blocks
    torch.testing.assert_close(outs[1], outs[2], atol=1e-5, rtol=0)
    assert (outs[0] - outs[1]).abs().max() > 0.01
