"""Queues, block sizes and addresses of disks and cards, and the ports that plugged devices find."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import document
from virtplane.compute.domain.context import BlockSizes, DiskSource, DomainContext, InterfaceLink

_QEMU = "{http://libvirt.org/schemas/domain/qemu/1.0}"


def rendered(
    disk: JsonObject | None = None,
    *,
    annotations: JsonObject | None = None,
    sizes: BlockSizes | None = None,
    **domain: Any,
) -> ElementTree.Element:
    body: JsonObject = {"memory": {"guest": "128Mi"}, **domain}
    body["devices"] = {"disks": [disk] if disk else [], **body.get("devices", {})}
    spec = {"domain": body, "networks": [{"name": "default", "pod": {}}]}
    metadata = {"name": "vm", "namespace": "ns", "uid": "u", "annotations": annotations or {}}
    vmi = decode(VirtualMachineInstance, {"metadata": metadata, "spec": spec})
    sources = {"d": DiskSource("/dev/d", block=True, block_sizes=sizes)}
    links = {"default": InterfaceLink("tap0", "02:00:00:00:00:01")}
    context = DomainContext(emulation=False, disks=sources, interfaces=links)
    return ElementTree.fromstring(document.render(vmi, context))


def attributes(root: ElementTree.Element, path: str) -> list[dict[str, str]]:
    return [dict(found.attrib) for found in root.findall(path)]


def ports(root: ElementTree.Element) -> int:
    """The root ports, which have the numbers behind that of the root complex."""
    found = [port.get("index") for port in root.findall("devices/controller[@model='pcie-root-port']")]
    assert found == [str(number) for number in range(1, len(found) + 1)]
    return len(found)


VIRTIO: JsonObject = {"name": "d", "disk": {"bus": "virtio"}}


def test_virtio_disks_have_a_queue_for_each_virtual_cpu_where_wanted() -> None:
    root = rendered(VIRTIO, devices={"blockMultiQueue": True}, cpu={"cores": 3})
    assert [driver.get("queues") for driver in root.findall("devices/disk/driver")] == ["3"]
    assert attributes(root, "devices/controller[@type='scsi']/driver") == [{"queues": "3"}]
    assert [driver.get("queues") for driver in rendered(VIRTIO).findall("devices/disk/driver")] == [None]


def test_guests_that_share_a_disk_bypass_the_page_cache() -> None:
    shared: JsonObject = {**VIRTIO, "shareable": True}
    driver = rendered(shared).find("devices/disk/driver")
    assert driver is not None
    assert driver.get("cache") == "none"
    with pytest.raises(ValueError, match="a sharable disk requires cache = none got: writeback"):
        rendered({**shared, "cache": "writeback"})


def test_disks_of_other_buses_have_no_queues() -> None:
    root = rendered({"name": "d", "disk": {"bus": "sata"}}, devices={"blockMultiQueue": True})
    assert [driver.get("queues") for driver in root.findall("devices/disk/driver")] == [None]


def test_the_guest_sees_the_block_sizes_that_the_disk_names() -> None:
    custom = {"logical": 512, "physical": 4096, "discardGranularity": 65536}
    root = rendered({**VIRTIO, "blockSize": {"custom": custom}})
    assert attributes(root, "devices/disk/blockio") == [
        {"logical_block_size": "512", "physical_block_size": "4096"}
    ]
    assert attributes(root, f"{_QEMU}override/{_QEMU}device") == [{"alias": "ua-d"}]
    assert attributes(root, f"{_QEMU}override/{_QEMU}device/{_QEMU}frontend/{_QEMU}property") == [
        {"name": "discard_granularity", "type": "unsigned", "value": "65536"}
    ]


@pytest.mark.parametrize(("match", "count"), [({}, 1), ({"enabled": False}, 0)])
def test_the_guest_sees_the_block_sizes_of_the_storage_where_they_match(
    match: JsonObject, count: int
) -> None:
    root = rendered({**VIRTIO, "blockSize": {"matchVolume": match}}, sizes=BlockSizes(4096, 4096))
    expected = [{"logical_block_size": "4096", "physical_block_size": "4096"}]
    assert attributes(root, "devices/disk/blockio") == expected * count


def test_disks_and_cards_have_the_address_that_they_name() -> None:
    disk = {"name": "d", "disk": {"bus": "virtio", "pciAddress": "0000:0A:01.0"}}
    card = {"name": "default", "bridge": {}, "pciAddress": "0000:0b:00.1", "acpiIndex": 7}
    root = rendered(disk, devices={"interfaces": [card]})
    kind = {"type": "pci", "domain": "0x0000"}
    assert attributes(root, "devices/disk/address") == [
        {**kind, "bus": "0x0a", "slot": "0x01", "function": "0x0"}
    ]
    assert attributes(root, "devices/interface/address") == [
        {**kind, "bus": "0x0b", "slot": "0x00", "function": "0x1"}
    ]
    assert attributes(root, "devices/interface/acpi") == [{"index": "7"}]
    assert ports(root) == 0


def test_reservations_are_made_by_the_helper_of_the_node() -> None:
    root = rendered({"name": "d", "lun": {"bus": "scsi", "reservation": True}})
    assert attributes(root, "devices/disk/source/reservations") == [{"managed": "no"}]
    assert attributes(root, "devices/disk/source/reservations/source") == [
        {"type": "unix", "path": "/var/run/kubevirt/daemons/pr/pr-helper.sock", "mode": "client"}
    ]


@pytest.mark.parametrize(("memory", "count"), [("2Gi", 8), ("3Gi", 16)])
def test_guests_have_free_ports_for_devices_that_come_later(memory: str, count: int) -> None:
    assert ports(rendered(VIRTIO, memory={"guest": memory})) == count


def test_guests_with_many_devices_have_three_free_ports_still() -> None:
    root = rendered(VIRTIO, devices={"rng": {}, "inputs": [{"name": "t", "type": "tablet", "bus": "usb"}]})
    taken = len(root.findall("devices/disk")) + len(root.findall("devices/interface"))
    assert taken == 1
    # Disk, SCSI, serial and USB controllers, balloon, random numbers.
    assert ports(root) == 6 + 3


@pytest.mark.parametrize(
    "change",
    [
        {"devices": {"disableHotplug": True}},
        {"machine": {"type": "pc"}},
        {"annotations": {"kubevirt.io/placePCIDevicesOnRootComplex": "true"}},
    ],
)
def test_guests_that_get_no_devices_later_have_no_ports_for_them(change: JsonObject) -> None:
    assert ports(rendered(VIRTIO, **change)) == 0


_SLOTS = {"kubevirt.io/pci-topology-version": "v2", "kubevirt.io/pci-interface-slot-count": "9"}


_CARD: JsonObject = {"interfaces": [{"name": "default"}]}


def _buses(root: ElementTree.Element) -> dict[str, list[str]]:
    """The buses of the devices that have addresses, by kind."""
    found: dict[str, list[str]] = {}
    for device in root.findall("devices/*"):
        for address in device.findall("address[@type='pci']"):
            found.setdefault(device.tag, []).append(str(address.get("bus")))
    return found


def test_ports_kept_for_interfaces_keep_the_addresses_of_the_other_devices() -> None:
    kept = _buses(rendered(VIRTIO, annotations=_SLOTS, devices=_CARD))
    assert kept["interface"] == ["0x01"]
    assert min(bus for kind, buses in kept.items() if kind != "interface" for bus in buses) == "0x0a"
    none = _buses(rendered(VIRTIO, annotations=_SLOTS))
    assert {**none, "interface": ["0x01"]} == kept


def test_ports_kept_for_interfaces_count_as_free_ones() -> None:
    # Card, disk, SCSI and serial controllers, balloon, and USB, which counts even where there is none.
    assert ports(rendered(VIRTIO, devices=_CARD)) == 6 + 3
    assert ports(rendered(VIRTIO, annotations=_SLOTS, devices=_CARD)) == 6 + 8


def test_a_watchdog_counts_for_the_bridge_that_it_is_on() -> None:
    watched = {**_CARD, "watchdog": {"name": "w", "i6300esb": {"action": "reset"}}}
    assert ports(rendered(VIRTIO, devices=watched)) == ports(rendered(VIRTIO, devices=_CARD)) + 1


def test_more_ports_than_the_root_complex_has_are_not_kept() -> None:
    root = rendered(VIRTIO, annotations={**_SLOTS, "kubevirt.io/pci-interface-slot-count": "99999"})
    assert ports(root) == 31
    assert max(bus for buses in _buses(root).values() for bus in buses) == "0x1e"


@pytest.mark.parametrize("count", ["0", "-3", "1"])
def test_a_guest_that_has_all_its_interfaces_has_the_usual_ports(count: str) -> None:
    change = {**_SLOTS, "kubevirt.io/pci-interface-slot-count": count}
    assert ports(rendered(VIRTIO, annotations=change, devices=_CARD)) == 6 + 3


def test_a_count_of_ports_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="pci-interface-slot-count: 'nine' is not a number"):
        rendered(VIRTIO, annotations={**_SLOTS, "kubevirt.io/pci-interface-slot-count": "nine"})
