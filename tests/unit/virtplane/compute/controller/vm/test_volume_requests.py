"""``status.volumeRequests``: template and instance follow them, and they are dropped when both have."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.runtime import EventRecorder, Manager
from kubecore.testing import MemoryApi
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.vm import draft, liveupdate, volumerequests
from virtplane.compute.launcherpod.inputs import Images

_KINDS = [value for value in vars(kinds).values() if isinstance(value, type(kinds.KUBEVIRTS))]
_NEW = {"persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}}
_ADD = {
    "addVolumeOptions": {
        "name": "new",
        "disk": {"name": "new", "disk": {"bus": "scsi"}},
        "volumeSource": _NEW,
    }
}
_REMOVE = {"removeVolumeOptions": {"name": "c"}}


def _machine(requests: list[JsonObject], *volumes: str) -> JsonObject:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm", "namespace": "ns"},
        "spec": {"template": {"spec": _spec(*volumes)}},
        "status": {"volumeRequests": requests},
    }


def _spec(*volumes: str) -> JsonObject:
    disks = [{"name": name, "disk": {"bus": "scsi"}} for name in volumes]
    items = [{"name": name, **_NEW} for name in volumes]
    return {"domain": {"devices": {"disks": disks, "later": 1}}, "volumes": items, "later": 1}


class _World:
    def __init__(self) -> None:
        self.api = MemoryApi(_KINDS)
        client = self.api.client()
        self.cluster = Cluster(
            client, Manager(client), EventRecorder(client, "test"), Images("launcher:1", "sidecar:1")
        )

    async def create(self, kind: Any, document: JsonObject) -> JsonObject:
        made: JsonObject = await self.cluster.client.create(kind, document)
        return made


@pytest.mark.feature("VML-29", "VML-30", "VML-31", "VML-35")
@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize(("request_", "before", "after"), [(_ADD, (), ["new"]), (_REMOVE, ("new",), [])])
async def test_template_and_instance_follow_a_request(
    runs: bool, request_: JsonObject, before: tuple[str, ...], after: list[str]
) -> None:
    world = _World()
    machine = await world.create(kinds.VIRTUAL_MACHINES, _machine([request_], *before))
    vmi = None
    if runs:
        metadata = {"name": "vm", "namespace": "ns"}
        document = {"metadata": metadata, "spec": _spec(*before), "status": {"phase": "Running"}}
        made = await world.create(kinds.VIRTUAL_MACHINE_INSTANCES, document)
        vmi = decode(VirtualMachineInstance, made)
    for _ in range(2):  # what was lost before the status was written is done again
        work = draft.begin(decode(VirtualMachine, machine))
        assert await volumerequests.fulfil(world.cluster, work, vmi) is None
        assert "volumeRequests" not in work.status
        machine = world.api.get(kinds.VIRTUAL_MACHINES, "vm", "ns") or {}
        specs = [machine["spec"]["template"]["spec"]]
        if runs:
            found = world.api.get(kinds.VIRTUAL_MACHINE_INSTANCES, "vm", "ns") or {}
            specs.append(found["spec"])
            vmi = decode(VirtualMachineInstance, found)
        for spec in specs:
            assert [item["name"] for item in spec.get("volumes", [])] == after
            assert [item["name"] for item in spec["domain"]["devices"].get("disks", [])] == after
            assert (spec["later"], spec["domain"]["devices"]["later"]) == (1, 1)


async def test_a_guest_that_starts_gets_its_volumes_once_it_runs() -> None:
    world = _World()
    machine = await world.create(kinds.VIRTUAL_MACHINES, _machine([_ADD]))
    vmi = decode(VirtualMachineInstance, {"metadata": {"name": "vm"}, "status": {"phase": "Scheduling"}})
    work = draft.begin(decode(VirtualMachine, machine))
    assert await volumerequests.fulfil(world.cluster, work, vmi) is None
    assert len(work.status["volumeRequests"]) == 1


def test_a_disk_gets_another_claim_in_two_steps_and_a_drive_another_medium_in_one() -> None:
    def volume(name: str, claim: str) -> JsonObject:
        return {"name": name, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": True}}

    disks = [{"name": "disk", "disk": {"bus": "scsi"}}, {"name": "drive", "cdrom": {}}]
    devices = {"domain": {"devices": {"disks": disks}}}
    template = {**devices, "volumes": [volume("disk", "new"), volume("drive", "new")]}
    vm = decode(VirtualMachine, {"spec": {"template": {"spec": template}}})
    running = {**devices, "volumes": [volume("disk", "old"), volume("drive", "old")]}
    metadata = {"name": "vm", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    vmi = decode(
        VirtualMachineInstance, {"metadata": metadata, "spec": running, "status": {"phase": "Running"}}
    )
    operations = liveupdate.volume_operations(vm, vmi)
    assert [(each["op"], each["path"], each.get("value")) for each in operations[2:]] == [
        ("remove", "/spec/volumes/1", None),
        ("remove", "/spec/volumes/0", None),
        ("add", "/spec/volumes/-", volume("drive", "new")),
        ("remove", "/spec/domain/devices/disks/0", None),
    ]
