"""How VMs refer to instance types and preferences, and the revisions that pin them."""

from __future__ import annotations

from collections.abc import Mapping

from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import ResourceType
from virtplane.api import resources

FIELDS: Mapping[str, str] = {"instancetype": "InstancetypeMatcher", "preference": "PreferenceMatcher"}
"""Fields of a VM's spec with the names that messages use."""

_KINDS: Mapping[str, tuple[ResourceType, ResourceType]] = {
    "instancetype": (
        resources.VIRTUAL_MACHINE_INSTANCETYPES,
        resources.VIRTUAL_MACHINE_CLUSTER_INSTANCETYPES,
    ),
    "preference": (resources.VIRTUAL_MACHINE_PREFERENCES, resources.VIRTUAL_MACHINE_CLUSTER_PREFERENCES),
}
_LABELS = "instancetype.kubevirt.io/object-"
_DROPPED_METADATA = ("labels", "annotations", "ownerReferences", "managedFields", "finalizers")


class UnexpectedKind(ValueError):
    """A matcher names a kind that is none of instance types or preferences."""


def matcher(vm: JsonObject, field: str) -> JsonObject:
    """The reference in `field`, empty without one."""
    found = get_object(vm, "spec", field)
    return found if get_str(found, "name") else {}


def kind_of(reference: JsonObject, field: str) -> ResourceType:
    """The kind that a reference means; the cluster-wide one when it names none. Raises UnexpectedKind."""
    namespaced, clustered = _KINDS[field]
    named = get_str(reference, "kind").lower()
    if named in ("", clustered.kind.lower(), clustered.plural):
        return clustered
    if named in (namespaced.kind.lower(), namespaced.plural):
        return namespaced
    raise UnexpectedKind(f"got unexpected kind in {FIELDS[field]}: {get_str(reference, 'kind')}")


def status_field(field: str) -> str:
    """The field of a VM's status that tells which revision is used."""
    return f"{field}Ref"


def pinned_revision(vm: JsonObject, field: str) -> str:
    """The revision that the VM uses: recorded in its status for this very reference, or named in its spec."""
    reference = matcher(vm, field)
    recorded = get_object(vm, "status", status_field(field))
    is_same = all(get_str(recorded, key) == get_str(reference, key) for key in ("name", "kind"))
    named = get_str(reference, "revisionName")
    if named:
        return named
    return get_str(recorded, "controllerRevisionRef", "name") if is_same else ""


def recorded(reference: JsonObject, revision: str) -> JsonObject:
    """What the VM's status tells about a reference."""
    kept = ("name", "kind", "inferFromVolume", "inferFromVolumeFailurePolicy")
    status = {key: reference[key] for key in kept if reference.get(key)}
    return {**status, "controllerRevisionRef": {"name": revision}}


def revision_of(vm: JsonObject, found: JsonObject, kind: ResourceType) -> JsonObject:
    """The ControllerRevision that keeps `found` as the VM uses it."""
    data = deep_copy(found)
    data["apiVersion"], data["kind"] = kind.api_version, kind.kind
    data["metadata"] = {
        key: value for key, value in meta.metadata(data).items() if key not in _DROPPED_METADATA
    }
    parts = (meta.name(vm), meta.name(found), kind.version, meta.uid(found), str(meta.generation(found)))
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": "-".join(parts),
            "namespace": meta.namespace(vm),
            "labels": {
                f"{_LABELS}generation": str(meta.generation(found)),
                f"{_LABELS}kind": kind.kind,
                f"{_LABELS}name": meta.name(found),
                f"{_LABELS}uid": meta.uid(found),
                f"{_LABELS}version": kind.version,
            },
            "ownerReferences": [meta.new_controller_ref(vm, resources.VIRTUAL_MACHINES)],
        },
        "data": data,
        "revision": 0,
    }


def instance_annotations(vm: JsonObject) -> dict[str, str]:
    """Annotations by which an instance tells where its values come from. Raises UnexpectedKind."""
    result: dict[str, str] = {}
    for field in FIELDS:
        reference = matcher(vm, field)
        if reference:
            prefix = "" if kind_of(reference, field).namespaced else "cluster-"
            result[f"kubevirt.io/{prefix}{field}-name"] = get_str(reference, "name")
    return result
