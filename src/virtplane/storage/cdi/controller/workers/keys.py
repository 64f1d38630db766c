"""Which claims the controllers of importers and upload servers look at when something else changes."""

from __future__ import annotations

from kubecore.runtime import Key
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi.controller.workers.pods import Pod


def claims_of_pod(pod: Pod) -> list[Key]:
    """The claims that a pod uses."""
    used = (volume.persistent_volume_claim for volume in pod.spec.volumes)
    return [(pod.metadata.namespace, each.claim_name) for each in used if each is not None]


def claims_of_scratch(claim: PersistentVolumeClaim) -> list[Key]:
    """The claim itself; and where it is scratch space, the claim that is filled beside it."""
    namespace, name = claim.metadata.namespace, claim.metadata.name
    base = name.removesuffix("-scratch")
    return [(namespace, name)] if base == name else [(namespace, name), (namespace, base)]
