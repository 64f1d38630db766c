"""PCI functions of the node's network cards that a launcher's pod has.

The network's CNI plugin reports the function of each network, virt-controller writes that into an annotation
of the pod, and the kubelet into a file of the launcher. Nothing depends on it being true: the kernel lets
QEMU use the devices of its pod alone.
"""

from __future__ import annotations

import orjson

from kubecore.json import JsonObject, get_list, get_object, get_str
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.paths import NETWORK_INFO_DIR, NETWORK_INFO_FILE
from virtplane.compute.domain import pci
from virtplane.compute.domain.sriov import sriov_interfaces
from virtplane.compute.handler.launchers.process import Process

_LIMIT = 1 << 18


class FunctionsUnknown(Exception):
    """The launcher does not know yet which functions it has; try again soon."""

    def __init__(self, interface: str) -> None:
        super().__init__(f"the PCI function for interface {interface} is not known yet")


def functions_of(vmi: VirtualMachineInstance, launcher: Process) -> dict[str, str]:
    """The PCI address of each interface of kind ``sriov``. Raises FunctionsUnknown, ValueError, OSError."""
    names = [interface.name for interface in sriov_interfaces(vmi)]
    if not names:
        return {}
    with launcher.root() as root:
        path = f"{NETWORK_INFO_DIR}/{NETWORK_INFO_FILE}"
        text = root.read(path, _LIMIT) if root.is_file(path) else b""
    found = parse(text)
    for name in names:
        if name not in found:
            raise FunctionsUnknown(name)
    return {name: found[name] for name in names}


def parse(text: bytes) -> dict[str, str]:
    """The PCI addresses that the file has, by network. Raises ValueError for what is no address."""
    try:
        document = orjson.loads(text) if text.strip() else {}
    except orjson.JSONDecodeError as error:
        raise ValueError(f"the device details of the pod's networks cannot be read: {error}") from error
    found = {}
    for item in get_list(document, "interfaces") if isinstance(document, dict) else []:
        name, address = get_str(item, "network"), _address(get_object(item, "deviceInfo"))
        if name and address:
            pci.parts(address)
            found[name] = address
    return found


def _address(info: JsonObject) -> str:
    kinds = (get_object(info, kind) for kind in ("pci", "vdpa"))
    return next((text for kind in kinds if (text := get_str(kind, "pci-address"))), "")
