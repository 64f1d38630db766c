"""Hands the restored state of a machine's firmware and TPM to it.

The claim with the state is found by its label, so that the label moves: first it is taken from the claim
that had it, then the restored one gets it. Meanwhile the machine is off and held by its restore.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubecore import resources
from kubecore.errors import StatusError, is_conflict, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import meta
from virtplane.cluster import persistentstate
from virtplane.cluster.caches import Cluster
from virtplane.storage.restore.decisions import RestoredVolume

_REPLACED = "restore.kubevirt.io/cleanup-backend-pvc"
"""The label of a state claim that was replaced, with the volume that stands for the machine's state."""

Relabelling = tuple[JsonObject, JsonObject]
"""A claim, and the labels to set; None removes one."""


def state_of(items: Iterable[RestoredVolume], source: str) -> RestoredVolume | None:
    """The restored volume that is the state of the `source` machine."""
    wanted = persistentstate.volume_name(source)
    return next((item for item in items if item.volume == wanted), None)


def relabellings(claims: Iterable[JsonObject], restored: str, target: str) -> list[Relabelling]:
    """The changes, in their order, after which the claim `restored` is the state of the `target`."""
    label = persistentstate.STATE_LABEL
    replaced: list[Relabelling] = []
    given: list[Relabelling] = []
    for claim in claims:
        is_of_target = meta.labels(claim).get(label) == target
        if meta.name(claim) == restored and not is_of_target:
            given.append((claim, {label: target}))
        elif meta.name(claim) != restored and is_of_target:
            marked = {label: None, _REPLACED: persistentstate.volume_name(target)}
            replaced.append((claim, marked))
    return [*replaced, *given]


async def hand_over(cluster: Cluster, namespace: str, restored: str, target: str) -> bool:
    """Make the claim `restored` the state of the machine `target`. Returns whether anything was changed.

    Raises StatusError.
    """
    changes = relabellings(cluster.claims.list(namespace), restored, target)
    for claim, labels in changes:
        of: JsonObject = {"uid": meta.uid(claim), "labels": labels}
        kind = resources.PERSISTENT_VOLUME_CLAIMS
        await cluster.client.patch(kind, meta.name(claim), {"metadata": of}, namespace, type="merge")
    return bool(changes)


async def drop_replaced(cluster: Cluster, namespace: str, target: str) -> None:
    """Delete the claims that a restored state has replaced. Raises StatusError."""
    marked = persistentstate.volume_name(target)
    for claim in cluster.claims.list(namespace):
        if meta.labels(claim).get(_REPLACED) != marked or meta.is_being_deleted(claim):
            continue
        kind = resources.PERSISTENT_VOLUME_CLAIMS
        try:
            await cluster.client.delete(kind, meta.name(claim), namespace, uid=meta.uid(claim))
        except StatusError as error:
            if not is_not_found(error) and not is_conflict(error):
                raise
