"""The hardware that VMs ask for, with their instance types and preferences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubecore.json import JsonObject, get_object
from kubecore.objects.structs import UnfitDocument, decode, encode
from virtplane.api.instancetype_v1beta1.instancetype import VirtualMachineInstancetype
from virtplane.api.instancetype_v1beta1.preference import VirtualMachinePreference
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.cluster.caches import Cluster
from virtplane.instancetypes import references
from virtplane.instancetypes.apply import Conflicts, apply


class WantedDomains:
    """Knows the hardware of the VMs that it was asked for last: it is the same until the VM changes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, tuple[VirtualMachine, DomainSpec]] = {}

    def of(self, machines: Iterable[VirtualMachine]) -> Mapping[str, DomainSpec]:
        """By the VMs' UIDs; those of VMs without an instance type are as they are written."""
        found: dict[str, DomainSpec] = {}
        kept: dict[str, tuple[VirtualMachine, DomainSpec]] = {}
        for vm in machines:
            uid = vm.metadata.uid
            if not any(references.references(vm)):
                found[uid] = vm.spec.instance.domain
                continue
            known = self._known.get(uid)
            domain = known[1] if known is not None and known[0] is vm else self._wanted(vm)
            if domain is not None:
                kept[uid] = vm, domain
            found[uid] = domain or vm.spec.instance.domain
        self._known = kept
        return found

    def _wanted(self, vm: VirtualMachine) -> DomainSpec | None:
        """None while the revision of an instance type or preference is not known, or where it cannot be
        applied.
        """
        sources: dict[str, JsonObject] = {}
        for reference in references.references(vm):
            revision = self._cluster.revision(vm.metadata.namespace, reference.pinned_revision)
            if revision is None:
                return None
            sources[reference.field] = get_object(revision, "data")
        instancetype, preference = sources.get("instancetype"), sources.get("preference")
        spec = encode(VirtualMachineInstanceSpec(domain=vm.spec.instance.domain))
        try:
            apply(
                spec,
                {},
                decode(VirtualMachineInstancetype, instancetype).spec if instancetype is not None else None,
                decode(VirtualMachinePreference, preference).spec if preference is not None else None,
            )
            return decode(VirtualMachineInstanceSpec, spec).domain
        except (Conflicts, UnfitDocument, ValueError):
            return None
