"""What the tests of doors share."""

import pytest
import torch

from undivided.core.console import Console


@pytest.fixture
def console():
    return Console(quiet=True)


@pytest.fixture(autouse=True)
def one_thread():
    """Models of a few thousand weights: more threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
