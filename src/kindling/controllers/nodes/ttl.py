"""The node annotation that says how long a kubelet may cache config maps and secrets.

In larger clusters nodes cache them for longer.
"""

from __future__ import annotations

from kindling.controllers.environment import Environment
from kubecore.errors import ignoring
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import NODES
from kubecore.runtime import DONE, Key, Result

NAME = "ttl-controller"
ANNOTATION = "node.alpha.kubernetes.io/ttl"
_STEPS = ((100, 0), (500, 15), (1000, 30), (2000, 60))
"""(clusters of up to so many nodes, seconds)"""

_LARGEST = 300


def seconds(nodes: int) -> int:
    """The TTL for a cluster with this number of nodes."""
    return next((wanted for most, wanted in _STEPS if nodes <= most), _LARGEST)


class NodeTtl:
    """Keyed by node."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        self._nodes = environment.manager.informer(NODES)
        controller = environment.controller(NAME, self.reconcile)
        controller.watch(self._nodes, self._concerned)

    def _concerned(self, node: JsonObject) -> list[Key]:
        """A new node can change the TTL of all nodes."""
        wanted = str(seconds(len(self._nodes.list())))
        others = [each for each in self._nodes.list() if meta.annotations(each).get(ANNOTATION) != wanted]
        return [meta.key(each) for each in (node, *others)]

    async def reconcile(self, key: Key) -> Result:
        """Write the annotation of one node."""
        node = self._nodes.get(None, key[1])
        if node is None:
            return DONE
        wanted = str(seconds(len(self._nodes.list())))
        if meta.annotations(node).get(ANNOTATION) != wanted:
            patch = {"metadata": {"annotations": {ANNOTATION: wanted}}}
            with ignoring(404):
                await self._client.patch(NODES, key[1], patch, type="strategic")
        return DONE
