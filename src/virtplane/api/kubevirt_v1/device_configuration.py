"""Devices of nodes that guests may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from virtplane.api.markers import (
    ATOMIC,
    ApiStruct,
    describe,
)


class NodeMediatedDeviceTypesConfig(ApiStruct, kw_only=True):
    """Mediated devices for the nodes with certain labels."""

    mediated_device_types: Annotated[
        tuple[str, ...],
        ATOMIC,
        describe("Types to make, by type or by the driver's name of it, such as nvidia-222."),
    ] = ()
    mediated_devices_types: Annotated[
        tuple[str, ...], ATOMIC, describe("Former name of mediatedDeviceTypes; read where that is empty.")
    ] = ()
    node_selector: Annotated[
        Mapping[str, str], describe("Labels of the nodes. What all matching entries list is made there.")
    ]


class MediatedDevicesConfiguration(ApiStruct, kw_only=True):
    """Mediated devices (vGPUs) that virt-handler makes on nodes, and removes once unused."""

    enabled: Annotated[
        bool | None, describe("False leaves mediated devices of all nodes as they are; true by default.")
    ] = None
    mediated_device_types: Annotated[
        tuple[str, ...],
        ATOMIC,
        describe("Types to make on nodes for which nodeMediatedDeviceTypes has no entry."),
    ] = ()
    mediated_devices_types: Annotated[
        tuple[str, ...], ATOMIC, describe("Former name of mediatedDeviceTypes; read where that is empty.")
    ] = ()
    node_mediated_device_types: Annotated[
        tuple[NodeMediatedDeviceTypesConfig, ...],
        ATOMIC,
        describe("Types for nodes by their labels, in place of those for all nodes."),
    ] = ()


class MediatedHostDevice(ApiStruct, kw_only=True):
    """Mediated devices that guests may use."""

    external_resource_provider: Annotated[
        bool | None,
        describe("True where another device plugin offers the resource; virt-handler then does not."),
    ] = None
    mdev_name_selector: Annotated[
        str, describe("Name of the type of device, such as GRID T4-1Q; blanks may be underscores.")
    ]
    resource_name: Annotated[
        str, describe("Resource of the node that stands for the devices, such as nvidia.com/GRID_T4-1Q.")
    ]


class PciHostDevice(ApiStruct, kw_only=True):
    """PCI devices that guests may use."""

    external_resource_provider: Annotated[
        bool | None,
        describe("True where another device plugin offers the resource; virt-handler then does not."),
    ] = None
    pci_vendor_selector: Annotated[
        str, describe("Vendor and device in hexadecimal, such as 10de:1eb8. Their driver must be vfio-pci.")
    ]
    resource_name: Annotated[
        str, describe("Resource of the node that stands for the devices, such as nvidia.com/TU104GL.")
    ]


class USBSelector(ApiStruct, kw_only=True):
    """Which USB devices are meant."""

    product: Annotated[str, describe("Product number in hexadecimal, such as 3f15.")]
    vendor: Annotated[str, describe("Vendor number in hexadecimal, such as 46f4.")]


class USBHostDevice(ApiStruct, kw_only=True):
    """USB devices that guests may use."""

    external_resource_provider: Annotated[
        bool | None,
        describe("True where another device plugin offers the resource; virt-handler then does not."),
    ] = None
    resource_name: Annotated[
        str, describe("Resource of the node that stands for the devices, such as kubevirt.io/storage.")
    ]
    selectors: Annotated[
        tuple[USBSelector, ...], ATOMIC, describe("Which devices count; one that any of the selectors means.")
    ] = ()


class PermittedHostDevices(ApiStruct, kw_only=True):
    """Devices of nodes that guests may use. Others are refused."""

    mediated_devices: Annotated[
        tuple[MediatedHostDevice, ...], ATOMIC, describe("Mediated devices (vGPUs) that guests may use.")
    ] = ()
    pci_host_devices: Annotated[
        tuple[PciHostDevice, ...], ATOMIC, describe("PCI devices that guests may use.")
    ] = ()
    usb: Annotated[tuple[USBHostDevice, ...], ATOMIC, describe("USB devices that guests may use.")] = ()
