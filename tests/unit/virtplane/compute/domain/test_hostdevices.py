"""Devices of the node in the domain, from what the launcher's environment has of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.devices import Devices
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.hostdevices import MissingDevice, render_host_devices, variable

UUID = "5d307ca9-b3ef-428c-8861-06e72d69f223"


def rendered(given: Mapping[str, str], **devices: Any) -> list[tuple[dict[str, str], dict[str, str], str]]:
    """Attributes of each device, of its address, and its alias."""
    found = render_host_devices(decode(Devices, devices), DomainContext(emulation=False, given=given))
    result = []
    for node in found:
        address, alias = node.find("source/address"), node.find("alias")
        assert address is not None and alias is not None
        own = {str(name): str(value) for name, value in node.attrib.items()}
        place = {str(name): str(value) for name, value in address.attrib.items()}
        result.append((own, place, str(alias.get("name"))))
    return result


def host(name: str, resource: str) -> dict[str, str]:
    return {"name": name, "deviceName": resource}


def test_resources_are_named_in_the_environment_in_capitals() -> None:
    assert variable("PCI_RESOURCE_", "nvidia.com/TU104GL-T4") == "PCI_RESOURCE_NVIDIA_COM_TU104GL_T4"


def test_each_device_is_another_of_its_resource() -> None:
    given = {"PCI_RESOURCE_A_B_C": "0000:81:00.0,0000:82:00.1"}
    first, second = rendered(given, hostDevices=[host("x", "a.b/c"), host("y", "a.b/c")])
    assert first == (
        {"mode": "subsystem", "type": "pci", "managed": "no"},
        {"domain": "0x0000", "bus": "0x81", "slot": "0x00", "function": "0x0"},
        "ua-hostdevice-x",
    )
    assert second[1]["bus"] == "0x82"


def test_usb_devices_are_found_by_their_numbers() -> None:
    ((node, address, alias),) = rendered({"USB_RESOURCE_K_U": "3:14"}, hostDevices=[host("key", "k/u")])
    assert (node["type"], address, alias) == ("usb", {"bus": "3", "device": "14"}, "ua-hostdevice-key")


def test_the_first_virtual_gpu_is_the_display() -> None:
    given = {"MDEV_PCI_RESOURCE_V_G": f"{UUID},{UUID}"}
    first, second = rendered(given, gpus=[host("a", "v/g"), host("b", "v/g")])
    assert first == (
        {"mode": "subsystem", "type": "mdev", "model": "vfio-pci", "display": "on", "ramfb": "on"},
        {"uuid": UUID},
        "ua-gpu-a",
    )
    assert "display" not in second[0]


def test_a_virtual_gpu_need_not_be_a_display() -> None:
    gpu = host("a", "v/g") | {"virtualGPUOptions": {"display": {"enabled": False}}}
    ((node, _, _),) = rendered({"MDEV_PCI_RESOURCE_V_G": UUID}, gpus=[gpu])
    assert "display" not in node


def test_devices_of_claims_are_not_those_of_resources() -> None:
    claimed = {"name": "x", "claimName": "c", "requestName": "r"}
    with pytest.raises(MissingDevice, match="claim c"):
        rendered({"PCI_RESOURCE_C": "0000:81:00.0"}, hostDevices=[claimed])


def test_a_guest_whose_pod_lacks_a_device_does_not_start() -> None:
    with pytest.raises(MissingDevice, match="the pod has no device a/b for y"):
        rendered({"PCI_RESOURCE_A_B": "0000:81:00.0"}, hostDevices=[host("x", "a/b"), host("y", "a/b")])


@pytest.mark.parametrize(
    ("name", "value"),
    [("PCI_RESOURCE_A_B", "../etc"), ("MDEV_PCI_RESOURCE_A_B", "x"), ("USB_RESOURCE_A_B", "1:2:3")],
)
def test_what_is_no_device_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        rendered({name: value}, hostDevices=[host("x", "a/b")])
