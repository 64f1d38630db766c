"""``<hostdev>`` elements: devices of the node, which the kubelet has given to the pod.

The launcher's environment has the devices of each resource, as device plugins for KubeVirt name them:
``PCI_RESOURCE_<NAME>`` holds PCI addresses, ``MDEV_PCI_RESOURCE_<NAME>`` UUIDs of mediated devices,
``USB_RESOURCE_<NAME>`` bus and device numbers. Devices of claims are described by the drivers that gave them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from virtplane.api.kubevirt_v1.devices import GPU, Devices, HostDevice
from virtplane.compute.domain import pci
from virtplane.compute.domain.context import DomainContext
from virtplane.compute.domain.xml import Element, alias, element

PCI_PREFIX, MDEV_PREFIX, USB_PREFIX = "PCI_RESOURCE_", "MDEV_PCI_RESOURCE_", "USB_RESOURCE_"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_USB = re.compile(r"(?P<bus>[0-9]{1,3}):(?P<device>[0-9]{1,3})", re.ASCII)
_NOT_IN_NAMES = re.compile(r"[/.\-]")


class MissingDevice(ValueError):
    """The pod has no device left for what the guest asks for."""

    def __init__(self, name: str, resource: str) -> None:
        super().__init__(f"the pod has no device {resource} for {name}")


def variable(prefix: str, resource: str) -> str:
    """The environment variable that holds the devices of a resource such as ``vendor.com/gpu``."""
    return prefix + _NOT_IN_NAMES.sub("_", resource).upper()


def render_host_devices(devices: Devices, context: DomainContext) -> list[Element]:
    """The devices in the order of the specification, GPUs last. Raises MissingDevice, ValueError."""
    left = {name: [item for item in value.split(",") if item] for name, value in context.given.items()}
    rendered = [_device(each, _take(left, context, each), "hostdevice-") for each in devices.host_devices]
    has_display = False
    for gpu in devices.gpus:
        node = _device(gpu, _take(left, context, gpu), "gpu-")
        if node.get("type") == "mdev" and not has_display:
            has_display = _add_display(node, gpu)
        rendered.append(node)
    return rendered


def _take(left: Mapping[str, list[str]], context: DomainContext, device: GPU | HostDevice) -> tuple[str, str]:
    """The kind and the name of the device of a claim, or of the next one of a resource."""
    if device.claim_name:
        claimed = context.claimed.get((device.claim_name, device.request_name or ""))
        if claimed is None:
            raise MissingDevice(device.name, f"of claim {device.claim_name}")
        return claimed.prefix, claimed.name
    resource = device.device_name or ""
    for prefix in (MDEV_PREFIX, PCI_PREFIX, USB_PREFIX):
        found = left.get(variable(prefix, resource))
        if found:
            return prefix, found.pop(0)
    raise MissingDevice(device.name, resource)


def _device(device: GPU | HostDevice, found: tuple[str, str], prefix: str) -> Element:
    kind, name = found
    attributes: dict[str, object] = {"mode": "subsystem"}
    if kind == PCI_PREFIX:
        attributes |= {"type": "pci", "managed": "no"}
        address = element("address", pci.parts(name))
    elif kind == MDEV_PREFIX:
        if not _UUID.fullmatch(name):
            raise ValueError(f"{name!r} is not the UUID of a mediated device")
        attributes |= {"type": "mdev", "model": "vfio-pci"}
        address = element("address", {"uuid": name})
    else:
        numbers = _USB.fullmatch(name)
        if numbers is None:
            raise ValueError(f"{name!r} is not a USB device such as 1:4")
        attributes |= {"type": "usb"}
        address = element("address", {"bus": int(numbers["bus"]), "device": int(numbers["device"])})
    return element("hostdev", attributes, element("source", {}, address), alias(prefix + device.name))


def _add_display(node: Element, gpu: GPU) -> bool:
    """Let a virtual GPU be the display, unless its options say otherwise; returns whether it is."""
    options = gpu.virtual_gpu_options
    display = options.display if options is not None else None
    if display is not None and display.enabled is False:
        return False
    node.set("display", "on")
    if display is None or display.ram_fb is None or display.ram_fb.enabled is not False:
        node.set("ramfb", "on")
    return True
