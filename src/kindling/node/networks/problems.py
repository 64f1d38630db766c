"""What keeps a pod from its networks."""

from __future__ import annotations

from kindling.node.runtime.interface import RuntimeFailure


class NetworkProblem(RuntimeFailure):
    """A pod's networks cannot be attached, in the words of Multus where it has any. Like every failure to
    set up a sandbox, it is told by an event and tried again.
    """
