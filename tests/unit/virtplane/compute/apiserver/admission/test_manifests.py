"""The machines of users' guides, given to the webhooks: fragments with what they leave out."""

from __future__ import annotations

import pytest
from tests.support import guides
from tests.support.reviews import World, admit

from kubecore.json import get_str
from kubecore.objects import meta

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


@pytest.mark.skipif(not guides.MANIFESTS.exists(), reason="VIRTPLANE_REFERENCE names no directory with it")
async def test_what_guides_show_is_accepted_or_refused_as_by_kubevirt() -> None:
    others = guides.documents(*(kind for kind in _PLURALS if kind not in guides.MACHINES))
    refused: list[tuple[str, str]] = []
    for document in (*guides.machines(), *others):
        answer = await admit(World(), _PLURALS[document["kind"]], "CREATE", document, {})
        if answer.get("kind") == "Status":
            refused.append((meta.name(document), get_str(answer, "message")))
    assert [name for name, _ in refused] == [name for name, _ in _REFUSED]
    for (_, message), (name, ending) in zip(refused, _REFUSED, strict=True):
        assert message.endswith(ending), f"{name}: {message}"
