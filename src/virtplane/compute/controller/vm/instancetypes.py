"""Instance types and preferences of a VM: found, pinned in revisions, applied to its instance."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_not_found
from kubecore.json import JsonObject, deep_copy, get_object
from kubecore.objects import meta
from kubecore.objects.structs import UnfitDocument, decode, encode, part
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
from virtplane.api.kubevirt_v1.vm import VirtualMachine, VirtualMachineSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import as_written, described
from virtplane.compute.controller.vm.draft import Draft
from virtplane.compute.controller.vm.starting import set_default_input
from virtplane.compute.controller.vm.status import SyncError
from virtplane.instancetypes import apply as application
from virtplane.instancetypes import references
from virtplane.instancetypes.defaults import DefaultingError, default_network
from virtplane.instancetypes.expansion import expand

_REASONS = {"instancetype": "FailedFindInstancetype", "preference": "FailedFindPreference"}


@dataclass(slots=True)
class _Found:
    """The instance type and preference that a VM refers to."""

    instancetype: VirtualMachineInstancetypeSpec | None = None
    preference: VirtualMachinePreferenceSpec | None = None
    to_pin: dict[str, JsonObject] = field(default_factory=dict)
    """Revisions to make, by the field of the reference."""

    @property
    def is_empty(self) -> bool:
        """Whether the VM has neither an instance type nor a preference."""
        return self.instancetype is None and self.preference is None

    def keep(self, name: str, source: JsonObject) -> None:
        """Store the object of the reference in field `name`. Raises UnfitDocument."""
        if name == "instancetype":
            self.instancetype = decode(VirtualMachineInstancetype, source).spec
        else:
            self.preference = decode(VirtualMachinePreference, source).spec


def _holds_the_same(name: str, revision: JsonObject, existing: JsonObject) -> bool:
    """Whether two revisions of what the reference in field `name` leads to give guests the same."""
    ours, theirs = _Found(), _Found()
    ours.keep(name, get_object(revision, "data"))
    try:
        theirs.keep(name, get_object(existing, "data"))
    except UnfitDocument:
        return False
    return (ours.instancetype, ours.preference) == (theirs.instancetype, theirs.preference)


def _unexpected_revision(name: str) -> SyncError:
    text = f"found existing ControllerRevision with unexpected data: {name}"
    return SyncError(
        "FailedCreate",
        f"error encountered while storing instancetype.kubevirt.io controllerRevisions: {text}",
    )


class InstancetypeSync:
    """The part of the VM controller that deals with instance types and preferences."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._found: dict[str, _Found] = {}
        self._replaced: dict[str, set[str]] = {}
        """Revisions of VMs, by UID, that newer ones take the place of once the status says so. Those that are
        forgotten when this process ends go with their VM.
        """

    async def sync(self, draft: Draft) -> SyncError | None:
        """Find the objects that the VM refers to, pin them, and record that in its status (or expand the
        VM).
        """
        found, uid = _Found(), draft.vm.metadata.uid
        for name in references.FIELDS:
            error = await self._resolve(draft, name, found)
            if error is not None:
                return error
        for name, revision in found.to_pin.items():
            error = await self._pin(draft, name, revision)
            if error is not None:
                return error
        await self._delete_replaced(draft.vm)
        if found.is_empty:
            self._found.pop(uid, None)
            return None
        self._found[uid] = found
        if self._cluster.settings().instancetype_reference_policy != "reference":
            return await self._expand(draft, found)
        return None

    async def _resolve(self, draft: Draft, name: str, found: _Found) -> SyncError | None:
        namespace = draft.vm.metadata.namespace
        reference = references.reference(draft.read(), name)
        if reference is None:
            draft.status.pop(references.status_field(name), None)
            return None
        try:
            kind, pinned = reference.kind, reference.pinned_revision
            if pinned:
                revision = await self._revision(pinned, namespace)
                source = revision.get("data") or {}
                newer = references.renewed(draft.vm.metadata, name, revision)
                if newer is not None and not reference.matcher.revision_name:
                    found.to_pin[name] = newer
            else:
                source = await self._cluster.client.get(
                    kind, reference.name, namespace if kind.namespaced else None
                )
                found.to_pin[name] = references.revision_of(draft.vm.metadata, source, kind)
            found.keep(name, source)
        except (references.UnexpectedKind, UnfitDocument) as error:
            return SyncError(_REASONS[name], str(error))
        except StatusError as error:
            return SyncError(_REASONS[name], error.message)
        if pinned:
            draft.status[references.status_field(name)] = reference.recorded(pinned)
        return None

    async def _revision(self, name: str, namespace: str) -> JsonObject:
        cached = self._cluster.revision(namespace, name)
        return cached or await self._cluster.client.get(resources.CONTROLLER_REVISIONS, name, namespace)

    async def _pin(self, draft: Draft, name: str, revision: JsonObject) -> SyncError | None:
        """Create a revision and record it, unless the policy says to expand VMs."""
        if self._cluster.settings().instancetype_reference_policy != "reference":
            return None
        client = self._cluster.client
        try:
            await client.create(resources.CONTROLLER_REVISIONS, revision)
        except StatusError as error:
            if not is_already_exists(error):
                raise
            namespace = meta.namespace(revision)
            existing = await client.get(resources.CONTROLLER_REVISIONS, meta.name(revision), namespace)
            if not _holds_the_same(name, revision, existing):
                return _unexpected_revision(meta.name(revision))
        reference = references.reference(draft.vm, name)
        if reference is not None:
            if reference.pinned_revision not in ("", meta.name(revision)):
                self._replaced.setdefault(draft.vm.metadata.uid, set()).add(reference.pinned_revision)
            draft.status[references.status_field(name)] = reference.recorded(meta.name(revision))
        return None

    async def _delete_replaced(self, vm: VirtualMachine) -> None:
        """Delete the revisions that the stored status no longer names."""
        used = {item.pinned_revision for item in references.references(vm)}
        known = self._replaced.pop(vm.metadata.uid, set())
        for name in known - used:
            try:
                await self._cluster.client.delete(resources.CONTROLLER_REVISIONS, name, vm.metadata.namespace)
            except StatusError as error:
                if not is_not_found(error):
                    raise
        if known & used:
            self._replaced[vm.metadata.uid] = known & used

    async def _expand(self, draft: Draft, found: _Found) -> SyncError | None:
        """Write the values into the VM's spec and remove its references."""
        vm = draft.vm
        policy = self._cluster.settings().instancetype_reference_policy
        is_pinned = any(item.pinned_revision for item in references.references(draft.read()))
        if is_pinned and policy != "expandAll":
            return None
        # The values are written into the template as the user wrote it.
        written = await as_written(self._cluster, kinds.VIRTUAL_MACHINES, vm)
        template = deep_copy(part(written, VirtualMachine, lambda vm: vm.spec.template))
        template.setdefault("metadata", {})
        template["spec"].setdefault("domain", {}).setdefault("devices", {})
        try:
            expand(template, found.instancetype, found.preference, self._cluster.settings())
        except (application.Conflicts, DefaultingError) as error:
            return _failed_creation(error)
        operations: list[JsonObject] = [
            *same_version(described(vm)),  # the status is written with the resourceVersion of this answer
            {"op": "replace", "path": "/spec/template", "value": template},
        ]
        for name, matcher in (("instancetype", vm.spec.instancetype), ("preference", vm.spec.preference)):
            if matcher is not None:
                operations.append({"op": "remove", "path": f"/spec/{name}"})
            draft.status.pop(references.status_field(name), None)
        answer = await self._cluster.client.patch(
            kinds.VIRTUAL_MACHINES, vm.metadata.name, operations, vm.metadata.namespace, type="json"
        )
        draft.vm = decode(VirtualMachine, answer)
        self._found.pop(vm.metadata.uid, None)
        return None

    def apply(self, draft: Draft, instance: JsonObject) -> SyncError | None:
        """Puts the values into a new instance.

        Devices that it gets without naming them come first, because preferences apply to them.
        """
        found = self._found.get(draft.vm.metadata.uid) or _Found()
        spec, metadata = instance["spec"], instance["metadata"]
        if found.preference is not None:
            application.prefer_attached(spec["domain"]["devices"], found.preference.devices)
        set_default_input(spec)
        try:
            default_network(spec, self._cluster.settings())
            if not found.is_empty:
                metadata["annotations"].update(references.instance_annotations(draft.vm))
                application.apply(spec, metadata, found.instancetype, found.preference)
        except (application.Conflicts, DefaultingError) as error:
            return _failed_creation(error)
        return None

    def expanded(self, vm: VirtualMachine, spec: VirtualMachineSpec) -> VirtualMachineSpec:
        """A spec of the VM with instance type and preference applied; unchanged if they conflict with it."""
        found = self._found.get(vm.metadata.uid)
        if found is None:
            return spec
        # Only for comparison, never written: the document is made from the struct.
        document, metadata = encode(spec.instance), deep_copy(dict(spec.template.metadata or {}))
        try:
            application.apply(document, metadata, found.instancetype, found.preference)
        except application.Conflicts:
            return spec
        instance = decode(VirtualMachineInstanceSpec, document)
        return replace(spec, template=replace(spec.template, metadata=metadata, spec=instance))


def _failed_creation(error: application.Conflicts | DefaultingError) -> SyncError:
    if isinstance(error, application.Conflicts):
        text = f"VM conflicts with instancetype spec in fields: [{', '.join(error.fields)}]"
        return SyncError("FailedCreate", text)
    return SyncError("FailedCreate", str(error))
