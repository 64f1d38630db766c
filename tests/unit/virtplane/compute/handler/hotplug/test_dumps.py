"""Dumps of a guest's memory: the claim comes to the pod, QEMU writes, and everything may end in between."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VolumeStatus
from virtplane.compute.handler.hotplug import reports
from virtplane.compute.handler.hotplug.plugs import Guest
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.storage.claims import ClaimSettings

from .test_plugs import _Claim, _Domain, _Node

_FILE = re.compile(r"vm-dump-\d{8}-\d{6}\.memory\.dump")


class _Libvirt(_Domain):
    """A domain whose memory is dumped when the test says so."""

    is_open = True

    def __init__(self) -> None:
        super().__init__()
        self.dumps: list[str] = []
        self.ends = asyncio.Event()
        self.failure: HypervisorError | None = None
        self.is_busy = False

    async def has_job(self, _name: str) -> bool:
        return self.is_busy

    async def dump_memory(self, _name: str, path: str) -> None:
        self.dumps.append(path)
        await self.ends.wait()
        if self.failure is not None:
            raise self.failure


class _Guest:
    """One guest whose instance has the volume ``dump``; its status is what virt-handler said last."""

    def __init__(self, node: _Node) -> None:
        self.node, self.libvirt = node, _Libvirt()
        self.files: list[str] = []
        self.vmi = _vmi("AttachedToNode")
        self.changed = asyncio.Event()
        self.start()

    def start(self) -> None:
        """Let virt-handler start anew: it knows nothing."""
        self.node.restarted()
        self.node.plugs._dumps._on_change = self.changed.set

    async def look(self) -> VolumeStatus:
        """One reconcile, and the entry that it writes."""
        guest: Any = Guest
        await self.node.plugs.follow(self.vmi, guest(object(), self.libvirt), ClaimSettings())
        (entry,) = reports.reported(self.vmi, {}, self.node.plugs.found)
        self.vmi = replace(self.vmi, status=replace(self.vmi.status, volume_status=(entry,)))
        return entry

    async def ended(self) -> VolumeStatus:
        """Let QEMU be done, and reconcile."""
        self.libvirt.ends.set()
        await asyncio.wait_for(self.changed.wait(), 5)
        return await self.look()


def _vmi(phase: str, *, wanted: bool = True, **dump: str) -> VirtualMachineInstance:
    volume = {"name": "dump", "memoryDump": {"claimName": "dump", "hotpluggable": True}}
    entry: JsonObject = {
        "name": "dump",
        "target": "",
        "phase": phase,
        "hotplugVolume": {"attachPodName": "hp", "attachPodUID": "u"},
        "persistentVolumeClaimInfo": {"claimName": "dump"},
        "memoryDumpVolume": {"claimName": "dump", **dump},
    }
    spec = {"volumes": [volume] if wanted else []}
    return decode(
        VirtualMachineInstance,
        {"metadata": {"name": "vm"}, "spec": spec, "status": {"volumeStatus": [entry]}},
    )


@pytest.fixture
async def guest(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[_Guest]:
    node = _Node(tmp_path, monkeypatch)
    node.attachments.add("dump")
    made = _Guest(node)

    def prepare_dump(_claim: object, name: str, _suffix: str) -> None:
        made.files.append(name)

    monkeypatch.setattr(_Claim, "prepare_dump", prepare_dump, raising=False)
    monkeypatch.setattr(_Claim, "clone_file", lambda *_: -1)
    yield made
    await node.plugs.close()


@pytest.mark.feature("SUP-04", "CTL-56")
async def test_the_status_names_the_file_before_qemu_writes_to_it(guest: _Guest) -> None:
    entry = await guest.look()
    assert (entry.phase, entry.message) == (
        "MemoryDumpInProgress",
        "Memory dump Volume dump is attached, getting memory dump",
    )
    assert entry.memory_dump_volume is not None
    assert [entry.memory_dump_volume.target_file_name] == guest.files
    assert _FILE.fullmatch(guest.files[0])
    assert guest.libvirt.dumps == [], "nobody but this process knows of the file yet"
    await guest.look()
    await guest.look()
    assert guest.libvirt.dumps == ["/var/run/kubevirt/hotplug-disks/dump.img"]
    entry = await guest.ended()
    assert (entry.phase, entry.reason) == ("MemoryDumpCompleted", "VolumeReady")
    assert entry.message == "Memory dump to Volume dump has completed successfully"
    dump = entry.memory_dump_volume
    assert dump is not None
    assert dump.claim_name == "dump"
    assert dump.start_timestamp
    assert dump.end_timestamp
    assert (await guest.look(), len(guest.libvirt.dumps)) == (entry, 1)
    guest.start()
    assert (await guest.look(), len(guest.libvirt.dumps)) == (entry, 1), "also after a restart"
    guest.vmi = replace(guest.vmi, spec=_vmi("", wanted=False).spec)
    assert (await guest.look()).phase == "UnMountedFromPod"
    assert not guest.node.folder.mounts


async def test_a_dump_that_fails_says_why(guest: _Guest) -> None:
    guest.libvirt.failure = HypervisorError("dump memory", "No space left on device")
    await guest.look()
    await guest.look()
    entry = await guest.ended()
    assert entry.phase == "MemoryDumpFailed"
    assert entry.message == "Memory dump to pvc dump failed: No space left on device"
    await guest.look()
    assert len(guest.libvirt.dumps) == 1, "it is not tried again by itself"


async def test_a_dump_whose_connection_was_lost_begins_anew_when_the_daemon_is_done(guest: _Guest) -> None:
    await guest.look()
    await guest.look()
    guest.libvirt.is_open, guest.libvirt.failure = False, HypervisorError("dump memory", "broken pipe")
    guest.libvirt.ends.set()
    await asyncio.wait_for(guest.changed.wait(), 5)
    fresh = _Libvirt()
    fresh.is_busy, guest.libvirt = True, fresh
    guest.changed.clear()
    assert (await guest.look()).phase == "MemoryDumpInProgress"
    assert fresh.dumps == []
    fresh.is_busy = False
    await guest.look()
    assert (await guest.ended()).phase == "MemoryDumpCompleted"
    assert len(guest.files) == 1


async def test_a_dump_goes_on_in_the_file_that_the_status_names(guest: _Guest) -> None:
    """virt-handler was started anew while QEMU was writing."""
    guest.node.folder.mounts.add("dump")
    guest.vmi = _vmi("MemoryDumpInProgress", targetFileName="vm-dump-20260101-000000.memory.dump")
    await guest.look()
    entry = await guest.ended()
    assert entry.memory_dump_volume is not None
    assert entry.memory_dump_volume.target_file_name == "vm-dump-20260101-000000.memory.dump"
    assert guest.files == []


async def test_a_file_whose_name_was_lost_gives_way_to_another(guest: _Guest) -> None:
    """virt-handler ended after it had mounted the file, and before the status named it."""
    guest.node.folder.mounts.add("dump")
    await guest.look()
    assert len(guest.files) == 1


async def test_a_claim_stays_while_qemu_writes_to_it(guest: _Guest) -> None:
    await guest.look()
    await guest.look()
    await asyncio.sleep(0)
    guest.vmi = replace(guest.vmi, spec=_vmi("", wanted=False).spec)
    await guest.look()
    assert guest.node.folder.mounts == {"dump"}
    assert (await guest.ended()).phase == "UnMountedFromPod"
    assert not guest.node.folder.mounts


async def test_a_dump_waits_for_its_attachment_pod(guest: _Guest) -> None:
    document = _vmi("Pending")
    (entry,) = document.status.volume_status
    assert entry.hotplug_volume is not None
    waiting = replace(entry, hotplug_volume=replace(entry.hotplug_volume, attach_pod_uid=None))
    guest.vmi = replace(document, status=replace(document.status, volume_status=(waiting,)))
    assert (await guest.look()).phase == "Pending"
    assert guest.files == []
