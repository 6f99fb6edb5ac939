"""Waiting for a page whose policy forbids `eval`, which playwright's own `wait_for_function` needs."""

from typing import Any


def wait_until(tab: Any, expression: str, argument: Any = None, seconds: float = 30.0) -> None:
    """Wait until an expression, or a function of the argument, is true in the page."""
    for _ in range(int(seconds * 40)):
        if tab.evaluate(expression, argument):
            return
        tab.wait_for_timeout(25)
    raise AssertionError(f"not within {seconds:g} s: {expression}")
