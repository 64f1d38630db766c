"""Devices of nodes that guests may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from virtplane.api.markers import (
    ATOMIC,
    ApiStruct,
)


class NodeMediatedDeviceTypesConfig(ApiStruct, kw_only=True):
    """Mediated devices to make on certain nodes."""

    mediated_device_types: Annotated[tuple[str, ...], ATOMIC] = ()
    mediated_devices_types: Annotated[tuple[str, ...], ATOMIC] = ()
    node_selector: Mapping[str, str]


class MediatedDevicesConfiguration(ApiStruct, kw_only=True):
    """Mediated devices to make on nodes."""

    enabled: bool | None = None
    mediated_device_types: Annotated[tuple[str, ...], ATOMIC] = ()
    mediated_devices_types: Annotated[tuple[str, ...], ATOMIC] = ()
    node_mediated_device_types: Annotated[tuple[NodeMediatedDeviceTypesConfig, ...], ATOMIC] = ()


class MediatedHostDevice(ApiStruct, kw_only=True):
    """Mediated devices that guests may use."""

    external_resource_provider: bool | None = None
    mdev_name_selector: str
    resource_name: str


class PciHostDevice(ApiStruct, kw_only=True):
    """PCI devices that guests may use."""

    external_resource_provider: bool | None = None
    pci_vendor_selector: str
    resource_name: str


class USBSelector(ApiStruct, kw_only=True):
    """Vendor and product of a USB device (hexadecimal)."""

    product: str
    vendor: str


class USBHostDevice(ApiStruct, kw_only=True):
    """USB devices that guests may use."""

    external_resource_provider: bool | None = None
    resource_name: str
    selectors: Annotated[tuple[USBSelector, ...], ATOMIC] = ()


class PermittedHostDevices(ApiStruct, kw_only=True):
    """Devices of nodes that guests may use."""

    mediated_devices: Annotated[tuple[MediatedHostDevice, ...], ATOMIC] = ()
    pci_host_devices: Annotated[tuple[PciHostDevice, ...], ATOMIC] = ()
    usb: Annotated[tuple[USBHostDevice, ...], ATOMIC] = ()
