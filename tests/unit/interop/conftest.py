"""What the tests of doors share."""

import pytest

from undivided.core.console import Console


@pytest.fixture
def console():
    return Console(quiet=True)
