"""The machines that users' guides show, completed: fragments get what they leave out."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from kubecore.json import JsonObject, get_list, get_object, get_str

MANIFESTS = Path(os.environ.get("VIRTPLANE_REFERENCE", "/nowhere")) / "reference/manifests.yaml"
"""The file is not part of this repository."""

MACHINES = ("VirtualMachine", "VirtualMachineInstance")


def documents(*kinds: str) -> list[JsonObject]:
    """The documents of these kinds as they are printed."""
    found = yaml.safe_load_all(MANIFESTS.read_text())
    return [each for each in found if each and each["kind"] in kinds]


def machines() -> list[JsonObject]:
    """All machines and instances, completed."""
    found = documents(*MACHINES)
    for document in found:
        complete(document)
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
