"""Devices that the installation permits, found in trees as the kernel makes them, and offered to pods."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.device_configuration import PermittedHostDevices
from virtplane.compute.handler.node.hostdevices import permitted
from virtplane.compute.handler.node.passthrough import PassthroughPlugins, ResourceOffer

UUID = "5d307ca9-b3ef-428c-8861-06e72d69f223"
PCI: JsonObject = {"pciVendorSelector": "10DE:1eb8", "resourceName": "nvidia.com/T4"}


def settings(**lists: Any) -> PermittedHostDevices:
    return decode(PermittedHostDevices, lists)


def pci(system: Path, address: str, *, driver: str = "vfio-pci", group: str = "7") -> None:
    folder = system / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text("0x10de\n")
    (folder / "device").write_text("0x1eb8\n")
    (folder / "driver").symlink_to(f"../../drivers/{driver}")
    (folder / "iommu_group").symlink_to(f"../../kernel/iommu_groups/{group}")


def test_pci_devices_of_a_vendor_and_product_that_vfio_drives_are_offered(tmp_path: Path) -> None:
    pci(tmp_path, "0000:81:00.0")
    pci(tmp_path, "0000:82:00.0", driver="nouveau")
    (resource,) = permitted(settings(pciHostDevices=[PCI]), tmp_path)
    (device,) = resource.devices
    assert (resource.name, device.name) == ("nvidia.com/T4", "0000:81:00.0")
    assert device.nodes == ("/dev/vfio/vfio", "/dev/vfio/7")


def test_devices_of_external_providers_are_theirs(tmp_path: Path) -> None:
    pci(tmp_path, "0000:81:00.0")
    external = {**PCI, "externalResourceProvider": True}
    assert permitted(settings(pciHostDevices=[external]), tmp_path) == []
    assert permitted(None, tmp_path) == []


def test_mediated_devices_are_chosen_by_the_name_of_their_type(tmp_path: Path) -> None:
    folder = tmp_path / "bus/mdev/devices" / UUID
    (folder / "mdev_type").mkdir(parents=True)
    (folder / "mdev_type/name").write_text("GRID T4-1Q\n")
    (folder / "iommu_group").symlink_to("../groups/12")
    wanted = {"mdevNameSelector": "GRID T4-1Q", "resourceName": "nvidia.com/GRID_T4-1Q"}
    (resource,) = permitted(settings(mediatedDevices=[wanted]), tmp_path)
    assert [(device.name, device.nodes[1]) for device in resource.devices] == [(UUID, "/dev/vfio/12")]


def test_usb_devices_are_chosen_by_vendor_and_product(tmp_path: Path) -> None:
    for port, product in (("1-1", "0002"), ("1-2", "0003")):
        folder = tmp_path / "bus/usb/devices" / port
        folder.mkdir(parents=True)
        for name, value in (("idVendor", "46f4"), ("idProduct", product), ("busnum", "1"), ("devnum", "4")):
            (folder / name).write_text(f"{value}\n")
    usb = {"resourceName": "k/storage", "selectors": [{"vendor": "46F4", "product": "0002"}]}
    (resource,) = permitted(settings(usb=[usb]), tmp_path)
    assert [(device.name, device.nodes) for device in resource.devices] == [
        ("1:4", ("/dev/bus/usb/001/004",))
    ]


def test_a_container_gets_the_nodes_of_its_devices_and_their_names(tmp_path: Path) -> None:
    for number in "123":
        pci(tmp_path, f"0000:8{number}:00.0", group=number)
    (resource,) = permitted(settings(pciHostDevices=[PCI]), tmp_path)
    offer = ResourceOffer(resource)
    assert offer.units() == {f"0000:8{number}:00.0": True for number in "123"}
    given = offer.allocation(["0000:81:00.0", "0000:83:00.0"])
    assert given["envs"] == {"PCI_RESOURCE_NVIDIA_COM_T4": "0000:81:00.0,0000:83:00.0"}
    assert [node["host_path"] for node in given["devices"]] == [
        "/dev/vfio/vfio",
        "/dev/vfio/1",
        "/dev/vfio/3",
    ]


async def test_plugins_come_and_go_with_what_is_permitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []

    class Plugin:
        def __init__(self, offer: ResourceOffer, _folder: Path) -> None:
            self._offer = offer

        async def run(self) -> None:
            served.append(self._offer.resource)
            try:
                await asyncio.Event().wait()
            finally:
                served.remove(self._offer.resource)

    monkeypatch.setattr("virtplane.compute.handler.node.pluginset.DevicePlugin", Plugin)
    pci(tmp_path, "0000:81:00.0")
    permits: list[PermittedHostDevices | None] = [settings(pciHostDevices=[PCI])]
    plugins = PassthroughPlugins(tmp_path, lambda: permits[0], tmp_path)
    await plugins.look()
    await asyncio.sleep(0)
    assert served == ["nvidia.com/T4"]
    await plugins.look()
    await asyncio.sleep(0)
    assert served == ["nvidia.com/T4"]
    permits[0] = None
    await plugins.look()
    assert served == []
