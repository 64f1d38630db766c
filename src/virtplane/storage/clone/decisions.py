"""What a clone needs and how far it is: pure decisions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import orjson

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import resources as kinds
from virtplane.cluster import conditions

PHASES = ("SnapshotInProgress", "RestoreInProgress", "CreatingTargetVM", "Succeeded", "Failed")
_KIND = kinds.VIRTUAL_MACHINE_CLONES


def source_kind(clone: JsonObject) -> str:
    """What is copied: VirtualMachine or VirtualMachineSnapshot."""
    return get_str(clone, "spec", "source", "kind")


def snapshot_name(clone: JsonObject) -> str:
    """The snapshot that the copy is restored from."""
    if source_kind(clone) == "VirtualMachineSnapshot":
        return get_str(clone, "spec", "source", "name")
    return f"tmp-snapshot-{meta.uid(clone)}"


def restore_name(clone: JsonObject) -> str:
    """The restore that makes the copy."""
    return f"tmp-restore-{meta.uid(clone)}"


def target_name(clone: JsonObject) -> str:
    """The copy's name."""
    named = get_str(clone, "spec", "target", "name")
    return named or f"{get_str(clone, 'spec', 'source', 'name')}-clone-{meta.uid(clone)[:5]}"


def has_persistent_state(vm: JsonObject) -> bool:
    """Whether the VM keeps TPM or firmware state, which cannot be copied."""
    domain = get_object(vm, "spec", "template", "spec", "domain")
    if get_object(domain, "devices", "tpm").get("persistent") is True:
        return True
    return get_object(domain, "firmware", "bootloader", "efi").get("persistent") is True


def new_snapshot(clone: JsonObject) -> JsonObject:
    """The helper snapshot of the source VM."""
    kind = kinds.VIRTUAL_MACHINE_SNAPSHOTS
    source = {
        "apiGroup": "kubevirt.io",
        "kind": "VirtualMachine",
        "name": get_str(clone, "spec", "source", "name"),
    }
    return _owned(clone, kind.api_version, kind.kind, snapshot_name(clone), {"source": source})


def new_restore(clone: JsonObject, source: JsonObject) -> JsonObject:
    """The helper restore; its patches make the copy different from `source` where it must be."""
    kind = kinds.VIRTUAL_MACHINE_RESTORES
    spec: JsonObject = {
        "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": target_name(clone)},
        "virtualMachineSnapshotName": snapshot_name(clone),
        "patches": [orjson.dumps(item).decode() for item in patches(clone, source)],
    }
    policy = get_str(clone, "spec", "volumeNamePolicy")
    if policy:
        spec["volumeRestorePolicy"] = policy
    return _owned(clone, kind.api_version, kind.kind, restore_name(clone), spec)


def _owned(clone: JsonObject, version: str, kind: str, name: str, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": meta.namespace(clone),
            "ownerReferences": [meta.new_controller_ref(clone, _KIND)],
        },
        "spec": spec,
    }


def patches(clone: JsonObject, source: JsonObject) -> list[JsonObject]:
    """Operations on the copy: addresses and identity of its own, labels and annotations as filtered."""
    wanted = get_object(clone, "spec")
    found: list[JsonObject] = []
    template = get_object(source, "spec", "template")
    addresses = get_object(wanted, "newMacAddresses")
    interfaces = get_list(template, "spec", "domain", "devices", "interfaces")
    for index, interface in enumerate(interfaces):
        path = f"/spec/template/spec/domain/devices/interfaces/{index}/macAddress"
        found += _set(path, interface.get("macAddress"), addresses.get(get_str(interface, "name")))
    firmware = get_object(template, "spec", "domain", "firmware")
    base = "/spec/template/spec/domain/firmware"
    serial = wanted.get("newSMBiosSerial")
    if firmware:
        found += _set(f"{base}/serial", firmware.get("serial"), serial)
        found += _set(f"{base}/uuid", firmware.get("uuid"), None)
    elif serial:
        found.append({"op": "add", "path": base, "value": {"serial": serial}})
    for filters, owner, path in (
        (wanted.get("labelFilters"), get_object(source, "metadata", "labels"), "/metadata/labels"),
        (
            wanted.get("annotationFilters"),
            get_object(source, "metadata", "annotations"),
            "/metadata/annotations",
        ),
        (
            get_object(wanted, "template").get("labelFilters"),
            get_object(template, "metadata", "labels"),
            "/spec/template/metadata/labels",
        ),
        (
            get_object(wanted, "template").get("annotationFilters"),
            get_object(template, "metadata", "annotations"),
            "/spec/template/metadata/annotations",
        ),
    ):
        if isinstance(filters, list) and owner:
            found.append({"op": "replace", "path": path, "value": filtered(owner, filters)})
    return [*found, *(orjson.loads(text) for text in get_list(wanted, "patches"))]


def _set(path: str, present: object, value: object) -> list[JsonObject]:
    if value:
        return [{"op": "add", "path": path, "value": value}]
    return [{"op": "remove", "path": path}] if present else []


def filtered(entries: Mapping[str, str], filters: Sequence[str]) -> dict[str, str]:
    """Entries whose keys some filter wants and none that begins with ``!`` refuses.

    Filters are regular expressions that match anywhere in the key; a lone ``*`` wants all.
    """
    wanted = [item for item in filters if not item.startswith("!")]
    refused = [item[1:] for item in filters if item.startswith("!")]
    return {
        key: value
        for key, value in entries.items()
        if any(_matches(item, key) for item in wanted) and not any(_matches(item, key) for item in refused)
    }


def _matches(pattern: str, key: str) -> bool:
    if pattern == "*":
        return True
    try:
        return re.search(pattern, key) is not None
    except re.error:
        return False


def set_phase(status: JsonObject, phase: str) -> None:
    """Phase and conditions together."""
    status["phase"] = phase
    progressing, ready, text = "True", "False", "Still processing"
    if phase == "Succeeded":
        progressing, ready, text = "False", "True", "Ready"
    elif phase == "Failed":
        progressing, ready, text = "False", "False", "Failed"
    known = status.setdefault("conditions", [])
    conditions.put(known, conditions.new_condition("Progressing", progressing, text))
    conditions.put(known, conditions.new_condition("Ready", ready, text))
