"""References of VMs to instance types and preferences, and the ControllerRevisions that pin them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kubecore.json import JsonObject, deep_copy, get_object
from kubecore.objects import meta
from kubecore.objects.structs import encode
from kubecore.resources import ResourceType
from virtplane.api import resources
from virtplane.api.kubevirt_v1.vm import InstancetypeMatcher, PreferenceMatcher, VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import ControllerRevisionRef, InstancetypeStatusRef
from virtplane.api.markers import ApiStruct
from virtplane.api.meta_v1 import ObjectMeta

Matcher: TypeAlias = InstancetypeMatcher | PreferenceMatcher

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
    """A matcher names a kind other than instance types or preferences."""


class Matchers(ApiStruct, kw_only=True):
    """The references of a VM's spec."""

    instancetype: InstancetypeMatcher | None = None
    preference: PreferenceMatcher | None = None


class Pinned(ApiStruct, kw_only=True):
    """What a VM's status records of its references."""

    instancetype_ref: InstancetypeStatusRef | None = None
    preference_ref: InstancetypeStatusRef | None = None


class Referring(ApiStruct, kw_only=True):
    """The fields of a VM that this module reads, for callers that hold a document."""

    spec: Matchers = Matchers()
    status: Pinned | None = None

    @property
    def observed(self) -> Pinned:
        """The status; an empty one before the first."""
        return self.status or Pinned()


@dataclass(frozen=True, slots=True)
class Reference:
    """A VM's reference to an instance type or a preference, by name."""

    field: str
    matcher: Matcher
    known: InstancetypeStatusRef
    """What the VM's status records of such a reference, this one or another."""

    @property
    def name(self) -> str:
        """The name of the instance type or preference."""
        return self.matcher.name or ""

    @property
    def kind(self) -> ResourceType:
        """The kind that is meant; the cluster-wide one when none is named. Raises UnexpectedKind."""
        namespaced, clustered = _KINDS[self.field]
        named = (self.matcher.kind or "").lower()
        if named in ("", clustered.kind.lower(), clustered.plural):
            return clustered
        if named in (namespaced.kind.lower(), namespaced.plural):
            return namespaced
        raise UnexpectedKind(f"got unexpected kind in {FIELDS[self.field]}: {self.matcher.kind}")

    @property
    def pinned_revision(self) -> str:
        """The revision in use: named in the spec, or recorded in the status for this very reference."""
        if self.matcher.revision_name:
            return self.matcher.revision_name
        known = self.known
        is_same = ((known.name or ""), (known.kind or "")) == (self.name, (self.matcher.kind or ""))
        revision = known.controller_revision_ref
        return (revision.name or "") if is_same and revision is not None else ""

    def recorded(self, revision: str) -> JsonObject:
        """What the VM's status tells about the reference, `revision` being the one that is used."""
        matcher = self.matcher
        status = InstancetypeStatusRef(
            controller_revision_ref=ControllerRevisionRef(name=revision),
            infer_from_volume=matcher.infer_from_volume or None,
            infer_from_volume_failure_policy=matcher.infer_from_volume_failure_policy or None,
            kind=matcher.kind or None,
            name=matcher.name,
        )
        return encode(status)


def reference(vm: VirtualMachine | Referring, field: str) -> Reference | None:
    """The reference in `field`, None without one."""
    matcher: Matcher | None = vm.spec.preference
    known = vm.observed.preference_ref
    if field == "instancetype":
        matcher, known = vm.spec.instancetype, vm.observed.instancetype_ref
    if matcher is None or not matcher.name:
        return None
    return Reference(field, matcher, known or InstancetypeStatusRef())


def references(vm: VirtualMachine | Referring) -> Iterator[Reference]:
    """The references that the VM has."""
    found = (reference(vm, field) for field in FIELDS)
    return (item for item in found if item is not None)


def status_field(field: str) -> str:
    """The field of a VM's status that tells which revision is used."""
    return f"{field}Ref"


def revision_of(vm: ObjectMeta, found: JsonObject, kind: ResourceType) -> JsonObject:
    """The ControllerRevision that keeps `found` as the VM with the metadata `vm` uses it."""
    data = deep_copy(found)
    data["apiVersion"], data["kind"] = kind.api_version, kind.kind
    data["metadata"] = {
        key: value for key, value in meta.metadata(data).items() if key not in _DROPPED_METADATA
    }
    parts = (vm.name, meta.name(found), kind.version, meta.uid(found), str(meta.generation(found)))
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": "-".join(parts),
            "namespace": vm.namespace,
            "labels": {
                f"{_LABELS}generation": str(meta.generation(found)),
                f"{_LABELS}kind": kind.kind,
                f"{_LABELS}name": meta.name(found),
                f"{_LABELS}uid": meta.uid(found),
                f"{_LABELS}version": kind.version,
            },
            "ownerReferences": [
                meta.new_controller_ref({"metadata": encode(vm)}, resources.VIRTUAL_MACHINES)
            ],
        },
        "data": data,
        "revision": 0,
    }


def renewed(vm: ObjectMeta, field: str, revision: JsonObject) -> JsonObject | None:
    """The ControllerRevision to use in the place of `revision`, which an older version has stored; None if it
    is of this version, or keeps nothing that the reference in `field` may lead to.
    """
    data = get_object(revision, "data")
    kind = next((kind for kind in _KINDS[field] if kind.kind == data.get("kind")), None)
    if kind is None or meta.labels(revision).get(f"{_LABELS}version") == kind.version:
        return None
    return revision_of(vm, data, kind)


def instance_annotations(vm: VirtualMachine) -> dict[str, str]:
    """The annotations of an instance that name its instance type and preference. Raises UnexpectedKind."""
    result: dict[str, str] = {}
    for item in references(vm):
        prefix = "" if item.kind.namespaced else "cluster-"
        result[f"kubevirt.io/{prefix}{item.field}-name"] = item.name
    return result
