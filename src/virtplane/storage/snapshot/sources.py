"""Whether the volumes of a machine can be taken now: pure decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects import meta
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.volumes import claim_name
from virtplane.cluster import persistentstate


def obstacle(
    vm: VirtualMachine,
    claims: Mapping[str, JsonObject],
    data_volumes: Mapping[str, JsonObject],
    pods: Iterable[JsonObject],
    *,
    is_online: bool,
) -> str:
    """Why the machine's volumes cannot be taken now, in KubeVirt's words; empty if they can.

    `claims` and `data_volumes` are those of the namespace by name; `pods` those of the product there.
    """
    source = f"source {vm.metadata.namespace}/{vm.metadata.name}"
    volumes = [volume for volume in persistentstate.volumes_of(vm, claims) if claim_name(volume)]
    state = persistentstate.volume_name(vm.metadata.name)
    if persistentstate.is_needed(vm.spec.instance) and all(volume.name != state for volume in volumes):
        return f"{source} volume doesnt exist: {state}"
    names = sorted(set(map(claim_name, volumes)))
    for name in names:
        problem = _problem(claims.get(name), data_volumes)
        if problem:
            return f"{source} {problem}: {name}"
    known = {status.name for status in vm.observed.volume_snapshot_statuses}
    for volume in volumes:
        if volume.name not in known:
            return f"{source} volume snapshot support unknown: {volume.name}"
    users = 0 if is_online else sum(_uses(pod, names) for pod in pods)
    return f"source is offline but {users} pods using PVCs [{' '.join(names)}]" if users else ""


def _problem(claim: JsonObject | None, data_volumes: Mapping[str, JsonObject]) -> str:
    if claim is None:
        return "volume doesnt exist"
    if meta.is_being_deleted(claim):
        return "volume is being deleted"
    if get_str(claim, "status", "phase") != "Bound":
        return "volume not bound"
    owner = meta.controller_of(claim)
    if owner is not None and get_str(owner, "kind") == kinds.DATA_VOLUMES.kind:
        volume = data_volumes.get(get_str(owner, "name"))
        if volume is None or get_str(volume, "status", "phase") != "Succeeded":
            return "volume not populated"
    return ""


def _uses(pod: JsonObject, claims: list[str]) -> bool:
    if get_str(pod, "status", "phase") in ("Succeeded", "Failed"):
        return False
    mounted = (
        get_str(volume, "persistentVolumeClaim", "claimName") for volume in get_list(pod, "spec", "volumes")
    )
    return any(name in claims for name in mounted)
