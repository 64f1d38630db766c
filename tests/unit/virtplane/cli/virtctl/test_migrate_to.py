"""``virtctl migrate VM --to NODE``: what is in the way is told, and nothing is asked for then."""

from __future__ import annotations

from typing import Any

import click
import pytest
from tests.unit.virtplane.compute.launcherpod.rendered_pods import instance, rendered

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.cli.virtctl.explaining import moving
from virtplane.cli.virtctl.explaining.migrateto import look, selector_for

from .conftest import SUB, FakeServer, Virtctl

_LABELS = {
    "kubevirt.io/schedulable": "true",
    "kubernetes.io/arch": "amd64",
    "zone": "a",
    "cpu-model-migration.node.kubevirt.io/Skylake": "true",
    "cpu-feature.node.kubevirt.io/avx2": "true",
}
_HOST_MODEL = {
    "host-model-cpu.node.kubevirt.io/Skylake": "true",
    "host-model-required-features.node.kubevirt.io/avx2": "true",
}
_NOT_SHARED = {"reason": "DisksNotLiveMigratable", "message": "PVC c is not shared"}


def _node(name: str, memory: str = "8Gi", *, ready: bool = True, lacks: str = "", **spec: Any) -> JsonObject:
    labels = {key: value for key, value in _LABELS.items() if key != lacks} | {
        moving.HOSTNAME: f"host-{name}"
    }
    devices = {f"devices.kubevirt.io/{each}": "1k" for each in ("kvm", "tun", "vhost-net")}
    allocatable = {"cpu": "8", "memory": memory, "ephemeral-storage": "9Gi", "pods": "110", **devices}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"allocatable": allocatable, "conditions": conditions}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def _cluster(
    target: JsonObject, *, phase: str = "Running", condition: JsonObject | None = None, **spec: Any
) -> MemoryApi:
    """A guest on the node "old", in the pod that virt-controller makes for it."""
    api = MemoryApi([kinds.VIRTUAL_MACHINE_INSTANCES])
    old = _node("old")
    old["metadata"]["labels"] |= _HOST_MODEL
    for node in (old, target):
        api.put(resources.NODES, node)
    domain = {"devices": {}, "memory": {"guest": "2Gi"}, "cpu": {"model": spec.pop("model", "host-model")}}
    vmi = instance(nodeSelector={"zone": "a"}, domain=domain, **spec)
    pod = rendered(vmi)
    pod["metadata"] |= {"uid": "p", "namespace": "ns"}
    pod["spec"]["nodeName"] = "old"
    api.put(resources.PODS, {**pod, "status": {"phase": "Running"}})
    conditions = [condition or {"type": "LiveMigratable", "status": "True"}]
    vmi["status"] = {"phase": phase, "nodeName": "old", "activePods": {"p": "old"}, "conditions": conditions}
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, vmi)
    return api


async def _found(api: MemoryApi, to: str = "new") -> list[moving.Obstacle]:
    async with api.client() as client:
        return (await look(client, "ns", "vm", to))[1]


_TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.feature("NEW-02")
@pytest.mark.parametrize(
    ("target", "guest", "why", "field"),
    [
        (
            _node("new", "2Gi"),
            {},
            "the node lacks 321.4Mi of memory: the guest asks for 2.3Gi, and 2Gi of 2Gi are left",
            "Node new",
        ),
        (_node("new", unschedulable=True), {}, "the node is cordoned", "Node spec.unschedulable"),
        (_node("new", ready=False), {}, "the node is not ready", "Node status.conditions[Ready]"),
        (
            _node("new", taints=[_TAINT]),
            {},
            "the node has the taint gpu:NoSchedule",
            "spec.template.spec.tolerations",
        ),
        (
            _node("new", lacks="zone"),
            {},
            "the node has no label zone=a",
            "spec.template.spec.nodeSelector[zone]",
        ),
        (
            _node("new"),
            {"model": "EPYC"},
            "the node has no label cpu-model.node.kubevirt.io/EPYC=true",
            "spec.template.spec.domain.cpu.model",
        ),
        (
            _node("new", lacks="cpu-feature.node.kubevirt.io/avx2"),
            {},
            "the node's processor lacks what the guest was started with: avx2",
            "spec.template.spec.domain.cpu.model",
        ),
        (
            _node("new"),
            {"condition": {"type": "LiveMigratable", "status": "False", **_NOT_SHARED}},
            "PVC c is not shared (DisksNotLiveMigratable)",
            "spec.template.spec.volumes",
        ),
        (
            _node("new"),
            {"phase": "Scheduled"},
            "its guest does not run (phase Scheduled)",
            "spec.runStrategy",
        ),
    ],
)
async def test_what_is_in_the_way_is_named_with_the_field_to_change(
    target: JsonObject, guest: dict[str, Any], why: str, field: str
) -> None:
    [found] = await _found(_cluster(target, **guest))
    assert found.why.startswith(why)
    assert found.change is not None
    assert (found.change.field, bool(found.change.advice)) == (field, True)


