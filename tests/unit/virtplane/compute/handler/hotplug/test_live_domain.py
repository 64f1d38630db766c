"""Plugging into a guest of libvirt's real daemon and QEMU; the guest is paused, so it releases nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from pathlib import Path

import pytest
from tests.support.launcher_daemon import Daemon
from tests.unit.virtplane.compute.handler.libvirtd.test_hypervisor import daemon

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import plugs
from virtplane.compute.domain.context import DiskSource
from virtplane.compute.domain.devicetags import tagged_devices
from virtplane.compute.handler.libvirtd.calls import DomainState, HypervisorError
from virtplane.compute.handler.libvirtd.hypervisor import IS_LEAVING, Hypervisor

__all__ = ["daemon"]

pytestmark = [pytest.mark.host, pytest.mark.timeout(60)]

_DOMAIN = """
<domain type='qemu'><name>ns_vm</name><memory unit='MiB'>16</memory>
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices>
  <controller type='pci' index='0' model='pcie-root'/>
  <controller type='scsi' index='0' model='virtio-non-transitional'/>
  <controller type='pci' model='pcie-root-port'/><controller type='pci' model='pcie-root-port'/>
  <controller type='pci' model='pcie-root-port'/><controller type='pci' model='pcie-root-port'/>
  <disk type='file' device='cdrom'><target dev='sda' bus='sata' tray='open'/><readonly/>
    <alias name='ua-drive'/></disk>
  <controller type='pci' model='pcie-root-port'/>
  <interface type='user'><alias name='ua-red'/><model type='virtio-non-transitional'/></interface>
</devices></domain>
"""
_DISKS: list[JsonObject] = [
    {"name": "one", "disk": {"bus": "scsi"}, "serial": "first"},
    {"name": "two", "disk": {"bus": "scsi"}, "shareable": True, "cache": "none", "errorPolicy": "report"},
    {"name": "three", "disk": {"bus": "virtio"}, "io": "threads"},
]
_TAGGED = decode(
    VirtualMachineInstance,
    {
        "spec": {
            "domain": {
                "devices": {
                    "disks": [{"name": "drive", "cdrom": {"bus": "sata"}, "tag": "media"}],
                    "interfaces": [{"name": "red", "bridge": {}, "tag": "net"}],
                }
            }
        }
    },
)
_VMI = decode(VirtualMachineInstance, {"spec": {"domain": {"devices": {"disks": _DISKS}}}})


def _source(folder: Path, name: str) -> DiskSource:
    path = folder / f"{name}.img"
    path.write_bytes(b"\0" * (1 << 20))
    owner = folder.stat()
    os.chown(path, owner.st_uid, owner.st_gid)
    return DiskSource(str(path))


async def test_a_disk_that_is_asked_for_again_and_again_leaves_its_file_to_the_next(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libvirt forgets to close the file where it is asked while QEMU tells it that the device has gone."""
    monkeypatch.setattr(plugs, "HOTPLUG_DIR", str(daemon.folder))
    changed = asyncio.Event()
    hypervisor = await Hypervisor.open(daemon.socket, changed.set)
    disk = next(each for each in _VMI.spec.domain.devices.disks if each.name == "one")
    source = _source(daemon.folder, disk.name)

    async def is_there() -> bool:
        return bool(plugs.live_disks(await hypervisor.description("ns_vm"))[1:])

    async def ignore(_xml: str) -> None:
        pass

    try:
        await hypervisor.start(_DOMAIN, paused=True, defined=ignore)
        for _ in range(30):
            live = plugs.live_disks(await hypervisor.description("ns_vm"))
            await hypervisor.attach_device("ns_vm", plugs.plugged_disk(_VMI, disk, source, live))
            while await is_there():
                with contextlib.suppress(HypervisorError):
                    await hypervisor.detach_device("ns_vm", "ua-one")
    finally:
        await hypervisor.destroy("ns_vm")
        await hypervisor.close()


@pytest.mark.feature("VML-29", "VML-30", "VML-33")
async def test_disks_and_media_come_and_go(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugs, "HOTPLUG_DIR", str(daemon.folder))
    changed = asyncio.Event()
    hypervisor = await Hypervisor.open(daemon.socket, changed.set)

    async def live() -> dict[str, plugs.LiveDisk]:
        return {disk.name: disk for disk in plugs.live_disks(await hypervisor.description("ns_vm"))}

    defined: list[str] = []

    async def note(xml: str) -> None:
        assert await hypervisor.state("ns_vm") == DomainState("Shutoff", "Unknown")
        defined.append(xml)

    try:
        await hypervisor.start(_DOMAIN, paused=True, defined=note)
        addresses = [each["address"] for each in tagged_devices(_TAGGED, defined[0], lambda _: [])]
        assert addresses[1] == "0:0:0:0"
        assert re.fullmatch("0000:0[1-9]:00[.]0", str(addresses[0]))
        for disk in _VMI.spec.domain.devices.disks:
            source = _source(daemon.folder, disk.name)
            xml = plugs.plugged_disk(_VMI, disk, source, list((await live()).values()))
            await hypervisor.attach_device("ns_vm", xml)
        found = await live()
        assert {name: (disk.target, disk.unit, disk.is_plugged) for name, disk in found.items()} == {
            "drive": ("sda", None, False),
            "one": ("sdb", 0, True),
            "two": ("sdc", 1, True),
            "three": ("vda", None, True),
        }
        assert found["one"].element.findtext("serial") == "first"
        dump = Path(_source(daemon.folder, "memory").path)
        await hypervisor.dump_memory("ns_vm", str(dump))
        assert dump.read_bytes()[:4] == b"\x7fELF"
        assert dump.stat().st_size > 16 << 20
        assert not await hypervisor.has_job("ns_vm")
        assert await hypervisor.state("ns_vm") == DomainState("Paused", "Paused")
        with pytest.raises(HypervisorError, match="No such file"):
            await hypervisor.dump_memory("ns_vm", str(daemon.folder / "missing/memory"))
        medium = _source(daemon.folder, "medium")
        await hypervisor.update_device("ns_vm", plugs.inserted(found["drive"], medium))
        drive = (await live())["drive"]
        assert (drive.source, drive.is_plugged) == (medium.path, True)
        await hypervisor.update_device("ns_vm", plugs.ejected(drive))
        assert (await live())["drive"].source == ""
        await hypervisor.update_device("ns_vm", plugs.inserted((await live())["drive"], medium))
        changed.clear()
        await hypervisor.detach_device("ns_vm", "ua-one")
        while "one" in await live():  # an event comes when QEMU has let it go
            await changed.wait()
            changed.clear()
        await hypervisor.detach_device("ns_vm", "ua-three")
        assert not await hypervisor.detach_device("ns_vm", "ua-three")
        # Another process, as after a restart of virt-handler, knows nothing of that.
        other = await Hypervisor.open(daemon.socket, changed.set)
        try:
            with pytest.raises(HypervisorError, match=IS_LEAVING):
                await other.detach_device("ns_vm", "ua-three")
        finally:
            await other.close()
        assert "three" in await live()
        xml = plugs.plugged_disk(
            _VMI,
            _VMI.spec.domain.devices.disks[0],
            _source(daemon.folder, "one"),
            list((await live()).values()),
        )
        await hypervisor.attach_device("ns_vm", xml)
        assert ((await live())["one"].target, (await live())["one"].unit) == ("sdb", 0)
    finally:
        await hypervisor.destroy("ns_vm")
        await hypervisor.close()
