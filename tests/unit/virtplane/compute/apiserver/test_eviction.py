"""Evicting the launcher of a running guest."""

from __future__ import annotations

import pytest

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.apiserver.eviction import (
    ALLOWED,
    EvictionWebhook,
    Verdict,
    control_plane_refusal,
    evaluate,
    mark_operations,
)

_POD: JsonObject = {"spec": {"nodeName": "node"}}
_TEXT = 'Eviction triggered evacuation of VMI "ns/vmi"'


def _vmi(strategy: str = "", migratable: bool = True, **status: str) -> JsonObject:
    condition = {"type": "LiveMigratable", "status": "True" if migratable else "False"}
    return {
        "metadata": {"name": "vmi", "namespace": "ns"},
        "spec": {"domain": {"devices": {}}, "evictionStrategy": strategy or None},
        "status": {"nodeName": "node", "conditions": [condition], **status},
    }


@pytest.mark.parametrize(
    ("vmi", "default", "verdict"),
    [
        (_vmi(), "None", ALLOWED),
        (_vmi("None"), "LiveMigrate", ALLOWED),
        (_vmi("LiveMigrate"), "None", Verdict(_TEXT, mark=True)),
        (_vmi(), "LiveMigrate", Verdict(_TEXT, mark=True)),
        (_vmi("LiveMigrateIfPossible", migratable=False), "None", ALLOWED),
        (_vmi("External", migratable=False), "None", Verdict(_TEXT, mark=True)),
        (
            _vmi("LiveMigrate", migratable=False),
            "None",
            Verdict("VMI vmi is configured with an eviction strategy but is not live-migratable"),
        ),
        (_vmi("LiveMigrate", evacuationNodeName="node"), "None", Verdict(f"Evacuation in progress: {_TEXT}")),
        (_vmi("LiveMigrate", nodeName="other"), "None", Verdict("Eviction request for target Pod")),
    ],
)
@pytest.mark.feature("NOD-03", "NOD-04", "NOD-05", "NOD-08")
def test_the_strategy_decides_about_an_eviction(vmi: JsonObject, default: str, verdict: Verdict) -> None:
    assert evaluate(decode(VirtualMachineInstance, vmi), _POD, default) == verdict


def test_the_descheduler_is_remembered() -> None:
    operations = mark_operations(decode(VirtualMachineInstance, _vmi()), "node", "sigs.k8s.io/descheduler")
    assert operations[0]["value"] == "node"
    assert operations[1]["value"] == {"kubevirt.io/eviction-source": "descheduler"}


_OPERATOR: JsonObject = {
    "metadata": {
        "name": "virt-operator-1",
        "namespace": "kubevirt",
        "labels": {"kubevirt.io": "virt-operator"},
    },
    "spec": {"nodeName": "node"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("vmi", "refused"),
    [
        (_vmi(phase="Running"), True),
        (_vmi(phase="Scheduled"), True),
        (_vmi(phase="Succeeded"), False),
        (_vmi(phase="Failed"), False),
        (_vmi(phase="Running", nodeName="other"), False),
        (_vmi(phase="Pending", nodeName=""), False),
    ],
)
def test_the_control_plane_leaves_a_node_after_its_guests(vmi: JsonObject, refused: bool) -> None:
    refusal = control_plane_refusal(_OPERATOR, [vmi])
    assert refusal == (
        "virt-operator-1 leaves node node after its guests (1 left, ns/vmi among them)" if refused else ""
    )


@pytest.mark.feature("NOD-02")
async def test_a_drain_tries_the_control_plane_again_while_guests_run() -> None:
    api = MemoryApi([kinds.VIRTUAL_MACHINE_INSTANCES])
    api.put(resources.PODS, _OPERATOR)
    vmi = api.put(kinds.VIRTUAL_MACHINE_INSTANCES, _vmi(phase="Running"))
    request = {"uid": "1", "namespace": "kubevirt", "name": "virt-operator-1"}
    async with api.client() as client:
        webhook = EvictionWebhook(client)
        answer = await webhook.review({"request": request}, ClusterConfig({}))
        assert answer["response"]["status"]["code"] == 429
        api.put(kinds.VIRTUAL_MACHINE_INSTANCES, vmi | {"status": {"nodeName": "node", "phase": "Succeeded"}})
        answer = await webhook.review({"request": request}, ClusterConfig({}))
    assert answer["response"] == {"uid": "1", "allowed": True}


async def test_a_tenants_pod_that_calls_itself_the_control_plane_is_told_of_no_guests() -> None:
    api = MemoryApi([kinds.VIRTUAL_MACHINE_INSTANCES])
    metadata = {"name": "virt-launcher-x", "namespace": "tenant", "labels": {"kubevirt.io": "virt-operator"}}
    api.put(resources.PODS, {**_OPERATOR, "metadata": metadata})
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, _vmi(phase="Running"))
    request = {"uid": "1", "namespace": "tenant", "name": "virt-launcher-x"}
    async with api.client() as client:
        answer = await EvictionWebhook(client).review({"request": request}, ClusterConfig({}))
    assert answer["response"] == {"uid": "1", "allowed": True}


async def test_a_guest_whose_instance_cannot_be_read_is_not_evicted() -> None:
    """Whether it may be is not known; whoever drains the node tries again."""
    api = MemoryApi([kinds.VIRTUAL_MACHINE_INSTANCES])
    labels, annotations = {"kubevirt.io": "virt-launcher"}, {"kubevirt.io/domain": "vmi"}
    metadata = {"name": "p", "namespace": "ns", "labels": labels, "annotations": annotations}
    api.put(resources.PODS, {"metadata": metadata, **_POD})
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, _vmi() | {"spec": {"evictionStrategy": 7}})
    request = {"uid": "1", "namespace": "ns", "name": "p"}
    async with api.client() as client:
        answer = await EvictionWebhook(client).review({"request": request}, ClusterConfig({}))
    refused = answer["response"]["status"]
    assert refused["code"] == 429
    assert "spec.evictionStrategy" in refused["message"]