@pytest.mark.feature("NEW-02")
async def test_the_numbers_are_those_of_the_nodes_pods() -> None:
    api = _cluster(_node("new", "4Gi"))
    assert await _found(api) == []
    container = {"name": "c", "resources": {"requests": {"memory": "3Gi"}}}
    other = {
        "metadata": {"name": "o", "namespace": "ns"},
        "spec": {"nodeName": "new", "containers": [container]},
    }
    api.put(resources.PODS, other)
    [found] = await _found(api)
    assert found.why.startswith(
        "the node lacks 1.3Gi of memory: the guest asks for 2.3Gi, and 1Gi of 4Gi are left"
    )


@pytest.mark.feature("NEW-02")
async def test_claims_of_one_node_hold_their_guest() -> None:
    volumes = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
    api = _cluster(_node("new"), volumes=volumes)
    terms = [{"matchExpressions": [{"key": moving.HOSTNAME, "operator": "In", "values": ["host-old"]}]}]
    volume = {"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}
    api.put(resources.PERSISTENT_VOLUMES, volume)
    api.put(
        resources.PERSISTENT_VOLUME_CLAIMS,
        {"metadata": {"name": "c", "namespace": "ns"}, "spec": {"volumeName": "v"}},
    )
    assert [each.why for each in await _found(api)] == ["the node does not reach the claim c"]


async def test_where_it_is_or_is_going_it_need_not_move() -> None:
    api = _cluster(_node("new"))
    assert [each.why for each in await _found(api, "old")] == ["it runs there already"]
    vmi = api.get(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns") or {}
    vmi["status"]["migrationState"] = {"startTimestamp": "2026-01-01T00:00:00Z", "targetNode": "third"}
    api.put(kinds.VIRTUAL_MACHINE_INSTANCES, vmi)
    assert [each.why for each in await _found(api)] == ["it is being moved to third already"]
    async with api.client() as client:
        with pytest.raises(click.ClickException, match=r"no such node \(there are: new, old\)"):
            await look(client, "ns", "vm", "none")
        with pytest.raises(click.ClickException, match="its guest does not run"):
            await look(client, "ns", "other", "new")


@pytest.mark.feature("NEW-02")
async def test_a_node_that_fits_is_named_by_its_label() -> None:
    async with _cluster(_node("new")).client() as client:
        assert await selector_for(client, "ns", "vm", "new") == {moving.HOSTNAME: "host-new"}
        with pytest.raises(click.ClickException) as refused:
            await selector_for(client, "ns", "vm", "old")
    assert refused.value.message.splitlines() == [
        "vm cannot move to old:",
        "  it runs there already",
        "    field:  --to is old",
        "    change: name another node",
    ]


def _serve(api: FakeServer, cluster: MemoryApi) -> None:
    vmi = cluster.get(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns") or {}
    api.answers["GET", "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm"] = (200, vmi)
    for kind, path in ((resources.PODS, "/api/v1/pods"), (resources.NODES, "/api/v1/nodes")):
        api.answers["GET", path] = (200, {"items": cluster.list(kind)})


@pytest.mark.feature("NEW-02")
def test_nothing_is_asked_for_while_something_is_in_the_way(api: FakeServer, virtctl: Virtctl) -> None:
    line = ("migrate", "vm", "-n", "ns", "--to", "new")
    _serve(api, _cluster(_node("new", unschedulable=True)))
    refused = virtctl(*line)
    assert refused.code == 1
    assert refused.err.splitlines()[:2] == ["vm cannot move to new:", "  the node is cordoned"]
    assert {method for method, _, _ in api.requests} == {"GET"}
    _serve(api, _cluster(_node("new")))
    assert virtctl(*line, "--addedNodeSelector", "disk=ssd").out == "VM vm was scheduled to migrate\n"
    wanted = {"addedNodeSelector": {"disk": "ssd", moving.HOSTNAME: "host-new"}}
    assert api.requests[-1] == ("PUT", f"{SUB}/ns/virtualmachines/vm/migrate", wanted)
