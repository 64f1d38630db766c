"""Instance types and preferences as webhooks see them: matchers checked, objects found and applied."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects.structs import Struct, UnfitDocument, decode
from kubecore.resources import CONTROLLER_REVISIONS, ResourceType
from virtplane.api import resources
from virtplane.api.config import ClusterConfig
from virtplane.api.instancetype_v1beta1.instancetype import (
    VirtualMachineInstancetype,
    VirtualMachineInstancetypeSpec,
)
from virtplane.api.instancetype_v1beta1.preference import (
    VirtualMachinePreference,
    VirtualMachinePreferenceSpec,
)
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.compute.apiserver.admission.lookups import Lookups
from virtplane.compute.apiserver.admission.request import Refused
from virtplane.compute.apiserver.admission.response import (
    INVALID,
    NOT_FOUND,
    NOT_SUPPORTED,
    Cause,
    Response,
)
from virtplane.instancetypes import apply as application
from virtplane.instancetypes import references
from virtplane.instancetypes.defaults import DefaultingError, default_spec
from virtplane.instancetypes.requirements import unmet_requirement
from virtplane.instancetypes.topology import spread_problem

_MATCHERS = (("instancetype", "InstancetypeMatcher"), ("preference", "PreferenceMatcher"))
FAILURE_POLICIES = ("Ignore", "Reject")

INSTANCETYPES = (
    resources.VIRTUAL_MACHINE_INSTANCETYPES,
    resources.VIRTUAL_MACHINE_CLUSTER_INSTANCETYPES,
)
PREFERENCES = (resources.VIRTUAL_MACHINE_PREFERENCES, resources.VIRTUAL_MACHINE_CLUSTER_PREFERENCES)


def matcher_causes(machine: JsonObject, old: JsonObject) -> list[Cause]:
    """The errors of the references to instance type and preference."""
    found: list[Cause] = []
    for field, _ in _MATCHERS:
        matcher = get_object(machine, "spec").get(field)
        if isinstance(matcher, dict):
            found += _stale_revision(f"spec.{field}", matcher, get_object(old, "spec", field))
    for field, what in _MATCHERS:
        matcher = get_object(machine, "spec").get(field)
        if isinstance(matcher, dict) and not found:
            found += _matcher(f"spec.{field}", what, matcher)
    return found


def _stale_revision(path: str, matcher: JsonObject, old: JsonObject) -> Iterator[Cause]:
    revision = get_str(matcher, "revisionName")
    if not old or not revision:
        return
    if get_str(matcher, "name") != get_str(old, "name") and revision == get_str(old, "revisionName"):
        yield Cause(
            "the Matcher Name has been updated without updating the RevisionName", f"{path}.revisionName"
        )


def _matcher(path: str, what: str, matcher: JsonObject) -> Iterator[Cause]:
    name, volume = get_str(matcher, "name"), get_str(matcher, "inferFromVolume")
    if not name and not volume:
        yield Cause(f"Either Name or InferFromVolume should be provided within the {what}", path, NOT_FOUND)
        return
    if volume:
        for key, label in (("name", "Name"), ("kind", "Kind")):
            if get_str(matcher, key):
                yield Cause(
                    f"{label} already set, should be cleared before setting inferFromVolume",
                    f"{path}.{key}",
                    NOT_SUPPORTED,
                )
    policy = matcher.get("inferFromVolumeFailurePolicy")
    if policy is not None and policy not in FAILURE_POLICIES:
        yield Cause(
            f"Invalid value '{policy}' for InferFromVolumeFailurePolicy",
            f"{path}.inferFromVolumeFailurePolicy",
            INVALID,
        )


async def find_instancetype(
    machine: JsonObject, namespace: str, lookups: Lookups
) -> VirtualMachineInstancetypeSpec | None:
    """The spec of the machine's instance type; None where it names none or it is missing."""
    found = await _find(machine, "instancetype", INSTANCETYPES, namespace, lookups)
    return _decoded(VirtualMachineInstancetype, found).spec if found is not None else None


