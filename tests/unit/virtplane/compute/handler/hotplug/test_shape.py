"""CPUs and memory of a running guest: what libvirt says of them, and what is changed."""

from __future__ import annotations

from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.cpu import CPUTopology
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute import plugging
from virtplane.compute.handler.hotplug import shape
from virtplane.compute.handler.hotplug.cpumemory import CpuMemory
from virtplane.compute.handler.hotplug.shape import Plan, Shape
from virtplane.compute.handler.libvirtd.calls import HypervisorError

_GI = 1 << 30
_ADDRESS = (
    *(("type", "pci"), ("domain", "0x0000"), ("bus", "0x04")),
    *(("slot", "0x00"), ("function", "0x0")),
)


def live_xml(vcpus: int = 1, requested_kib: int = 0, current_kib: int = 0, bus: str = "0x04") -> str:
    """What libvirt says of a guest with a memory device."""
    return f"""<domain><vcpu current='{vcpus}'>4</vcpu><devices><memory model='virtio-mem'>
      <target><size unit='KiB'>3145728</size><node>0</node><block unit='KiB'>2048</block>
      <requested unit='KiB'>{requested_kib}</requested><current unit='KiB'>{current_kib}</current></target>
      <address type='pci' domain='0x0000' bus='{bus}' slot='0x00' function='0x0'/>
    </memory></devices></domain>"""


