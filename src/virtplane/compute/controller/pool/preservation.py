"""What stays of a machine that its pool gives up: its disks, where the pool says so."""

from __future__ import annotations

from kubecore import resources
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, deep_copy, get_str
from kubecore.objects import meta
from kubecore.patch.guarded import guarded_patch
from kubecore.resources import ResourceType
from virtplane.api import resources as kinds
from virtplane.cluster.caches import Cluster


def keeps_disks(pool: JsonObject) -> bool:
    """Whether the disks of machines that are given up stay."""
    return any(
        get_str(pool, "spec", "scaleInStrategy", strategy, "statePreservation") in ("Offline", "Online")
        for strategy in ("proactive", "opportunistic")
    )


async def keep_disks(cluster: Cluster, vm: JsonObject) -> None:
    """Disown a machine's DataVolumes and claims, so that they are not collected with it.

    A machine that gets the same number later finds them by their names. The server is asked, since what the
    cache does not show yet would be lost. Raises StatusError where something cannot be disowned: the machine
    must stay.
    """
    for kind in (kinds.DATA_VOLUMES, resources.PERSISTENT_VOLUME_CLAIMS):
        if kind == kinds.DATA_VOLUMES and kind not in cluster.served:
            continue
        for disk in await cluster.informer(kind).read_live(meta.namespace(vm)):
            if meta.is_owned_by(disk, vm):
                await _disown(cluster, kind, disk, vm)


async def _disown(cluster: Cluster, kind: ResourceType, disk: JsonObject, vm: JsonObject) -> None:
    new = deep_copy(disk)
    kept = [item for item in meta.owner_references(disk) if item.get("uid") != meta.uid(vm)]
    if kept:
        new["metadata"]["ownerReferences"] = kept
    else:
        del new["metadata"]["ownerReferences"]
    operations = guarded_patch(disk, new, ("metadata",))
    try:
        await cluster.client.patch(kind, meta.name(disk), operations, meta.namespace(disk), type="json")
    except StatusError as error:
        if not is_not_found(error):
            raise
