"""What a migration writes into its instance: by it the node agents know what to do.

Patches test every field that they change, so that they fail instead of overwriting what a node agent wrote.
"""

from __future__ import annotations

from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.objects.structs import decode
from kubecore.patch.guarded import guarded_patch
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import as_written
from virtplane.compute.controller.vmi.phases import TARGET_NODE_LABEL

_KIND = kinds.VIRTUAL_MACHINE_INSTANCES
_NONROOT = "kubevirt.io/nonroot"


async def set_runtime_user(cluster: Cluster, vmi: VirtualMachineInstance) -> VirtualMachineInstance:
    """Set the user that launchers run as now, under which the guest will run. Returns the changed
    instance.
    """
    is_root = cluster.settings().gate("Root")
    old = await as_written(cluster, _KIND, vmi)
    new = deep_copy(old)
    meta.set_annotation(new, _NONROOT, None if is_root else "true")
    new["status"]["runtimeUser"] = 0 if is_root else 107
    patched = await _patch(cluster, old, new)
    return vmi if patched is None else decode(VirtualMachineInstance, patched)


async def set_state(
    cluster: Cluster, vmi: VirtualMachineInstance, state: JsonObject, target_node: str | None = None
) -> None:
    """Write the migration state, and with `target_node` the label by which that node's virt-handler
    finds it.
    """
    old = await as_written(cluster, _KIND, vmi)
    new = deep_copy(old)
    new["status"]["migrationState"] = state
    if target_node is not None:
        meta.set_label(new, TARGET_NODE_LABEL, target_node)
    await _patch(cluster, old, new)


async def _patch(cluster: Cluster, old: JsonObject, new: JsonObject) -> JsonObject | None:
    patch = guarded_patch(old, new, ("metadata", "annotations"), ("metadata", "labels"), ("status",))
    if not patch:
        return None
    return await cluster.client.patch(_KIND, meta.name(old), patch, meta.namespace(old), type="json")
