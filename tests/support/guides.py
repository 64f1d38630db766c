"""The machines that users' guides show, completed: fragments get what they leave out.

A name that comes again gets a number: ``example-vm-2``.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import yaml

from kubecore.json import JsonObject, get_list, get_object, get_str

MANIFESTS = Path(os.environ.get("VIRTPLANE_REFERENCE", "/nowhere")) / "reference/manifests.yaml"
"""The file is not part of this repository."""

MACHINES = ("VirtualMachine", "VirtualMachineInstance")


REFUSED = {
    "example-vm-2": "requires a noCloud volume to exist when the noCloud propagationMethod is in use.",
    "boot-order-vm": "Bus type virtio is invalid for CD-ROM device",
    "vm": "SecureBoot requires SMM, which is currently disabled.",
    "rhel": "Data volume should have either Source, SourceRef, or be externally populated",
    "vm-http-import": "must be referenced in the VMI template's 'volumes' list",
}
"""The machines that KubeVirt refuses, and how its message ends."""


def documents(*kinds: str) -> list[JsonObject]:
    """The documents of these kinds as they are printed."""
    found = yaml.safe_load_all(MANIFESTS.read_text())
    return [each for each in found if each and each["kind"] in kinds]


def machines() -> dict[str, JsonObject]:
    """All machines and instances by their names, completed."""
    found: dict[str, JsonObject] = {}
    seen: Counter[str] = Counter()
    for document in documents(*MACHINES):
        complete(document)
        name = document["metadata"]["name"]
        seen[name] += 1
        if seen[name] > 1:
            document["metadata"]["name"] = f"{name}-{seen[name]}"
        found[document["metadata"]["name"]] = document
    return found


def instance_spec(document: JsonObject) -> JsonObject:
    """What a machine or an instance says about its instance."""
    place = document["spec"]["template"] if document["kind"] == "VirtualMachine" else document
    spec: JsonObject = place["spec"]
    return spec


def complete(document: JsonObject) -> None:
    """Add what a fragment of a machine or an instance leaves out, and nothing that it says."""
    instance = document
    if document["kind"] == "VirtualMachine":
        spec = document.setdefault("spec", {})
        if "running" not in spec:
            spec.setdefault("runStrategy", "Halted")
        instance = spec.setdefault("template", {})
    spec = instance.setdefault("spec", {})
    domain = spec.setdefault("domain", {})
    devices = domain.setdefault("devices", {})
    if not (get_object(domain, "memory") or get_object(domain, "resources") or _has_instancetype(document)):
        domain["memory"] = {"guest": "1Gi"}
    for wanted, section, source in (
        ("disks", "volumes", {"emptyDisk": {"capacity": "1Gi"}}),
        ("interfaces", "networks", {"pod": {}}),
    ):
        known = {get_str(each, "name") for each in get_list(spec, section)}
        missing = [get_str(each, "name") for each in get_list(devices, wanted)]
        spec[section] = [
            *get_list(spec, section),
            *({"name": name, **source} for name in missing if name not in known),
        ]


def _has_instancetype(document: JsonObject) -> bool:
    return bool(get_object(document, "spec", "instancetype"))
