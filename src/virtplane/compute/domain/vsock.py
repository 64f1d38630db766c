"""The guest's end of sockets between it and its node."""

from __future__ import annotations

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.xml import Element, element


def render_vsock(vmi: VirtualMachineInstance) -> list[Element]:
    """``<vsock>`` with the address that virt-controller has chosen, where the instance asks for it."""
    address = vmi.status.vsockcid
    if vmi.spec.domain.devices.autoattach_vsock is not True or address is None:
        return []
    cid = element("cid", {"auto": "no", "address": address})
    return [element("vsock", {"model": "virtio-non-transitional"}, cid)]
