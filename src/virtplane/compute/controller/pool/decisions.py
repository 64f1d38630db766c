"""What a pool of VMs does next: pure decisions."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from kubecore.json import JsonObject, deep_copy, get_bool, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.compute.controller import replicas

FINALIZER = labels.FINALIZER_POOL
REVISION_LABEL = labels.POOL_REVISION
BURST = 250
_KEPT_FIRMWARE = ("uuid", "serial")


@dataclass(frozen=True, slots=True)
class Step:
    """Which VMs to make (by number), to delete, and to bring to the present template."""

    create: tuple[int, ...] = ()
    delete: tuple[JsonObject, ...] = ()
    update: tuple[JsonObject, ...] = ()


def revision_name(pool: JsonObject) -> str:
    """The name of the revision of the pool's present generation."""
    return f"{meta.name(pool)}-{meta.generation(pool)}"


def index_of(pool: JsonObject, vm: JsonObject) -> int | None:
    """The number of a VM of the pool, None for one that is named otherwise."""
    text = meta.name(vm).removeprefix(meta.name(pool) + "-")
    return int(text) if text.isdigit() and meta.name(vm) != text else None


def wanted(pool: JsonObject) -> int:
    """How many VMs there should be (one when not said)."""
    return get_int(pool, "spec", "replicas", default=1)


def next_step(pool: JsonObject, vms: list[JsonObject], revisions: Mapping[str, JsonObject]) -> Step:
    """What brings the VMs in line; nothing while the pool is paused or being deleted.

    `revisions` are the pool's ControllerRevisions by name.
    """
    if meta.is_being_deleted(pool) or get_bool(pool, "spec", "paused"):
        return Step()
    living = [vm for vm in vms if not meta.is_being_deleted(vm)]
    missing = wanted(pool) - len(living)
    if missing > 0:
        taken = {index_of(pool, vm) for vm in vms}
        free = [number for number in range(len(taken) + missing + 1) if number not in taken]
        return Step(create=tuple(free[: min(missing, BURST)]), update=_outdated(pool, living, revisions))
    if missing < 0 and not _is_unmanaged(pool, "scaleInStrategy"):
        return Step(delete=tuple(_scale_in_order(pool, living)[: min(-missing, BURST)]))
    return Step(update=_outdated(pool, living, revisions))


def _outdated(
    pool: JsonObject, vms: list[JsonObject], revisions: Mapping[str, JsonObject]
) -> tuple[JsonObject, ...]:
    """VMs of an older template. Revisions are compared, not VMs: admission fills much into those."""
    if _is_unmanaged(pool, "updateStrategy"):
        return ()
    return tuple(vm for vm in vms if _is_outdated(pool, vm, revisions))


def _is_unmanaged(pool: JsonObject, strategy: str) -> bool:
    """Whether the pool's owner does this himself."""
    return "unmanaged" in get_object(pool, "spec", strategy)


def _is_outdated(pool: JsonObject, vm: JsonObject, revisions: Mapping[str, JsonObject]) -> bool:
    name = meta.labels(vm).get(REVISION_LABEL, "")
    if name == revision_name(pool):
        return False
    template = get_object(pool, "spec", "virtualMachineTemplate")
    return get_object(revisions.get(name), "data", "virtualMachineTemplate") != template


def _scale_in_order(pool: JsonObject, vms: list[JsonObject]) -> list[JsonObject]:
    """The VMs in the order in which they are given up."""
    policy = get_str(pool, "spec", "scaleInStrategy", "proactive", "selectionPolicy", "sortPolicy")
    if policy == "AscendingOrder":
        return sorted(vms, key=lambda vm: index_of(pool, vm) or 0)
    if policy == "DescendingOrder":
        return sorted(vms, key=lambda vm: -(index_of(pool, vm) or 0))
    if policy in ("Newest", "Oldest"):
        return sorted(vms, key=meta.creation_timestamp, reverse=policy == "Newest")
    return random.sample(vms, len(vms))


