"""What ``virtctl adm drain-plan`` says of the guests of a node."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore import errors, resources
from kubecore.client import Request, Response
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cli.virtctl.explaining import draining, room
from virtplane.cli.virtctl.explaining.drainplan import guests
from virtplane.compute.apiserver.eviction import evaluate

_KINDS = (kinds.VIRTUAL_MACHINES, kinds.VIRTUAL_MACHINE_INSTANCES)
_NOT_SHARED = {"reason": "DisksNotLiveMigratable", "message": "PVC c is not shared"}


class Drained:
    """A node "old" with guests; whether they may be evicted is decided as virt-api does."""

    def __init__(self) -> None:
        self.api = MemoryApi(_KINDS)
        self.api.reactions.append(self._evict)
        self.dry: list[bool] = []
        self.node("old", "64Gi")

    def node(self, name: str, memory: str, **spec: Any) -> None:
        allocatable = {"cpu": "8", "memory": memory, "pods": "110"}
        conditions = [{"type": "Ready", "status": "True"}]
        labels = {"kubernetes.io/hostname": name}
        status = {"allocatable": allocatable, "conditions": conditions}
        self.api.put(
            resources.NODES, {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}
        )

    def guest(
        self,
        name: str,
        memory: str = "1Gi",
        *,
        run: str = "Always",
        strategy: str | None = None,
        migratable: bool = False,
        **more: Any,
    ) -> None:
        where: JsonObject = {"name": name, "namespace": "ns", "uid": f"u-{name}"}
        spec = {
            "domain": {"devices": {}},
            "evictionStrategy": strategy,
            "terminationGracePeriodSeconds": 7,
            **more,
        }
        condition = {"type": "LiveMigratable", "status": "True" if migratable else "False", **_NOT_SHARED}
        status = {
            "phase": "Running",
            "nodeName": "old",
            "activePods": {f"p-{name}": "old"},
            "conditions": [condition],
        }
        self.api.put(
            kinds.VIRTUAL_MACHINE_INSTANCES, {"metadata": dict(where), "spec": spec, "status": status}
        )
        if run:
            machine = {"metadata": dict(where), "spec": {"runStrategy": run, "template": {"spec": spec}}}
            self.api.put(kinds.VIRTUAL_MACHINES, machine)
        container = {"name": "compute", "resources": {"requests": {"memory": memory, "cpu": "100m"}}}
        pod: JsonObject = {
            "metadata": {"name": f"virt-launcher-{name}", "namespace": "ns", "uid": f"p-{name}"}
        }
        pod["metadata"]["labels"] = {"kubevirt.io": "virt-launcher"}
        pod["metadata"]["annotations"] = {"kubevirt.io/domain": name}
        pod |= {"spec": {"nodeName": "old", "containers": [container]}, "status": {"phase": "Running"}}
        self.api.put(resources.PODS, pod)

    def _evict(self, request: Request) -> Response | StatusError | None:
        if not request.path.endswith("/eviction"):
            return None
        self.dry.append(("dryRun", "All") in request.query)
        pod = self.api.get(resources.PODS, request.path.split("/")[-2], "ns") or {}
        name = pod["metadata"]["annotations"]["kubevirt.io/domain"]
        vmi = self.api.get(kinds.VIRTUAL_MACHINE_INSTANCES, name, "ns") or {}
        verdict = evaluate(decode(VirtualMachineInstance, vmi), pod, "None")
        if not verdict.refusal:
            return Response(201, {}, b"{}")
        webhook = "virt-launcher-eviction-interceptor.kubevirt.io"
        return errors.too_many_requests(
            f'admission webhook "{webhook}" denied the request: {verdict.refusal}'
        )

    async def plan(self) -> dict[str, draining.Step]:
        async with self.api.client() as client:
            pods = (await client.list(resources.PODS))["items"]
            nodes = room.nodes((await client.list(resources.NODES))["items"], pods)
            found = await guests(client, "old", pods, nodes)
        others = [node for node in nodes if node.name != "old"]
        return {step.name: step for step in draining.plan(found, others)}


@pytest.fixture
def drained() -> Drained:
    return Drained()


@pytest.mark.feature("NEW-04")
async def test_each_guest_is_told_apart_and_who_blocks_is_named(drained: Drained) -> None:
    drained.node("new", "8Gi")
    drained.guest("always")
    drained.guest("once", run="Once")
    drained.guest("alone", run="")
    drained.guest("mobile", strategy="LiveMigrate", migratable=True)
    drained.guest("stuck", strategy="LiveMigrate")
    drained.guest("yours", strategy="External")
    found = await drained.plan()
    assert {step.name.partition("/")[2]: (step.outcome, step.sentence) for step in found.values()} == {
        "always": (draining.RESTARTS, "its guest is shut down within 7 s, and starts again on new."),
        "once": (draining.ENDS, "its guest is shut down within 7 s, and is not started again."),
        "alone": (
            draining.ENDS,
            "its guest is shut down within 7 s, for good: no VirtualMachine owns it.",
        ),
        "mobile": (draining.MOVES, "the drain has it migrated, and waits for that."),
        "stuck": (
            draining.BLOCKS,
            "VMI stuck is configured with an eviction strategy but is not live-migratable"
            " (DisksNotLiveMigratable: PVC c is not shared).",
        ),
        "yours": (
            draining.BLOCKS,
            "the drain waits until a controller of your own has moved it (evictionStrategy External).",
        ),
    }
    change = found["ns/stuck"].change
    assert change is not None
    assert (change.field, change.value) == ("spec.template.spec.evictionStrategy", "LiveMigrate")
    assert drained.dry == [True] * 6
    assert draining.summary("old", list(found.values())) == (
        "old: of 6 guests, 1 would be migrated, 1 would start again on another node,"
        " 2 would be off afterwards, 2 would block the drain."
    )


@pytest.mark.feature("NEW-04")
async def test_room_that_one_guest_takes_is_gone_for_the_next(drained: Drained) -> None:
    drained.node("cordoned", "64Gi", unschedulable=True)
    drained.node("new", "4Gi")
    drained.guest("a", "3Gi")
    drained.guest("b", "2Gi")
    found = await drained.plan()
    assert found["ns/a"].outcome == draining.RESTARTS
    assert found["ns/b"].outcome == draining.WAITS
    assert found["ns/b"].sentence.endswith("it asks for 2Gi of memory, and new has 1Gi of memory left.")


@pytest.mark.feature("NEW-04")
async def test_disks_and_rules_of_one_node_keep_a_guest_from_starting_elsewhere(drained: Drained) -> None:
    drained.node("new", "8Gi")
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["old"]}]}]
    volume = {"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}
    drained.api.put(resources.PERSISTENT_VOLUMES, volume)
    claim = {"metadata": {"name": "c", "namespace": "ns"}, "spec": {"volumeName": "v"}}
    drained.api.put(resources.PERSISTENT_VOLUME_CLAIMS, claim)
    drained.guest("local", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}])
    step = (await drained.plan())["ns/local"]
    assert step.outcome == draining.WAITS
    assert step.sentence.endswith("cannot start elsewhere: no other node reaches the claim c.")


async def test_a_pod_that_calls_itself_a_launcher_is_no_guest(drained: Drained) -> None:
    drained.guest("real")
    forged = dict(drained.api.get(resources.PODS, "virt-launcher-real", "ns") or {})
    forged["metadata"] = {**forged["metadata"], "name": "forged", "uid": "x"}
    drained.api.put(resources.PODS, forged)
    assert list(await drained.plan()) == ["ns/real"]


def test_a_node_without_guests_is_told_so() -> None:
    assert list(draining.lines("old", [])) == ["old: no guest runs on it."]
