"""Disks that are plugged into a running domain, and media of its drives."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import plugs
from virtplane.compute.domain.context import DiskSource

_LIVE = """
<domain><devices>
  <disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
    <source file='/var/run/kubevirt-ephemeral-disks/disk-data/root/disk.qcow2'/>
    <target dev='vda' bus='virtio'/><alias name='ua-root'/></disk>
  <disk type='file' device='cdrom'><target dev='sda' bus='sata' tray='open'/><readonly/>
    <alias name='ua-drive'/></disk>
  <disk type='block' device='disk'><driver name='qemu' type='raw' cache='none'/>
    <source dev='/var/run/kubevirt/hotplug-disks/first' index='2'/><backingStore/>
    <target dev='sdb' bus='scsi'/><alias name='ua-first'/>
    <address type='drive' controller='0' bus='0' target='0' unit='0'/></disk>
  <disk type='file' device='disk'><target dev='../x' bus='scsi'/><alias name='ua-strange'/></disk>
</devices></domain>"""


def _vmi(**disk: object) -> VirtualMachineInstance:
    document: JsonObject = {"spec": {"domain": {"devices": {"disks": [{"name": "new", **disk}]}}}}
    return decode(VirtualMachineInstance, document)


def _plugged(source: DiskSource, **disk: object) -> ElementTree.Element:
    vmi = _vmi(**disk)
    return ElementTree.fromstring(
        plugs.plugged_disk(vmi, vmi.spec.domain.devices.disks[0], source, plugs.live_disks(_LIVE))
    )


def _attributes(node: ElementTree.Element, path: str) -> dict[str, str]:
    found = node.find(path)
    assert found is not None
    return dict(found.attrib)


def test_only_what_is_understood_of_a_launchers_xml_counts() -> None:
    found = plugs.live_disks(_LIVE)
    assert [(disk.name, disk.target, disk.is_plugged, disk.is_block) for disk in found] == [
        ("root", "vda", False, False),
        ("drive", "sda", False, False),
        ("first", "sdb", True, True),
    ]
    assert plugs.live_disks("<domain>") == []
    assert plugs.live_disks('<!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/passwd">]><d>&e;</d>') == []


@pytest.mark.feature("VML-32", "VML-33")
def test_a_plugged_disk_is_what_a_permanent_one_would_be() -> None:
    source = DiskSource("/var/run/kubevirt/hotplug-disks/new", block=True, direct_io=True)
    wishes = {"serial": "s", "bootOrder": 2, "shareable": True, "errorPolicy": "report"}
    node = _plugged(source, disk={"bus": "scsi"}, **wishes)
    assert _attributes(node, "source") == {"dev": "/var/run/kubevirt/hotplug-disks/new"}
    assert _attributes(node, "target") == {"dev": "sdc", "bus": "scsi"}
    address = {"type": "drive", "controller": "0", "bus": "0", "target": "0", "unit": "1"}
    assert _attributes(node, "address") == address
    driver = {"name": "qemu", "type": "raw", "cache": "none", "error_policy": "report", "io": "native"}
    assert _attributes(node, "driver") == {**driver, "discard": "unmap"}
    assert _attributes(node, "boot") == {"order": "2"}
    assert node.findtext("serial") == "s"
    assert node.find("shareable") is not None
    assert _attributes(node, "alias") == {"name": "ua-new"}


def test_a_virtio_disk_is_put_where_libvirt_has_a_free_port() -> None:
    node = _plugged(DiskSource("/var/run/kubevirt/hotplug-disks/new.img"), disk={"bus": "virtio"})
    assert node.find("address") is None
    assert _attributes(node, "target") == {"dev": "vdb", "bus": "virtio"}
    assert _attributes(node, "source") == {"file": "/var/run/kubevirt/hotplug-disks/new.img"}


def test_a_medium_is_put_into_a_drive_and_taken_out_again() -> None:
    drive = next(disk for disk in plugs.live_disks(_LIVE) if disk.name == "drive")
    inserted = plugs.inserted(drive, DiskSource("/var/run/kubevirt/hotplug-disks/drive.img"))
    node = ElementTree.fromstring(inserted)
    assert node.get("type") == "file"
    assert [child.tag for child in node] == ["driver", "source", "target", "readonly", "alias"]
    assert _attributes(node, "target") == {"dev": "sda", "bus": "sata"}
    live = _LIVE.replace("<target dev='sda'", "<source file='/x'/><target dev='sda'")
    full = next(disk for disk in plugs.live_disks(live) if disk.name == "drive")
    assert ElementTree.fromstring(plugs.ejected(full)).find("source") is None


def test_only_so_many_disks_of_a_launchers_domain_are_looked_at() -> None:
    node = "<disk><alias name='ua-d{}'/><target dev='sda'/><source file='/x'/></disk>"
    devices = "".join(node.format(number) for number in range(5000))
    found = plugs.live_disks(f"<domain><devices>{devices}</devices></domain>")
    assert [disk.name for disk in found] == [f"d{number}" for number in range(plugs._MOST_DISKS)]
