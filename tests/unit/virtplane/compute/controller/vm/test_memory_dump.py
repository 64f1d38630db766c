"""``status.memoryDumpRequest``: the claim comes to the guest, is dumped into, and leaves again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineMemoryDumpRequest
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.vm import draft, liveupdate, memorydump
from virtplane.compute.controller.vm.memorydump import next_request

from .test_volume_requests import _World

_NOW = "2026-01-01T00:00:00Z"
_FILE = "vm-c-20260101-000000.memory.dump"
_DUMP = {"claimName": "c", "startTimestamp": _NOW, "endTimestamp": _NOW, "targetFileName": _FILE}
_VOLUME = {"name": "c", "memoryDump": {"claimName": "c", "hotpluggable": True}}


def _entry(phase: str, message: str = "") -> JsonObject:
    return {"name": "c", "target": "", "phase": phase, "message": message, "memoryDumpVolume": _DUMP}


def _vmi(*entries: JsonObject, **status: Any) -> VirtualMachineInstance:
    document = {
        "metadata": {"name": "vm", "namespace": "ns"},
        "spec": {},
        "status": {"phase": "Running", "volumeStatus": list(entries), **status},
    }
    return decode(VirtualMachineInstance, document)


@pytest.mark.feature("SUP-04")
@pytest.mark.parametrize(
    ("phase", "vmi", "after", "told"),
    [
        ("Associating", _vmi(), "InProgress", {}),
        ("Associating", None, "Failed", {"end_timestamp": _NOW}),
        ("InProgress", _vmi(), "InProgress", {}),
        ("InProgress", _vmi(_entry("MountedToPod")), "InProgress", {}),
        ("InProgress", _vmi(_entry("MemoryDumpInProgress")), "InProgress", {}),
        (
            "InProgress",
            _vmi(_entry("MemoryDumpCompleted")),
            "Unmounting",
            {"file_name": _FILE, "start_timestamp": _NOW, "end_timestamp": _NOW},
        ),
        ("InProgress", _vmi(_entry("MemoryDumpFailed", "full")), "Failed", {"message": "full"}),
        ("InProgress", None, "Failed", {"end_timestamp": _NOW, "file_name": None}),
        ("Unmounting", _vmi(_entry("Detaching")), "Unmounting", {}),
        ("Unmounting", _vmi(), "Completed", {}),
        ("Unmounting", None, "Completed", {}),
        ("Completed", None, "Completed", {}),
        ("Failed", _vmi(), "Failed", {}),
        ("Dissociating", _vmi(_entry("Detaching")), "Dissociating", {}),
    ],
)
def test_a_request_goes_on_with_what_the_node_reports(
    phase: str, vmi: VirtualMachineInstance | None, after: str, told: dict[str, str | None]
) -> None:
    found = next_request(VirtualMachineMemoryDumpRequest(claim_name="c", phase=phase), vmi, _NOW)
    assert found is not None
    assert found.phase == after
    assert {name: getattr(found, name) for name in told} == told


def test_a_removed_request_is_gone_with_its_volume() -> None:
    request = VirtualMachineMemoryDumpRequest(claim_name="c", phase="Dissociating", remove=True)
    assert next_request(request, _vmi(), _NOW) is None


@dataclass
class _Cycle:
    """A VM with a running instance on an API server in memory, whose node is this test."""

    world: _World = field(default_factory=_World)

    async def begin(self) -> None:
        template = {"spec": {"domain": {"devices": {}}, "later": 1}}
        machine = {"metadata": {"name": "vm", "namespace": "ns"}, "spec": {"template": template}}
        vmi = {"metadata": {"name": "vm", "namespace": "ns"}, "spec": {"later": 1}}
        await self.world.create(kinds.VIRTUAL_MACHINES, machine)
        await self.world.create(kinds.VIRTUAL_MACHINE_INSTANCES, {**vmi, "status": {"phase": "Running"}})

    def stored(self, kind: Any) -> JsonObject:
        return self.world.api.get(kind, "vm", "ns") or {}

    async def step(self, request: JsonObject, *entries: JsonObject, runs: bool = True) -> JsonObject | None:
        """One pass over a VM with this request, and an instance with these entries; the new request."""
        machine = {**self.stored(kinds.VIRTUAL_MACHINES), "status": {"memoryDumpRequest": request}}
        document = self.stored(kinds.VIRTUAL_MACHINE_INSTANCES)
        document = {**document, "status": {"phase": "Running", "volumeStatus": list(entries)}}
        work = draft.begin(decode(VirtualMachine, machine))
        vmi = decode(VirtualMachineInstance, document) if runs else None
        assert await memorydump.follow(self.world.cluster, work, vmi) is None
        return work.status.get("memoryDumpRequest")

    def volumes(self) -> tuple[list[JsonObject], list[JsonObject]]:
        """The volumes of template and instance."""
        machine, vmi = (self.stored(k) for k in (kinds.VIRTUAL_MACHINES, kinds.VIRTUAL_MACHINE_INSTANCES))
        spec = machine["spec"]["template"]["spec"]
        assert spec["later"] == vmi["spec"]["later"] == 1
        return spec.get("volumes", []), vmi["spec"].get("volumes", [])


@pytest.mark.feature("SUP-04", "CTL-57", "CTL-58")
async def test_the_claim_is_the_guests_while_its_memory_is_dumped() -> None:
    cycle = _Cycle()
    await cycle.begin()
    after: JsonObject | None = None
    for _ in range(2):  # what was done before a status was lost is not done twice
        after = await cycle.step({"claimName": "c", "phase": "Associating"})
        assert after == {"claimName": "c", "phase": "InProgress"}
        assert cycle.volumes() == ([_VOLUME], [_VOLUME])
    assert after is not None
    request = await cycle.step(after, _entry("MemoryDumpCompleted"))
    assert request is not None
    assert (request["phase"], request["fileName"]) == ("Unmounting", _FILE)
    request = await cycle.step(request, _entry("MemoryDumpCompleted"))
    assert request is not None
    assert request["phase"] == "Unmounting", "the node has the claim still"
    assert cycle.volumes() == ([_VOLUME], [])
    request = await cycle.step(request)
    assert request is not None
    assert request["phase"] == "Completed"
    await cycle.step({"claimName": "c", "phase": "Associating"})
    assert cycle.volumes() == ([_VOLUME], [_VOLUME]), "a second dump into the claim"
    removal = {"claimName": "c", "phase": "Dissociating", "remove": True}
    assert await cycle.step(removal, _entry("Detaching")) == removal
    assert await cycle.step(removal) is None
    assert cycle.volumes() == ([], [])


async def test_a_failed_dump_leaves_the_guest() -> None:
    cycle = _Cycle()
    await cycle.begin()
    await cycle.step({"claimName": "c", "phase": "Associating"})
    await cycle.step({"claimName": "c", "phase": "Failed"}, _entry("MemoryDumpFailed"))
    assert cycle.volumes() == ([_VOLUME], [])


def test_the_template_does_not_bring_the_claim_back() -> None:
    """With the gate DeclarativeHotplugVolumes, instances follow the volumes of the template."""
    machine = decode(VirtualMachine, {"spec": {"template": {"spec": {"volumes": [_VOLUME]}}}})
    assert liveupdate.volume_operations(machine, _vmi()) == []
    running = decode(VirtualMachineInstance, {"spec": {"volumes": [_VOLUME]}, "status": {"phase": "Running"}})
    assert liveupdate.volume_operations(decode(VirtualMachine, {"spec": {"template": {}}}), running) == []


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"phase": "Unmounting", "fileName": _FILE}, _FILE),
        ({"phase": "Failed", "message": "full"}, "Memory dump failed"),
    ],
)
async def test_the_claim_says_which_of_its_files_has_the_dump(
    monkeypatch: pytest.MonkeyPatch, request_: JsonObject, said: str
) -> None:
    cycle = _Cycle()
    await cycle.begin()
    claim = {"metadata": {"name": "c", "namespace": "ns"}, "spec": {}}
    claim = await cycle.world.create(resources.PERSISTENT_VOLUME_CLAIMS, claim)
    monkeypatch.setattr(Cluster, "claims_of", lambda *_: {"c": claim})
    await cycle.step({"claimName": "c", **request_})
    stored = cycle.world.api.get(resources.PERSISTENT_VOLUME_CLAIMS, "c", "ns") or {}
    assert stored["metadata"]["annotations"]["kubevirt.io/memory-dump"] == said
