"""The role label of control plane nodes. Nodes may not label themselves with a role."""

from __future__ import annotations

from kindling.controllers.environment import Environment
from kubecore.errors import ignoring
from kubecore.objects import meta
from kubecore.resources import NODES
from kubecore.runtime import DONE, Key, Result

NAME = "node-roles"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


class NodeRoles:
    """Keyed by node."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        self._control_planes = environment.control_planes
        self._nodes = environment.manager.informer(NODES)
        environment.controller(NAME, self.reconcile).watch(self._nodes)

    async def reconcile(self, key: Key) -> Result:
        """Label one node, also when the label was removed."""
        node = self._nodes.get(None, key[1])
        if node is None or key[1] not in self._control_planes or CONTROL_PLANE in meta.labels(node):
            return DONE
        with ignoring(404):
            await self._client.patch(
                NODES, key[1], {"metadata": {"labels": {CONTROL_PLANE: ""}}}, type="strategic"
            )
        return DONE
