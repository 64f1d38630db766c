"""The objects of a clone and its phase: pure decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import orjson

from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.structs import decode, encode
from kubecore.resources import ResourceType
from kubecore.schema.regexes import Pattern, PatternError
from virtplane.api import resources as kinds
from virtplane.api.clone_v1beta1.clone import VirtualMachineClone, VirtualMachineCloneSpec
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.kubevirt_v1.firmware import Firmware
from virtplane.api.kubevirt_v1.networks import Interface
from virtplane.api.kubevirt_v1.vm import (
    VirtualMachine,
    VirtualMachineInstanceTemplateSpec,
    VirtualMachineSpec,
)
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.snapshot_v1beta1.snapshot import SnapshotVirtualMachine, VirtualMachineSnapshotContent
from virtplane.cluster import conditions, persistentstate

PHASES = ("SnapshotInProgress", "RestoreInProgress", "CreatingTargetVM", "Succeeded", "Failed")


def snapshot_name(clone: VirtualMachineClone) -> str:
    """The snapshot that the copy is restored from."""
    if clone.spec.source.kind == "VirtualMachineSnapshot":
        return clone.spec.source.name
    return f"tmp-snapshot-{clone.metadata.uid}"


def restore_name(clone: VirtualMachineClone) -> str:
    """The restore that makes the copy."""
    return f"tmp-restore-{clone.metadata.uid}"


def target_name(clone: VirtualMachineClone) -> str:
    """The copy's name."""
    named = clone.spec.target.name if clone.spec.target else ""
    return named or f"{clone.spec.source.name}-clone-{clone.metadata.uid[:5]}"


def has_persistent_state(spec: VirtualMachineSpec) -> bool:
    """Whether the VM keeps TPM or firmware state, which cannot be copied."""
    return persistentstate.is_needed(spec.instance)


# A volume that a copy does not get of its own is that of its source: two guests would write to one disk.


def unsnapshottable(vm: VirtualMachine) -> str:
    """What is wrong with the VM's volumes of which no snapshot can be taken, as far as is known."""
    statuses = {each.name: each.enabled for each in vm.observed.volume_snapshot_statuses}
    texts = []
    for name in _volumes_on_claims(vm.spec):
        if name not in statuses:
            texts.append(f"Virtual Machine volume {name} snapshot support unknown")
        elif not statuses[name]:
            texts.append(f"Virtual Machine volume {name} does not support snapshots")
    return "\n".join(texts)


def missing_backups(content: VirtualMachineSnapshotContent) -> str:
    """What is wrong with a snapshot that lacks volumes of its VM."""
    spec = content.spec.source.virtual_machine.spec
    taken = {backup.volume_name for backup in content.spec.volume_backups}
    snapshot = content.spec.virtual_machine_snapshot_name or ""
    names = _volumes_on_claims(spec) if spec is not None else []
    return "\n".join(
        f"volume {name} is not backed up in snapshot {snapshot}" for name in names if name not in taken
    )


def _volumes_on_claims(spec: VirtualMachineSpec) -> list[str]:
    return [
        volume.name
        for volume in spec.instance.volumes
        if volume.persistent_volume_claim is not None or volume.data_volume is not None
    ]


def new_snapshot(clone: VirtualMachineClone) -> JsonObject:
    """The helper snapshot of the source VM."""
    kind = kinds.VIRTUAL_MACHINE_SNAPSHOTS
    source = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": clone.spec.source.name}
    return _owned(clone, kind, snapshot_name(clone), {"source": source})


def new_restore(clone: VirtualMachineClone, source: SnapshotVirtualMachine) -> JsonObject:
    """The helper restore; its patches make the copy different from `source` where it must be."""
    spec: JsonObject = {
        "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": target_name(clone)},
        "virtualMachineSnapshotName": snapshot_name(clone),
        "patches": [orjson.dumps(item).decode() for item in patches(clone, source)],
    }
    if clone.spec.volume_name_policy:
        spec["volumeRestorePolicy"] = clone.spec.volume_name_policy
    return _owned(clone, kinds.VIRTUAL_MACHINE_RESTORES, restore_name(clone), spec)


