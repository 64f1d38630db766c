"""Running code inside another network namespace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyroute2 import netns

from virtplane.compute.handler.threads import in_thread

_Result = TypeVar("_Result")


async def run_in_network_namespace(namespace: int, function: Callable[[], _Result]) -> _Result:
    """Run the blocking `function` in a thread of its own that has entered the namespace of that descriptor.

    The thread ends afterwards, so no other code ever runs in the foreign namespace. Processes that the
    function starts are inside too. Raises what the function raises, and OSError.
    """

    def enter_and_run() -> _Result:
        netns.setns(namespace)
        return function()

    return await in_thread(f"netns-{namespace}", enter_and_run)
