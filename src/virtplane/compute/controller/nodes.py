"""Watches the node agents: nodes whose agent is silent take no new guests, and lost guests are told so.

It also labels nodes with the frequencies of the time stamp counter that guests can be given there.
"""

from __future__ import annotations

from datetime import datetime

from kubecore import resources
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import meta, times
from kubecore.runtime import DONE, Controller, Key, RequeueAfter, Result
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import described
from virtplane.compute.controller import pods
from virtplane.compute.controller.frequencies import frequencies_of_guests, label_changes
from virtplane.compute.controller.vmi.phases import is_final

HEARTBEAT = labels.HEARTBEAT
SCHEDULABLE = labels.SCHEDULABLE
SILENCE_SECONDS = 300.0
_LOOK_SECONDS = 30.0
_REASON = "NodeUnresponsive"


def is_unresponsive(node: JsonObject | None, now: datetime) -> bool:
    """Whether the node is deleted, or virt-handler's heartbeat too old (False if there was none)."""
    if node is None:
        return True
    beat = meta.annotations(node).get(HEARTBEAT)
    if not beat:
        return False
    try:
        return (now - times.parse_time(beat)).total_seconds() > SILENCE_SECONDS
    except ValueError:
        return True


def is_lost(vmi: VirtualMachineInstance, own: list[JsonObject]) -> bool:
    """Whether a guest cannot be running any more, because its node has no running launcher pod."""
    if is_final(vmi) or not vmi.status.node_name:
        return False
    return all(pods.is_down(pod) for pod in own if not pods.is_attachment(pod))


class NodeController:
    """Checks every node twice a minute, and when it changes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.controller = Controller("virt-controller-node", self._reconcile)
        self.controller.watch(cluster.nodes)
        self.controller.watch(cluster.vmis, _node_keys)
        self.controller.depend(cluster.pods)

    async def _reconcile(self, key: Key) -> Result:
        name = key[1]
        node = self._cluster.nodes.get(None, name)
        guests = self._cluster.vmis.by_index("node", name)
        if node is None and not guests:
            return DONE
        if node is not None:
            await self._label(node)
        if is_unresponsive(node, times.now()):
            if node is not None and meta.labels(node).get(SCHEDULABLE) == "true":
                await self._close(node)
            for vmi in guests:
                if is_lost(vmi, self._cluster.pods_of(vmi.metadata.uid)):
                    await self._fail(vmi, name)
        return RequeueAfter(_LOOK_SECONDS)

    async def _label(self, node: JsonObject) -> None:
        cluster = self._cluster
        wanted = frequencies_of_guests(cluster.vmis.list(), cluster.nodes.list(), cluster.settings())
        changes = label_changes(node, wanted)
        if changes:
            patch = {"metadata": {"labels": changes}}
            await cluster.client.patch(resources.NODES, meta.name(node), patch, type="merge")

    async def _close(self, node: JsonObject) -> None:
        patch = {"metadata": {"labels": {SCHEDULABLE: "false"}}}
        await self._cluster.client.patch(resources.NODES, meta.name(node), patch, type="merge")
        text = "virt-handler is not responsive, marking node as unresponsive"
        self._cluster.recorder.event(node, "Warning", _REASON, text)

    async def _fail(self, vmi: VirtualMachineInstance, node: str) -> None:
        operations: list[JsonObject] = [
            {"op": "test", "path": "/metadata/uid", "value": vmi.metadata.uid},
            {"op": "test", "path": "/status/phase", "value": vmi.status.phase or ""},
            {"op": "replace", "path": "/status/phase", "value": "Failed"},
            {"op": "add", "path": "/status/reason", "value": _REASON},
        ]
        try:
            await self._cluster.client.patch(
                kinds.VIRTUAL_MACHINE_INSTANCES,
                vmi.metadata.name,
                operations,
                vmi.metadata.namespace,
                type="json",
            )
        except StatusError as error:
            if is_not_found(error):
                return
            raise
        text = f"virt-handler on node {node} is not responsive, marking VMI as failed"
        self._cluster.recorder.event(described(vmi), "Warning", _REASON, text)


def _node_keys(vmi: VirtualMachineInstance) -> list[Key]:
    node = vmi.status.node_name
    return [("", node)] if node else []
