"""Guests that reserve shared LUNs for themselves (SCSI persistent reservations).

To a LUN, guests on one node are one and the same initiator: a reservation of one would hold for the other.
So two launchers with reservations on the same claim are never on the same node.
"""

from __future__ import annotations

from kubecore.json import JsonObject, get_str
from virtplane.api import labels
from virtplane.api.kubevirt_v1.volumes import claim_name
from virtplane.compute.launcherpod.inputs import RenderInputs, label_sized


def wants_helper(inputs: RenderInputs) -> bool:
    """Whether the guest reserves LUNs through the node's helper."""
    return bool(_reserved(inputs))


def pod_labels(inputs: RenderInputs) -> dict[str, str]:
    """A label for each reserved claim, by which launchers keep apart."""
    reserved = _reserved(inputs)
    claims = {claim_name(volume) for volume in inputs.spec.volumes if volume.name in reserved}
    named = sorted(claim for claim in claims if claim)
    uids = {claim: get_str(inputs.claims.get(claim), "metadata", "uid") for claim in named}
    return {labels.RESERVATION_PREFIX + uid: label_sized(claim) for claim, uid in uids.items() if uid}


def keep_apart(inputs: RenderInputs, affinity: JsonObject) -> JsonObject:
    """`affinity` with a term for each reserved claim: no other launcher with its label on the node."""
    for label in pod_labels(inputs):
        term = {
            "labelSelector": {"matchExpressions": [{"key": label, "operator": "Exists"}]},
            "topologyKey": "kubernetes.io/hostname",
        }
        anti = affinity.setdefault("podAntiAffinity", {})
        anti.setdefault("requiredDuringSchedulingIgnoredDuringExecution", []).append(term)
    return affinity


def _reserved(inputs: RenderInputs) -> set[str]:
    """The disks with reservations."""
    return {disk.name for disk in inputs.devices.disks if disk.lun is not None and disk.lun.reservation}
