"""Annotations that follow a VM into its running instance, and back. Pure.

What deschedulers and backups are told follows the VM; its PCI topology stays for the next start.
"""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.patch.guarded import guarded_patch, same_version
from virtplane.api import labels
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.cluster.objects import described

_OF_TEMPLATE = (labels.DESCHEDULER_EVICT, labels.DESCHEDULER_SPARE, labels.SKIP_BACKUP_HOOKS)
_OF_MACHINE = (labels.SKIP_BACKUP_HOOKS,)
"""Those that the VM may have itself, and not only its template."""
_OF_INSTANCE = (labels.PCI_TOPOLOGY_VERSION, labels.PCI_INTERFACE_SLOT_COUNT)


def instance_operations(vm: VirtualMachine, vmi: VirtualMachineInstance) -> list[JsonObject]:
    """Operations that give the instance such annotations as its VM has them now."""
    if vmi.metadata.is_being_deleted:
        return []
    template = decode(ObjectMeta, vm.spec.template.metadata or {}).annotations
    followed = {key: value for key, value in template.items() if key in _OF_TEMPLATE}
    followed |= {key: value for key, value in vm.metadata.annotations.items() if key in _OF_MACHINE}
    present = dict(vmi.metadata.annotations)
    kept = {key: value for key, value in present.items() if key not in _OF_TEMPLATE}
    before = {"metadata": {"uid": vmi.metadata.uid, "annotations": present}}
    after = {"metadata": {"annotations": kept | followed}}
    return guarded_patch(before, after, ("metadata", "annotations"))


def template_operations(vm: VirtualMachine, vmi: VirtualMachineInstance) -> list[JsonObject]:
    """Operations that give the template, at the VM's very version, the PCI topology of its instance.

    That is for VMs from before templates got one: a topology that the template names stays.
    """
    before = vm.spec.template.metadata or {}
    named = decode(ObjectMeta, before).annotations
    learnt = {key: value for key, value in vmi.metadata.annotations.items() if key in _OF_INSTANCE}
    if named.get(labels.PCI_TOPOLOGY_VERSION) or not learnt.get(labels.PCI_TOPOLOGY_VERSION):
        return []
    after = {**before, "annotations": {**named, **learnt}}
    operation: JsonObject = {"op": "add", "path": "/spec/template/metadata", "value": after}
    return [*same_version(described(vm)), operation]