async def find_preference(
    machine: JsonObject, namespace: str, lookups: Lookups
) -> VirtualMachinePreferenceSpec | None:
    """The spec of the machine's preference; None where it names none or it is missing."""
    found = await _find(machine, "preference", PREFERENCES, namespace, lookups)
    return _decoded(VirtualMachinePreference, found).spec if found is not None else None


def _decoded(struct: type[Struct], found: JsonObject) -> Struct:
    try:
        return decode(struct, found)
    except UnfitDocument as error:
        raise Refused(Response.plain(str(error))) from error


async def _find(
    machine: JsonObject,
    field: str,
    candidates: tuple[ResourceType, ResourceType],
    namespace: str,
    lookups: Lookups,
) -> JsonObject | None:
    matcher = get_object(machine, "spec", field)
    reference = references.reference(_decoded(references.Referring, machine), field)
    revision = reference.pinned_revision if reference is not None else ""
    if revision:
        kept = await lookups.get(CONTROLLER_REVISIONS, revision, namespace)
        return get_object(kept, "data") if kept is not None else None
    name, kind = get_str(matcher, "name"), get_str(matcher, "kind").lower()
    if not name:
        return None
    namespaced, clustered = candidates
    if kind in ("", clustered.kind.lower(), clustered.plural):
        return await lookups.get(clustered, name)
    if kind in (namespaced.kind.lower(), namespaced.plural):
        return await lookups.get(namespaced, name, namespace)
    return None


def apply_preferred_basics(machine: JsonObject, preference: VirtualMachinePreferenceSpec | None) -> None:
    """Set the preferred architecture, machine type and storage class in the VM itself."""
    if preference is None:
        return
    spec = machine["spec"]["template"]["spec"]
    architecture = preference.preferred_architecture
    if architecture and not get_str(spec, "architecture"):
        spec["architecture"] = architecture
    machine_type = preference.machine.preferred_machine_type
    if machine_type and not get_str(spec, "domain", "machine", "type"):
        spec["domain"]["machine"] = {**get_object(spec, "domain", "machine"), "type": machine_type}
    storage_class = preference.volumes.preferred_storage_class_name
    if not storage_class:
        return
    for template in get_list(machine, "spec", "dataVolumeTemplates"):
        for key in ("pvc", "storage"):
            target = get_object(template, "spec").get(key)
            if isinstance(target, dict) and target.get("storageClassName") is None:
                target["storageClassName"] = storage_class


async def apply(machine: JsonObject, namespace: str, lookups: Lookups, config: ClusterConfig) -> list[Cause]:
    """Apply instance type and preference to `machine` (a copy); gives what stands against it."""
    instancetype = await find_instancetype(machine, namespace, lookups)
    preference = await find_preference(machine, namespace, lookups)
    template = get_object(machine, "spec").get("template")
    if not isinstance(template, dict):
        return []
    spec = template.setdefault("spec", {})
    metadata = template["metadata"] = template.get("metadata") or {}
    problem = spread_problem(instancetype.cpu.guest, preference) if instancetype is not None else ""
    if problem:
        return [Cause(problem, "instancetype.spec.cpu.guest")]
    try:
        application.apply(spec, metadata, instancetype, preference)
    except application.Conflicts as found:
        return [
            Cause(f"VM field(s) {field} conflicts with selected instance type", field)
            for field in found.fields
        ]
    if preference is None:
        return []
    return _requirement_causes(spec, instancetype, preference, config)


def _requirement_causes(
    spec: JsonObject,
    instancetype: VirtualMachineInstancetypeSpec | None,
    preference: VirtualMachinePreferenceSpec,
    config: ClusterConfig,
) -> list[Cause]:
    defaulted = deep_copy(spec)
    try:
        default_spec(defaulted, config)
    except DefaultingError as error:
        raise Refused(Response.plain(str(error))) from error
    unmet = unmet_requirement(decode(VirtualMachineInstanceSpec, defaulted), instancetype, preference)
    if unmet is None:
        return []
    text = f"failure checking preference requirements: {unmet.problem}"
    return [Cause(text, ", ".join(unmet.fields), NOT_FOUND)]
