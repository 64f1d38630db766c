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


@pytest.mark.skipif(not guides.MANIFESTS.exists(), reason="VIRTPLANE_REFERENCE names no directory with it")
async def test_what_guides_show_is_accepted_or_refused_as_by_kubevirt() -> None:
    others = guides.documents(*(kind for kind in _PLURALS if kind not in guides.MACHINES))
    refused: dict[str, str] = {}
    for document in (*guides.machines().values(), *others):
        answer = await admit(World(), _PLURALS[document["kind"]], "CREATE", document, {})
        if answer.get("kind") == "Status":
            refused[meta.name(document)] = get_str(answer, "message")
    assert refused.keys() == guides.REFUSED.keys()
    for name, message in refused.items():
        assert message.endswith(guides.REFUSED[name]), f"{name}: {message}"
