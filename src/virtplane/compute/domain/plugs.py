"""Disks of a running domain: read from its XML, and the elements that plug, insert and eject. Pure."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from lxml import etree

from virtplane.api.kubevirt_v1.disks import Disk
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.paths import HOTPLUG_DIR
from virtplane.compute.domain.context import DiskSource
from virtplane.compute.domain.disks import bus_of, render_disk, target_names
from virtplane.compute.domain.xml import Element, element

_ALIAS = re.compile(r"ua-([a-z0-9][-a-z0-9]{0,252})", re.ASCII)
_CONTROLLER_UNIT = 7
"""The controller's own place on its bus."""
_MOST_DISKS = 1024
"""More than a guest can have; each that is looked at takes its time."""
_TARGET = re.compile(r"[a-z]{3,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class LiveDisk:
    """A disk of a running domain, as its libvirt describes it."""

    name: str
    """The disk's name in the instance."""
    target: str
    source: str
    """The path that the launcher has it at; empty for an empty drive."""
    device: str
    """``disk``, ``cdrom`` or ``lun``."""
    unit: int | None
    """The place on the SCSI controller, for disks that are there."""
    element: Element

    @property
    def is_block(self) -> bool:
        """Whether it is a block device."""
        return self.element.get("type") == "block"

    @property
    def is_plugged(self) -> bool:
        """Whether what the disk shows came by hotplug."""
        return self.source.startswith(f"{HOTPLUG_DIR}/")


def live_disks(xml: str) -> list[LiveDisk]:
    """The disks that virt-handler has given to the domain. The XML is a launcher's: what is not understood is
    left out, and more than `_MOST_DISKS`.
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    try:
        root = etree.fromstring(xml, parser)
    except (etree.XMLSyntaxError, ValueError):
        return []
    nodes = islice(root.iterfind("devices/disk"), _MOST_DISKS)
    return [disk for node in nodes if (disk := _live(node)) is not None]


def _live(node: Element) -> LiveDisk | None:
    alias = _ALIAS.fullmatch(_text(node, "alias", "name"))
    target = _text(node, "target", "dev")
    if alias is None or _TARGET.fullmatch(target) is None:
        return None
    source = _text(node, "source", "file") or _text(node, "source", "dev")
    unit = _text(node, "address", "unit") if _text(node, "target", "bus") == "scsi" else ""
    number = int(unit) if unit.isdecimal() and len(unit) < 6 else None
    return LiveDisk(alias[1], target, source, str(node.get("device", "disk")), number, node)


def _text(node: Element, child: str, attribute: str) -> str:
    found = node.find(child)
    return str(found.get(attribute, "")) if found is not None else ""


def plugged_disk(
    vmi: VirtualMachineInstance, disk: Disk, source: DiskSource, present: Sequence[LiveDisk]
) -> str:
    """The XML of a disk to attach. `present` are the domain's other disks."""
    target = target_names([disk], {each.name: each.target for each in present})[disk.name]
    transitional = bool(vmi.spec.domain.devices.use_virtio_transitional)
    node = render_disk(disk, source, target, transitional=transitional)
    if bus_of(disk) == "scsi":
        taken = {each.unit for each in present} | {_CONTROLLER_UNIT}
        unit = next(number for number in range(len(taken) + 1) if number not in taken)
        place = {"type": "drive", "controller": 0, "bus": 0, "target": 0, "unit": unit}
        node.append(element("address", place))
    if disk.boot_order:
        node.append(element("boot", {"order": disk.boot_order}))
    return etree.tostring(node, encoding="unicode")


def inserted(drive: LiveDisk, source: DiskSource) -> str:
    """The XML that puts a medium into a drive; the rest stays, as libvirt refuses other changes."""
    node = _emptied(drive)
    node.set("type", "block" if source.block else "file")
    driver = node.find("driver")
    if driver is None:
        driver = element("driver", {"name": "qemu"})
        node.insert(0, driver)
    driver.set("type", source.format)
    driver.addnext(element("source", {"dev" if source.block else "file": source.path}))
    return etree.tostring(node, encoding="unicode")


def ejected(drive: LiveDisk) -> str:
    """The XML that takes the medium out of a drive."""
    return etree.tostring(_emptied(drive), encoding="unicode")


def _emptied(drive: LiveDisk) -> Element:
    node = copy.deepcopy(drive.element)
    for tag in ("source", "backingStore"):
        for child in node.findall(tag):
            node.remove(child)
    target = node.find("target")
    if target is not None:
        target.attrib.pop("tray", "")
    return node
