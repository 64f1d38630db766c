"""The machines of users' guides, given to the webhooks: fragments with what they leave out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from tests.support.reviews import World, admit

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta

_MANIFESTS = Path(os.environ.get("VIRTPLANE_REFERENCE", "/nowhere")) / "reference/manifests.yaml"
_PLURALS = {
    "VirtualMachine": "virtualmachines",
    "VirtualMachineInstance": "virtualmachineinstances",
    "VirtualMachineInstancetype": "virtualmachineinstancetypes",
    "VirtualMachineRestore": "virtualmachinerestores",
    "VirtualMachineSnapshot": "virtualmachinesnapshots",
    "MigrationPolicy": "migrationpolicies",
}

_REFUSED = (
    ("example-vm", "requires a noCloud volume to exist when the noCloud propagationMethod is in use."),
    ("boot-order-vm", "Bus type virtio is invalid for CD-ROM device"),
    ("vm", "SecureBoot requires SMM, which is currently disabled."),
    ("rhel", "Data volume should have either Source, SourceRef, or be externally populated"),
    ("vm-http-import", "must be referenced in the VMI template's 'volumes' list"),
)
"""What KubeVirt refuses, too, and how its message ends."""


def _documents() -> list[JsonObject]:
    found = yaml.safe_load_all(_MANIFESTS.read_text())
    return [each for each in found if each and each["kind"] in _PLURALS]


def _complete(document: JsonObject) -> None:
    """Add what a fragment leaves out, and nothing that it says."""
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


@pytest.mark.skipif(not _MANIFESTS.exists(), reason="VIRTPLANE_REFERENCE names no directory with manifests")
async def test_what_guides_show_is_accepted_or_refused_as_by_kubevirt() -> None:
    refused: list[tuple[str, str]] = []
    for document in _documents():
        if document["kind"] in ("VirtualMachine", "VirtualMachineInstance"):
            _complete(document)
        answer = await admit(World(), _PLURALS[document["kind"]], "CREATE", document, {})
        if answer.get("kind") == "Status":
            refused.append((meta.name(document), get_str(answer, "message")))
    assert [name for name, _ in refused] == [name for name, _ in _REFUSED]
    for (_, message), (name, ending) in zip(refused, _REFUSED, strict=True):
        assert message.endswith(ending), f"{name}: {message}"