def _owned(clone: VirtualMachineClone, kind: ResourceType, name: str, spec: JsonObject) -> JsonObject:
    owner = meta.new_controller_ref({"metadata": encode(clone.metadata)}, kinds.VIRTUAL_MACHINE_CLONES)
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": clone.metadata.namespace, "ownerReferences": [owner]},
        "spec": spec,
    }


def patches(clone: VirtualMachineClone, source: SnapshotVirtualMachine) -> list[JsonObject]:
    """The patch of the copy: new addresses and identity, and the labels and annotations that the filters
    keep.
    """
    template = source.spec.template if source.spec else VirtualMachineInstanceTemplateSpec()
    domain = template.spec.domain if template.spec else DomainSpec()
    return [
        *_addresses(clone.spec, domain.devices.interfaces),
        *_identity(clone.spec, domain.firmware),
        *_entries(clone.spec, source.metadata, decode(ObjectMeta, template.metadata or {})),
        *(orjson.loads(text) for text in clone.spec.patches),
    ]


def _addresses(wanted: VirtualMachineCloneSpec, interfaces: Sequence[Interface]) -> Iterator[JsonObject]:
    for index, interface in enumerate(interfaces):
        path = f"/spec/template/spec/domain/devices/interfaces/{index}/macAddress"
        yield from _set(path, interface.mac_address, wanted.new_mac_addresses.get(interface.name))


def _identity(wanted: VirtualMachineCloneSpec, firmware: Firmware) -> Iterator[JsonObject]:
    path, serial = "/spec/template/spec/domain/firmware", wanted.new_sm_bios_serial
    if firmware != Firmware():
        yield from _set(f"{path}/serial", firmware.serial, serial)
        yield from _set(f"{path}/uuid", firmware.uuid, None)
    elif serial:
        yield {"op": "add", "path": path, "value": {"serial": serial}}


def _entries(
    wanted: VirtualMachineCloneSpec, machine: ObjectMeta, template: ObjectMeta
) -> Iterator[JsonObject]:
    for filters, entries, path in (
        (wanted.label_filters, machine.labels, "/metadata/labels"),
        (wanted.annotation_filters, machine.annotations, "/metadata/annotations"),
        (wanted.template.label_filters, template.labels, "/spec/template/metadata/labels"),
        (wanted.template.annotation_filters, template.annotations, "/spec/template/metadata/annotations"),
    ):
        if filters is not None and entries:
            yield {"op": "replace", "path": path, "value": filtered(entries, filters)}


def _set(path: str, present: object, value: object) -> list[JsonObject]:
    if value:
        return [{"op": "add", "path": path, "value": value}]
    return [{"op": "remove", "path": path}] if present else []


def filtered(entries: Mapping[str, str], filters: Sequence[str]) -> dict[str, str]:
    """The entries that a filter matches and no filter with a leading ``!`` does.

    Filters are regular expressions that match anywhere in the key; a lone ``*`` wants all.
    """
    wanted = _patterns(item for item in filters if not item.startswith("!"))
    refused = _patterns(item[1:] for item in filters if item.startswith("!"))
    return {
        key: value
        for key, value in entries.items()
        if any(item.matches(key) for item in wanted) and not any(item.matches(key) for item in refused)
    }


def _patterns(filters: Iterable[str]) -> list[Pattern]:
    """The filters; one that is no expression matches nothing."""
    found = []
    for item in dict.fromkeys(filters):
        try:
            found.append(Pattern("" if item == "*" else item))
        except PatternError:
            continue
    return found


def set_phase(status: JsonObject, phase: str, problem: str = "") -> None:
    """Set phase and conditions together; `problem` is why the clone has failed."""
    status["phase"] = phase
    if phase == "Succeeded":
        _set_conditions(status, ("False", "Ready"), ("True", "Ready"))
    elif phase == "Failed":
        _set_conditions(status, ("False", "Failed"), ("False", problem or "Failed"))
    else:
        _set_conditions(status, ("True", "Still processing"), ("False", "Still processing"))


def set_pending(status: JsonObject, problem: str) -> None:
    """Say what the clone waits for before it begins."""
    _set_conditions(status, ("False", "Pending"), ("False", problem))


def _set_conditions(status: JsonObject, progressing: tuple[str, str], ready: tuple[str, str]) -> None:
    known = status.setdefault("conditions", [])
    conditions.put(known, conditions.new_condition("Progressing", *progressing))
    conditions.put(known, conditions.new_condition("Ready", *ready))
