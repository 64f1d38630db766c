"""The volumes that snapshots are taken of."""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import get_list
from kubecore.objects.fields import go_quote
from kubecore.objects.structs import decode, readable
from kubecore.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from virtplane.api.storage_kinds import LabelledNode, PersistentVolume, PersistentVolumeClaim
from virtplane.storage.csi.topology import is_accessible
from virtplane.storage.volumesnapshot import decisions
from virtplane.storage.volumesnapshot.decisions import Unfit

_REASON = "SnapshotContentCreationFailed"


async def live_claim(client: Client, namespace: str, name: str) -> PersistentVolumeClaim | None:
    """A claim, read from the server. Raises StatusError."""
    try:
        return decode(PersistentVolumeClaim, await client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace))
    except StatusError as error:
        if is_not_found(error):
            return None
        raise


async def volume_of(client: Client, claim: PersistentVolumeClaim, what: str = "snapshot") -> PersistentVolume:
    """The volume that is bound to the claim; `what` is to be taken of it. Raises Unfit, StatusError."""
    if claim.status.phase != "Bound":
        name = claim.metadata.name
        text = f"the PVC {name} is not yet bound to a PV, will not attempt to take a {what}"
        raise Unfit(_REASON, text)
    volume_name = claim.spec.volume_name or ""
    try:
        volume = decode(PersistentVolume, await client.get(PERSISTENT_VOLUMES, volume_name))
    except StatusError as error:
        if not is_not_found(error):
            raise
        text = f"failed to retrieve PV {volume_name} from the API server: {go_quote(error.message)}"
        raise Unfit(_REASON, text) from error
    if not decisions.is_of_claim(volume, claim):
        raise Unfit(_REASON, "claim in dataSource not bound or invalid")
    return volume


async def node_of(client: Client, volumes: Sequence[PersistentVolume]) -> str:
    """A node from which the volumes can be reached, where not all are: its driver takes the snapshot.

    Raises StatusError.
    """
    if all(volume.spec.node_affinity is None for volume in volumes):
        return ""
    nodes = readable(LabelledNode, get_list(await client.list(NODES), "items"))
    found = [
        node.metadata.name
        for node in nodes
        if all(is_accessible(volume.spec.node_affinity, node.metadata.labels) for volume in volumes)
    ]
    return min(found, default="")
