"""Keeps the disks of VMs that scaling in deletes, if the pool says so."""

from __future__ import annotations

from kubecore import resources
from kubecore.objects.structs import decode
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.pool_v1beta1.pool import VirtualMachinePool
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import AnyObject, owners_patch, patch

_KEPT = ("Offline", "Online")


def keeps_disks(pool: VirtualMachinePool) -> bool:
    """Whether the disks of deleted VMs are kept."""
    scale_in = pool.spec.scale_in_strategy
    strategies = (scale_in.proactive, scale_in.opportunistic) if scale_in else ()
    return any(strategy and strategy.state_preservation in _KEPT for strategy in strategies)


async def keep_disks(cluster: Cluster, vm: VirtualMachine) -> None:
    """Disown a machine's DataVolumes and claims, so that they are not collected with it.

    A machine that gets the same number later finds them by their names. The server is asked, since what the
    cache does not show yet would be lost. Raises StatusError where something cannot be disowned: the machine
    must stay.
    """
    for kind in (kinds.DATA_VOLUMES, resources.PERSISTENT_VOLUME_CLAIMS):
        if kind == kinds.DATA_VOLUMES and kind not in cluster.served:
            continue
        for found in await cluster.informer(kind).read_live(vm.metadata.namespace):
            disk = decode(AnyObject, found)
            owners = disk.metadata.owner_references
            kept = [owner for owner in owners if owner.uid != vm.metadata.uid]
            if len(kept) < len(owners):
                await patch(cluster, kind, disk, owners_patch(disk, kept))
