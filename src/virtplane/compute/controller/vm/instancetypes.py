"""Instance types and preferences of a VM: found, pinned in revisions, applied to its instance."""

from __future__ import annotations

from dataclasses import dataclass, field

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists
from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.patch.guarded import same_version
from virtplane.api import resources as kinds
from virtplane.api.instancetype_v1beta1.instancetype import (
    VirtualMachineInstancetype,
    VirtualMachineInstancetypeSpec,
)
from virtplane.api.instancetype_v1beta1.preference import (
    VirtualMachinePreference,
    VirtualMachinePreferenceSpec,
)
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.vm.starting import set_default_input
from virtplane.compute.controller.vm.status import SyncError
from virtplane.instancetypes import apply as application
from virtplane.instancetypes import references
from virtplane.instancetypes.defaults import DefaultingError, default_network
from virtplane.instancetypes.expansion import expand

_REASONS = {"instancetype": "FailedFindInstancetype", "preference": "FailedFindPreference"}


@dataclass(slots=True)
class _Found:
    """The specs that a VM's references lead to."""

    instancetype: VirtualMachineInstancetypeSpec | None = None
    preference: VirtualMachinePreferenceSpec | None = None
    to_pin: dict[str, JsonObject] = field(default_factory=dict)
    """Revisions to make, by the field of the reference."""

    @property
    def is_empty(self) -> bool:
        """Whether the VM refers to nothing."""
        return self.instancetype is None and self.preference is None

    def keep(self, name: str, source: JsonObject) -> None:
        """Take over the object that the reference in field `name` leads to. Raises UnfitDocument."""
        if name == "instancetype":
            self.instancetype = decode(VirtualMachineInstancetype, source).spec
        else:
            self.preference = decode(VirtualMachinePreference, source).spec


class InstancetypeSync:
    """The part of the VM controller that deals with instance types and preferences."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._found: dict[str, _Found] = {}

    async def sync(self, vm: JsonObject) -> SyncError | None:
        """Finds what the VM refers to, pins it, and records that in `vm`'s status (or expands the VM)."""
        found = _Found()
        for name in references.FIELDS:
            error = await self._resolve(vm, name, found)
            if error is not None:
                return error
        for name, revision in found.to_pin.items():
            await self._pin(vm, name, revision)
        if not found.is_empty:
            self._found[meta.uid(vm)] = found
        else:
            self._found.pop(meta.uid(vm), None)
        if not found.is_empty and self._cluster.settings().instancetype_reference_policy != "reference":
            return await self._expand(vm, found)
        return None

    async def _resolve(self, vm: JsonObject, name: str, found: _Found) -> SyncError | None:
        reference = references.matcher(vm, name)
        status = vm.setdefault("status", {})
        if not reference:
            status.pop(references.status_field(name), None)
            return None
        try:
            kind = references.kind_of(reference, name)
            pinned = references.pinned_revision(vm, name)
            if pinned:
                revision = await self._revision(pinned, meta.namespace(vm))
                source = get_object(revision, "data")
            else:
                namespace = meta.namespace(vm) if kind.namespaced else None
                source = await self._cluster.client.get(kind, get_str(reference, "name"), namespace)
                found.to_pin[name] = references.revision_of(vm, source, kind)
            found.keep(name, source)
        except (references.UnexpectedKind, UnfitDocument) as error:
            return SyncError(_REASONS[name], str(error))
        except StatusError as error:
            return SyncError(_REASONS[name], error.message)
        if pinned:
            status[references.status_field(name)] = references.recorded(reference, pinned)
        return None

    async def _revision(self, name: str, namespace: str) -> JsonObject:
        cached = self._cluster.revisions.get(namespace, name)
        return cached or await self._cluster.client.get(resources.CONTROLLER_REVISIONS, name, namespace)

    async def _pin(self, vm: JsonObject, name: str, revision: JsonObject) -> None:
        """Makes a revision and records it, unless VMs are to be expanded instead."""
        if self._cluster.settings().instancetype_reference_policy != "reference":
            return
        try:
            await self._cluster.client.create(resources.CONTROLLER_REVISIONS, revision)
        except StatusError as error:
            if not is_already_exists(error):
                raise
        recorded = references.recorded(references.matcher(vm, name), meta.name(revision))
        vm["status"][references.status_field(name)] = recorded

    async def _expand(self, vm: JsonObject, found: _Found) -> SyncError | None:
        """Writes the values into the VM itself and takes the references away."""
        policy = self._cluster.settings().instancetype_reference_policy
        pinned = [name for name in references.FIELDS if references.pinned_revision(vm, name)]
        if pinned and policy != "expandAll":
            return None
        template = deep_copy(get_object(vm, "spec", "template"))
        template.setdefault("metadata", {})
        template["spec"].setdefault("domain", {}).setdefault("devices", {})
        try:
            expand(template, found.instancetype, found.preference, self._cluster.settings())
        except (application.Conflicts, DefaultingError) as error:
            return _failed_creation(error)
        operations: list[JsonObject] = [
            *same_version(vm),  # the answer's version is what the status is written with
            {"op": "replace", "path": "/spec/template", "value": template},
        ]
        for name in references.FIELDS:
            if name in vm["spec"]:
                operations.append({"op": "remove", "path": f"/spec/{name}"})
            vm["status"].pop(references.status_field(name), None)
        written = await self._cluster.client.patch(
            kinds.VIRTUAL_MACHINES, meta.name(vm), operations, meta.namespace(vm), type="json"
        )
        vm["spec"], vm["metadata"] = written["spec"], written["metadata"]
        self._found.pop(meta.uid(vm), None)
        return None

    def apply(self, vm: JsonObject, instance: JsonObject) -> SyncError | None:
        """Puts the values into a new instance.

        Devices that it gets without naming them come first, because preferences apply to them.
        """
        found = self._found.get(meta.uid(vm)) or _Found()
        spec, metadata = instance["spec"], instance["metadata"]
        if found.preference is not None:
            application.prefer_attached(spec["domain"]["devices"], found.preference.devices)
        set_default_input(spec)
        try:
            default_network(spec, self._cluster.settings())
            if not found.is_empty:
                metadata["annotations"].update(references.instance_annotations(vm))
                application.apply(spec, metadata, found.instancetype, found.preference)
        except (application.Conflicts, DefaultingError) as error:
            return _failed_creation(error)
        return None

    def expanded(self, vm: JsonObject, spec: JsonObject) -> JsonObject:
        """A VM's spec with the values put in; as it is where they do not fit."""
        found = self._found.get(meta.uid(vm))
        if found is None:
            return spec
        result = deep_copy(spec)
        template = result.setdefault("template", {})
        try:
            application.apply(
                template.setdefault("spec", {}),
                template.setdefault("metadata", {}),
                found.instancetype,
                found.preference,
            )
        except application.Conflicts:
            return spec
        return result


def _failed_creation(error: application.Conflicts | DefaultingError) -> SyncError:
    if isinstance(error, application.Conflicts):
        text = f"VM conflicts with instancetype spec in fields: [{', '.join(error.fields)}]"
        return SyncError("FailedCreate", text)
    return SyncError("FailedCreate", str(error))
