"""The devices of the node that the installation permits guests to have, as the kernel lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from virtplane.api.kubevirt_v1.device_configuration import PermittedHostDevices
from virtplane.compute.domain.hostdevices import MDEV_PREFIX, PCI_PREFIX, USB_PREFIX

_SYSTEM = Path("/sys")
_VFIO_DRIVER = "vfio-pci"
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class HostDevice:
    """One device that a pod can be given."""

    id: str
    """How device plugins call it."""
    name: str
    """What the launcher is told: a PCI address, a UUID, bus and device numbers."""
    nodes: tuple[str, ...]
    """Device nodes that the pod needs."""


@dataclass(frozen=True, slots=True)
class Resource:
    """The devices behind one resource of the node."""

    name: str
    prefix: str
    """Of the environment variable by which the launcher is told."""
    devices: tuple[HostDevice, ...]


def permitted(settings: PermittedHostDevices | None, system: Path = _SYSTEM) -> list[Resource]:
    """The resources for which device plugins of this node are responsible, each with what it has now.

    Those of an external provider are left out; a resource without devices on this node, too.
    """
    if settings is None:
        return []
    found: dict[tuple[str, str], dict[str, HostDevice]] = {}
    for pci in settings.pci_host_devices:
        if not pci.external_resource_provider:
            of_pci = found.setdefault((pci.resource_name, PCI_PREFIX), {})
            of_pci |= {each.id: each for each in _pci(pci.pci_vendor_selector, system)}
    for mediated in settings.mediated_devices:
        if not mediated.external_resource_provider:
            of_mdev = found.setdefault((mediated.resource_name, MDEV_PREFIX), {})
            of_mdev |= {each.id: each for each in _mediated(mediated.mdev_name_selector, system)}
    for usb in settings.usb:
        if not usb.external_resource_provider:
            of_usb = found.setdefault((usb.resource_name, USB_PREFIX), {})
            for selector in usb.selectors:
                of_usb |= {each.id: each for each in _usb(selector.vendor, selector.product, system)}
    return [
        Resource(name, prefix, tuple(devices[key] for key in sorted(devices)))
        for (name, prefix), devices in found.items()
        if devices
    ]


def _pci(selector: str, system: Path) -> Iterator[HostDevice]:
    """PCI devices of a vendor and product that are free for guests: VFIO is their driver."""
    for folder in sorted((system / "bus/pci/devices").glob("*")):
        names = (_text(folder / part).removeprefix("0x") for part in ("vendor", "device"))
        group = _link(folder / "iommu_group")
        if ":".join(names).lower() != selector.lower() or not _NUMBER.fullmatch(group):
            continue
        if _link(folder / "driver") == _VFIO_DRIVER:
            yield HostDevice(folder.name, folder.name, _vfio(group))


def _mediated(selector: str, system: Path) -> Iterator[HostDevice]:
    for folder in sorted((system / "bus/mdev/devices").glob("*")):
        name = _text(folder / "mdev_type/name") or _link(folder / "mdev_type")
        group = _link(folder / "iommu_group")
        if name.replace(" ", "_") == selector.replace(" ", "_") and _NUMBER.fullmatch(group):
            yield HostDevice(folder.name, folder.name, _vfio(group))


def _vfio(group: str) -> tuple[str, ...]:
    return "/dev/vfio/vfio", f"/dev/vfio/{group}"


def _usb(vendor: str, product: str, system: Path) -> Iterator[HostDevice]:
    for folder in sorted((system / "bus/usb/devices").glob("*")):
        if (_text(folder / "idVendor").lower(), _text(folder / "idProduct").lower()) != (
            vendor.lower(),
            product.lower(),
        ):
            continue
        bus, device = _text(folder / "busnum"), _text(folder / "devnum")
        if _NUMBER.fullmatch(bus) and _NUMBER.fullmatch(device):
            node = f"/dev/bus/usb/{int(bus):03}/{int(device):03}"
            yield HostDevice(folder.name, f"{int(bus)}:{int(device)}", (node,))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _link(path: Path) -> str:
    """The last name of what a link of the kernel points to; empty without one."""
    try:
        return path.readlink().name
    except OSError:
        return ""