def guest(
    sockets: int = 1, memory: str = "1Gi", conditions: tuple[JsonObject, ...] = (), **status: Any
) -> VirtualMachineInstance:
    """An instance that was started with one socket and 1Gi."""
    domain = {
        "cpu": {"sockets": sockets, "maxSockets": 4},
        "memory": {"guest": memory, "maxGuest": "4Gi"},
        "devices": {},
    }
    reported = {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": "1Gi"}
    found = {"phase": "Running", "memory": reported, "conditions": list(conditions), **status}
    return decode(VirtualMachineInstance, {"spec": {"domain": domain}, "status": found})


def room(kind: str, message: str) -> JsonObject:
    """The condition by which virt-controller says that the pod has room."""
    return {"type": kind, "status": "True", "reason": plugging.POD_RESIZED, "message": message}


_CPU_ROOM = room("HotVCPUChange", "the pod has room for 3 CPU sockets")
_MEMORY_ROOM = room("HotMemoryChange", "the pod has room for 2Gi of guest memory")


def test_the_shape_is_read_from_the_live_domain() -> None:
    found = shape.read(live_xml(2, 1048576, 2048))
    assert found == Shape(2, _GI, 2 << 20, _ADDRESS)
    assert shape.read("<domain><vcpu>2</vcpu></domain>") == Shape(2)


@pytest.mark.parametrize(
    "xml",
    ["", "<domain/>", "no XML", "<domain><vcpu>-1</vcpu></domain>", "<domain><vcpu>1e9</vcpu></domain>"],
)
def test_a_launcher_that_writes_nonsense_is_not_believed(xml: str) -> None:
    assert shape.read(xml) is None


def test_an_address_that_is_none_is_not_repeated_to_libvirt() -> None:
    found = shape.read(live_xml(bus="&quot;/&gt;&lt;evil/&gt;"))
    assert found is not None
    assert found.address == ()
    assert shape.plan(guest(memory="2Gi", conditions=(_MEMORY_ROOM,)), found) == Plan()


@pytest.mark.feature("VML-25")
def test_sockets_are_plugged_in_once_the_pod_has_room_for_them() -> None:
    seen = Shape(1, 0, 0, _ADDRESS)
    assert shape.plan(guest(3), seen) == Plan()
    assert shape.plan(guest(3, conditions=(_CPU_ROOM,)), seen) == Plan(vcpus=3)
    assert shape.plan(guest(4, conditions=(_CPU_ROOM,)), seen) == Plan(), "the room is for three"
    assert shape.plan(guest(3, conditions=(_CPU_ROOM,)), Shape(3)) == Plan()
    assert shape.plan(guest(1), Shape(3)) == Plan(), "CPUs are not taken away"


@pytest.mark.feature("VML-24")
def test_memory_is_plugged_in_once_the_pod_has_room_and_taken_out_at_once() -> None:
    seen = Shape(1, 0, 0, _ADDRESS)
    assert shape.plan(guest(memory="2Gi"), seen) == Plan()
    assert shape.plan(guest(memory="2Gi", conditions=(_MEMORY_ROOM,)), seen) == Plan(requested_bytes=_GI)
    assert shape.plan(guest(memory="1Gi"), Shape(1, _GI, _GI, _ADDRESS)) == Plan(requested_bytes=0)
    assert shape.plan(guest(memory="2Gi", conditions=(_MEMORY_ROOM,)), Shape(1)) == Plan(), "no device"


def test_the_status_is_what_runs_and_not_what_is_wished_for() -> None:
    seen = Shape(2, 2 * _GI, _GI, _ADDRESS)
    wish = guest(4, "3Gi")
    assert shape.current_topology(wish, seen) == CPUTopology(cores=1, sockets=2, threads=1)
    memory = shape.memory_status(wish, seen)
    assert (memory.guest_at_boot, memory.guest_current, memory.guest_requested) == ("1Gi", "2Gi", "3Gi")


def test_a_launcher_cannot_report_more_memory_than_the_guest_may_have() -> None:
    memory = shape.memory_status(guest(), Shape(1, 900 * _GI, 900 * _GI, _ADDRESS))
    assert (memory.guest_current, memory.guest_requested) == ("4Gi", "4Gi")


class _Libvirt:
    """Plays the connection: plugs what it is told to, or refuses."""

    def __init__(self) -> None:
        self.vcpus, self.requested_kib, self.current_kib = 1, 0, 0
        self.shape_changed = False
        self.refusal = ""
        self.reads = 0

    async def description(self, _name: str) -> str:
        self.reads += 1
        return live_xml(self.vcpus, self.requested_kib, self.current_kib)

    async def set_vcpus(self, _name: str, count: int) -> None:
        self.vcpus = count

    async def update_device(self, _name: str, xml: str) -> None:
        if self.refusal:
            raise HypervisorError("update device", self.refusal)
        assert "<address" in xml and 'name="ua-virtio-mem"' in xml
        self.requested_kib = int(xml.split('<requested unit="b">')[1].split("<", maxsplit=1)[0]) // 1024


async def test_a_change_is_followed_and_libvirt_is_left_alone_when_nothing_changes() -> None:
    libvirt, machine = _Libvirt(), CpuMemory("ns_vm", "ns/vm")
    await machine.follow(guest(), libvirt)  # type: ignore[arg-type]
    await machine.follow(guest(), libvirt)  # type: ignore[arg-type]
    assert libvirt.reads == 1
    wish = guest(3, "2Gi", (_CPU_ROOM, _MEMORY_ROOM))
    await machine.follow(wish, libvirt)  # type: ignore[arg-type]
    assert machine.shape == Shape(3, _GI, 0, _ADDRESS)
    libvirt.current_kib = 1048576  # the guest's driver plugs it
    await machine.follow(wish, libvirt)  # type: ignore[arg-type]
    assert machine.shape == Shape(3, _GI, _GI, _ADDRESS)
    reads = libvirt.reads
    libvirt.current_kib, libvirt.shape_changed = 0, True  # the guest reboots
    await machine.follow(wish, libvirt)  # type: ignore[arg-type]
    assert libvirt.reads == reads + 1
    assert machine.shape.current_bytes == 0


async def test_memory_that_libvirt_refuses_is_an_error_and_the_cpus_are_plugged() -> None:
    libvirt, machine = _Libvirt(), CpuMemory("ns_vm", "ns/vm")
    libvirt.refusal = "no such device"
    await machine.follow(guest(3, "2Gi", (_CPU_ROOM, _MEMORY_ROOM)), libvirt)  # type: ignore[arg-type]
    assert "no such device" in machine.memory_error
    assert libvirt.vcpus == 3