def new_machine(pool: JsonObject, number: int) -> JsonObject:
    """The VM with that number."""
    template = get_object(pool, "spec", "virtualMachineTemplate")
    metadata = get_object(template, "metadata")
    spec = deep_copy(get_object(template, "spec"))
    _set_indexes(pool, spec, number)
    revision = revision_name(pool)
    inner = spec.setdefault("template", {}).setdefault("metadata", {})
    inner.setdefault("labels", {})[REVISION_LABEL] = revision
    created: JsonObject = {
        "name": f"{meta.name(pool)}-{number}",
        "namespace": meta.namespace(pool),
        "labels": {**get_object(metadata, "labels"), REVISION_LABEL: revision},
        "ownerReferences": [meta.new_controller_ref(pool, kinds.VIRTUAL_MACHINE_POOLS)],
        "finalizers": [FINALIZER],
    }
    if get_object(metadata, "annotations"):
        created["annotations"] = dict(metadata["annotations"])
    return {
        "apiVersion": kinds.VIRTUAL_MACHINES.api_version,
        "kind": "VirtualMachine",
        "metadata": created,
        "spec": spec,
    }


def updated_machine(pool: JsonObject, vm: JsonObject) -> JsonObject:
    """A VM with the pool's present template; what makes it itself stays."""
    number = index_of(pool, vm)
    if number is None:
        return vm
    fresh = new_machine(pool, number)
    result = deep_copy(vm)
    before = get_object(result, "spec")
    result["spec"] = fresh["spec"]
    for key in ("runStrategy", "running"):
        if key in before and key not in fresh["spec"]:
            result["spec"][key] = before[key]
    _keep(before, result["spec"])
    result["metadata"].setdefault("labels", {}).update(fresh["metadata"]["labels"])
    return result


def _keep(before: JsonObject, after: JsonObject) -> None:
    """Identity, and what admission filled in, are not the template's to change."""
    old, new = get_object(before, "template", "spec"), get_object(after, "template", "spec")
    domain = new.setdefault("domain", {})
    old_domain = get_object(old, "domain")
    firmware = {key: old_domain.get("firmware", {}).get(key) for key in _KEPT_FIRMWARE}
    kept = {key: value for key, value in firmware.items() if value}
    if kept:
        domain["firmware"] = {**kept, **get_object(domain, "firmware")}
    for key in ("machine", "resources"):
        if key in old_domain:
            domain.setdefault(key, old_domain[key])
    if "architecture" in old:
        new.setdefault("architecture", old["architecture"])
    annotations = get_object(before, "template", "metadata", "annotations")
    topology = {key: value for key, value in annotations.items() if key.startswith("kubevirt.io/pci-")}
    if topology:
        target = after["template"].setdefault("metadata", {}).setdefault("annotations", {})
        for key, value in topology.items():
            target.setdefault(key, value)


def _set_indexes(pool: JsonObject, spec: JsonObject, number: int) -> None:
    """Gives the VM's DataVolumes, and where asked for its configuration, names of their own."""
    renamed: dict[str, str] = {}
    for template in get_list(spec, "dataVolumeTemplates"):
        name = get_str(template, "metadata", "name")
        renamed[name] = template["metadata"]["name"] = f"{name}-{number}"
    generation = get_object(pool, "spec", "nameGeneration")
    for volume in get_list(spec, "template", "spec", "volumes"):
        for source, key in (("dataVolume", "name"), ("persistentVolumeClaim", "claimName")):
            if source in volume and volume[source].get(key) in renamed:
                volume[source][key] = renamed[volume[source][key]]
        if generation.get("appendIndexToConfigMapRefs") and "configMap" in volume:
            volume["configMap"]["name"] = f"{volume['configMap'].get('name')}-{number}"
        if generation.get("appendIndexToSecretRefs") and "secret" in volume:
            volume["secret"]["secretName"] = f"{volume['secret'].get('secretName')}-{number}"


def next_status(
    pool: JsonObject, vms: list[JsonObject], selector: str, failure: tuple[str, str] | None
) -> JsonObject:
    """The pool's status; `failure` is reason and message of what could not be done."""
    living = [vm for vm in vms if not meta.is_being_deleted(vm)]
    return replicas.next_status(
        pool,
        replicas=len(living),
        ready=sum(get_bool(vm, "status", "ready") for vm in living),
        selector=selector,
        failure=failure,
        paused=("SuccessfulPaused", "Pool controller is paused"),
    )


def revision_of(pool: JsonObject) -> JsonObject:
    """The ControllerRevision that keeps the pool's present spec."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": revision_name(pool),
            "namespace": meta.namespace(pool),
            "ownerReferences": [meta.new_controller_ref(pool, kinds.VIRTUAL_MACHINE_POOLS)],
        },
        "data": deep_copy(get_object(pool, "spec")),
        "revision": meta.generation(pool),
    }
