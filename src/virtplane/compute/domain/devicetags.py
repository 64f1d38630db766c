"""Devices with a role that the guest can read: a tag, and the address by which the guest finds the device.

The config drive lists them. libvirt chooses the addresses when it defines the domain, so the list is made
from the defined domain. Its XML is the launcher's word: of it only numbers and addresses are passed on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from lxml import etree

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.sriov import ALIAS
from virtplane.compute.domain.xml import ALIAS_PREFIX, Element

CpusNear = Callable[[str], Sequence[int]]
"""The CPUs of the node that are near the device with a PCI address such as ``0000:81:01.0``."""

_NIC, _HOST_DEVICE, _DISK = "nic", "hostdev", "disk"
_MOST = 512
"""Devices of a domain beyond this number are not looked at."""

_DIGITS = {"domain": 4, "bus": 2, "slot": 2, "function": 1}
"""How many hexadecimal digits the parts of a PCI address have."""

_DRIVE = ("controller", "bus", "target", "unit")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.ASCII)
_PORT = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){0,6}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,5}", re.ASCII)


def is_tagged(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest has a config drive that is to list devices."""
    has_drive = any(volume.cloud_init_config_drive is not None for volume in vmi.spec.volumes)
    return has_drive and bool(_tags(vmi))


def tagged_devices(vmi: VirtualMachineInstance, xml: str, near: CpusNear) -> list[dict[str, object]]:
    """The tagged devices of a defined domain as config drives list them; none if the XML is not libvirt's."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    try:
        domain = etree.fromstring(xml, parser)
    except (etree.XMLSyntaxError, ValueError):
        return []
    tags = _tags(vmi)
    serials = {disk.name: disk.serial for disk in vmi.spec.domain.devices.disks if disk.serial}
    found = []
    for node in _devices(domain):
        alias = _attribute(node, "alias", "name").removeprefix(ALIAS_PREFIX)
        if (str(node.tag), alias) not in tags:
            continue
        kind, tag = tags[str(node.tag), alias]
        listed: dict[str, object] = {"type": kind, **_address(node)}
        mac = _attribute(node, "mac", "address")
        if _MAC.fullmatch(mac):
            listed["mac"] = mac
        if kind == _DISK and alias in serials:
            listed["serial"] = serials[alias]
        if node.tag == "hostdev":
            listed |= _alignment(domain, node, near)
        found.append({**listed, "tags": [tag]})
    return found


def _tags(vmi: VirtualMachineInstance) -> dict[tuple[str, str], tuple[str, str]]:
    """Kind and tag of each tagged device, by its element's name and alias."""
    devices = vmi.spec.domain.devices
    tags = {("interface", each.name): (_NIC, each.tag) for each in devices.interfaces if each.tag}
    tags |= {("hostdev", ALIAS + each.name): (_NIC, each.tag) for each in devices.interfaces if each.tag}
    tags |= {("disk", each.name): (_DISK, each.tag) for each in devices.disks if each.tag}
    for prefix, given in (("hostdevice-", devices.host_devices), ("gpu-", devices.gpus)):
        tags |= {("hostdev", prefix + each.name): (_HOST_DEVICE, each.tag) for each in given if each.tag}
    return tags


def _devices(domain: Element) -> Iterator[Element]:
    for kind in ("interface", "hostdev", "disk"):
        yield from domain.findall(f"devices/{kind}")[:_MOST]


def _attribute(node: Element, child: str, name: str) -> str:
    found = node.find(child)
    return str(found.get(name, "")) if found is not None else ""


def _address(node: Element) -> Mapping[str, object]:
    """Bus and address of a device in the guest; nothing if it has none that can be told."""
    address = node.find("address")
    kind = str(address.get("type", "")) if address is not None else ""
    if address is None:
        return {}
    if kind == "pci":
        text = _pci_text(address)
        return {"bus": kind, "address": text} if text else {}
    if kind == "usb":
        bus, port = str(address.get("bus", "")), str(address.get("port", ""))
        is_told = _NUMBER.fullmatch(bus) and _PORT.fullmatch(port)
        return {"bus": kind, "address": f"{bus}:{port}"} if is_told else {}
    numbers = [str(address.get(part, "")) for part in _DRIVE]
    bus = _attribute(node, "target", "bus")
    if kind == "drive" and bus in ("scsi", "sata") and all(map(_NUMBER.fullmatch, numbers)):
        return {"bus": bus, "address": ":".join(numbers)}
    return {}


def _pci_text(address: Element) -> str:
    """The usual form of a PCI address that libvirt spells ``domain='0x0000' bus='0x01' ...``."""
    texts = []
    for part, digits in _DIGITS.items():
        text = str(address.get(part, "")).removeprefix("0x").lower()
        if not re.fullmatch(f"[0-9a-f]{{{digits}}}", text):
            return ""
        texts.append(text)
    domain, bus, slot, function = texts
    return f"{domain}:{bus}:{slot}.{function}"


def _alignment(domain: Element, node: Element, near: CpusNear) -> Mapping[str, object]:
    """The guest's CPUs that are pinned near a PCI device of the node, and the guest's NUMA node of these."""
    source = node.find("source/address")
    place = _pci_text(source) if source is not None and node.get("type") == "pci" else ""
    cpus = set(near(place)) if place else set()
    aligned = [
        int(pin.get("vcpu", ""))
        for pin in domain.findall("cputune/vcpupin")[:_MOST]
        if _NUMBER.fullmatch(pin.get("vcpu", ""))
        and _NUMBER.fullmatch(pin.get("cpuset", ""))
        and int(pin.get("cpuset", "")) in cpus
    ]
    if not aligned:
        return {}
    cells = domain.findall("cpu/numa/cell")[:_MOST]
    homes = [int(cell.get("id", "")) for cell in cells if _is_home(cell, aligned[0])]
    return ({"numaNode": homes[0]} if homes and homes[0] else {}) | {"alignedCPUs": aligned}


def _is_home(cell: Element, number: int) -> bool:
    """Whether a NUMA node of the guest has the CPU with a number."""
    if not _NUMBER.fullmatch(cell.get("id", "")):
        return False
    for part in cell.get("cpus", "").split(","):
        first, _, last = part.partition("-")
        is_range = _NUMBER.fullmatch(first) and _NUMBER.fullmatch(last or first)
        if is_range and int(first) <= number <= int(last or first):
            return True
    return False
