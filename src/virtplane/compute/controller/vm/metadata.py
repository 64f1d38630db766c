"""Annotations that follow a VM into its running instance: what deschedulers and backups are told. Pure."""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.patch.guarded import guarded_patch
from virtplane.api import labels
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.meta_v1 import ObjectMeta

_OF_TEMPLATE = (labels.DESCHEDULER_EVICT, labels.DESCHEDULER_SPARE, labels.SKIP_BACKUP_HOOKS)
_OF_MACHINE = (labels.SKIP_BACKUP_HOOKS,)
"""Those that the VM may have itself, and not only its template."""


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
