"""Devices that drivers of dynamic resource allocation have given to a launcher's pod.

A driver describes the devices of each request of a claim in a file of the container (KEP-5304). Nothing
depends on it being true: the kernel lets QEMU use the devices of its pod alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kubecore.json import JsonObject, get_list, get_object, get_str
from virtplane.api.kubevirt_v1.devices import GPU, HostDevice
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.context import ClaimedDevice
from virtplane.compute.domain.hostdevices import MDEV_PREFIX, PCI_PREFIX
from virtplane.compute.handler.launchers.process import Process
from virtplane.compute.handler.rooted import Root

FOLDER = "var/run/kubernetes.io/dra-device-attributes"
_GROUP = "metadata.resource.k8s.io/"
_SUFFIX = "-metadata.json"
_LIMIT = 1 << 18
_PCI = "resource.kubernetes.io/pciBusID"
_MEDIATED = "mdevUUID"


class UndescribedDevice(ValueError):
    """No driver says which device the guest is to have."""

    def __init__(self, claim: str, request: str, why: str) -> None:
        super().__init__(f"the device of request {request} of claim {claim} is not known: {why}")


def claimed_devices(vmi: VirtualMachineInstance, launcher: Process) -> dict[tuple[str, str], ClaimedDevice]:
    """The device of each request that the guest's devices name, by claim and request.

    Raises UndescribedDevice, OSError.
    """
    devices = vmi.spec.domain.devices
    handed: tuple[GPU | HostDevice, ...] = (*devices.gpus, *devices.host_devices)
    wanted = [(each.claim_name, each.request_name) for each in handed if each.claim_name]
    if not wanted:
        return {}
    folders = claim_folders(vmi)
    with launcher.root() as root:
        return {
            (claim, request or ""): described(root, folders.get(claim, ""), claim, request or "")
            for claim, request in wanted
        }


def claim_folders(vmi: VirtualMachineInstance) -> dict[str, str]:
    """The folder of each claim of the pod, by its name there."""
    return {
        claim.name: f"{FOLDER}/resourceclaims/{claim.resource_claim_name}"
        if claim.resource_claim_name
        else f"{FOLDER}/resourceclaimtemplates/{claim.name}"
        for claim in vmi.spec.resource_claims
    }


def described(root: Root, folder: str, claim: str, request: str) -> ClaimedDevice:
    """The one device of a request, as its driver describes it. Raises UndescribedDevice, OSError."""
    place = f"{folder}/{request}"
    names = root.names(place) if folder and root.is_folder(place) else []
    files = [name for name in names if name.endswith(_SUFFIX)]
    if len(files) != 1:
        raise UndescribedDevice(claim, request, f"{len(files)} drivers describe it, not one")
    text = root.read(f"{place}/{files[0]}", _LIMIT)
    try:
        return device_of(text, request)
    except (ValueError, RecursionError) as error:  # the latter of JSON without end
        raise UndescribedDevice(claim, request, str(error)) from error


def device_of(text: bytes, request: str) -> ClaimedDevice:
    """The one device of `request` in a driver's file. Raises ValueError."""
    # The file may have the same in several versions, one document after the other.
    document, _ = json.JSONDecoder().raw_decode(text.decode().lstrip())
    if not isinstance(document, dict) or not get_str(document, "apiVersion").startswith(_GROUP):
        raise ValueError("the driver's file does not describe devices")
    devices = [
        device
        for each in _objects(get_list(document, "requests"))
        if get_str(each, "name").partition("/")[0] == request
        for device in _objects(get_list(each, "devices"))
    ]
    if len(devices) != 1:
        raise ValueError(f"the request has {len(devices)} devices, not one")
    attributes = get_object(devices[0], "attributes")
    for name in attributes:
        if name.rpartition("/")[2] == _MEDIATED:
            return ClaimedDevice(MDEV_PREFIX, get_str(attributes, name, "string"))
    address = get_str(attributes, _PCI, "string")
    if not address:
        raise ValueError(f"the device has no attribute {_PCI} or {_MEDIATED}")
    return ClaimedDevice(PCI_PREFIX, address)


def _objects(items: Iterable[Any]) -> list[JsonObject]:
    return [item for item in items if isinstance(item, dict)]
