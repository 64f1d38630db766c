"""Instance types and preferences as webhooks see them: matchers checked, objects found and applied."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects.structs import decode
from kubecore.resources import CONTROLLER_REVISIONS
from virtplane.api.config import ClusterConfig
from virtplane.api.instancetype_v1beta1.instancetype import (
    VirtualMachineInstancetype,
    VirtualMachineInstancetypeSpec,
)
from virtplane.api.instancetype_v1beta1.preference import (
    VirtualMachinePreference,
    VirtualMachinePreferenceSpec,
)
from virtplane.api.kubevirt_v1.vm import InstancetypeMatcher, PreferenceMatcher, VirtualMachineSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.compute.apiserver.admission.request import Refused
from virtplane.instancetypes import apply as application
from virtplane.instancetypes import references
from virtplane.instancetypes.defaults import DefaultingError, default_spec
from virtplane.instancetypes.requirements import unmet_requirement
from virtplane.instancetypes.topology import spread_problem
from virtplane.serving.lookups import Lookups
from virtplane.serving.responses import INVALID, NOT_FOUND, NOT_SUPPORTED, Cause, Response

_Matcher = InstancetypeMatcher | PreferenceMatcher


def matcher_causes(spec: VirtualMachineSpec, old: VirtualMachineSpec | None) -> list[Cause]:
    """The errors of the references to instance type and preference."""
    found: list[Cause] = []
    if old is not None:
        found += _stale_revision("spec.instancetype", spec.instancetype, old.instancetype)
        found += _stale_revision("spec.preference", spec.preference, old.preference)
    if spec.instancetype is not None and not found:
        found += _matcher("spec.instancetype", "InstancetypeMatcher", spec.instancetype)
    if spec.preference is not None and not found:
        found += _matcher("spec.preference", "PreferenceMatcher", spec.preference)
    return found


def _stale_revision(path: str, matcher: _Matcher | None, old: _Matcher | None) -> Iterator[Cause]:
    if matcher is None or old is None or not matcher.revision_name:
        return
    if matcher.name != old.name and matcher.revision_name == old.revision_name:
        yield Cause(
            "the Matcher Name has been updated without updating the RevisionName", f"{path}.revisionName"
        )


def _matcher(path: str, what: str, matcher: _Matcher) -> Iterator[Cause]:
    if not matcher.name and not matcher.infer_from_volume:
        yield Cause(f"Either Name or InferFromVolume should be provided within the {what}", path, NOT_FOUND)
        return
    for key, label, value in (("name", "Name", matcher.name), ("kind", "Kind", matcher.kind)):
        if value and matcher.infer_from_volume:
            yield Cause(
                f"{label} already set, should be cleared before setting inferFromVolume",
                f"{path}.{key}",
                NOT_SUPPORTED,
            )
    policy = matcher.infer_from_volume_failure_policy
    if policy not in (None, "Ignore", "Reject"):
        yield Cause(
            f"Invalid value '{policy}' for InferFromVolumeFailurePolicy",
            f"{path}.inferFromVolumeFailurePolicy",
            INVALID,
        )


async def find_instancetype(
    machine: JsonObject, namespace: str, lookups: Lookups
) -> VirtualMachineInstancetypeSpec | None:
    """The spec of the machine's instance type; None where it names none or it is missing."""
    found = await _find(machine, "instancetype", namespace, lookups)
    return decode(VirtualMachineInstancetype, found).spec if found is not None else None


async def find_preference(
    machine: JsonObject, namespace: str, lookups: Lookups
) -> VirtualMachinePreferenceSpec | None:
    """The spec of the machine's preference; None where it names none or it is missing."""
    found = await _find(machine, "preference", namespace, lookups)
    return decode(VirtualMachinePreference, found).spec if found is not None else None


async def _find(machine: JsonObject, field: str, namespace: str, lookups: Lookups) -> JsonObject | None:
    reference = references.reference(decode(references.Referring, machine), field)
    if reference is None:
        return None
    if reference.pinned_revision:
        kept = await lookups.get(CONTROLLER_REVISIONS, reference.pinned_revision, namespace)
        return get_object(kept, "data") if kept is not None else None
    try:
        kind = reference.kind
    except references.UnexpectedKind:
        return None
    return await lookups.get(kind, reference.name, namespace if kind.namespaced else None)


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
