"""Running code inside another network namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyroute2 import netns

_Result = TypeVar("_Result")


def enter_and_run(namespace: int, function: Callable[[], _Result]) -> _Result:
    """Run `function` in the network namespace of that descriptor. Raises what it raises, and OSError.

    The calling thread stays inside, so it must be one that ends afterwards (see ``threads``). Processes that
    the function starts are inside too.
    """
    netns.setns(namespace)
    return function()
