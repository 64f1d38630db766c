"""The networks of a running launcher: its annotation, and what the instance's status says of it. Pure.

Whoever may change pods can write their annotations. What virt-controller reads there becomes
``multus-status`` in the instance's status and decides nothing on the node, which looks at the links itself.
"""

from __future__ import annotations

import orjson
from msgspec.structs import replace

from kubecore.json import JsonObject, TooDeep, decode, get_str
from kubecore.objects import meta
from virtplane.api import labels
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import VirtualMachineInstanceNetworkInterface
from virtplane.compute.launcherpod import network
from virtplane.compute.launcherpod.inputs import RenderInputs
from virtplane.compute.podlinks import DOMAIN, GUEST_AGENT, MULTUS, is_hashed, sources, wires

_LONGEST = 1 << 18
"""Characters of an annotation that are read."""


def set_attachments(pod: JsonObject, inputs: RenderInputs) -> None:
    """Write into `pod` that it leaves the networks that its guest has left, and joins new ones.

    Others that the annotation names are not the instance's interfaces, and stay: those of the user's own and
    of binding plugins.
    """
    wanted = {
        get_str(item, "interface"): item
        for item in network.network_attachments(inputs)
        if "interface" in item
    }
    present = _objects(meta.annotations(pod).get(labels.NETWORKS, ""))
    names = [get_str(item, "interface") for item in present]
    kept = [item for name, item in zip(names, present, strict=True) if name in wanted or not is_hashed(name)]
    added = [item for name, item in wanted.items() if name not in names]
    if added or kept != present:
        meta.set_annotation(pod, labels.NETWORKS, orjson.dumps([*kept, *added]).decode())


def set_network_info(pod: JsonObject, inputs: RenderInputs) -> None:
    """Write into `pod` what its networks' CNI plugins say of their devices, for the launcher to read."""
    if not network.wants_network_info(inputs):
        return
    told = _objects(meta.annotations(pod).get(network.NETWORK_STATUS_ANNOTATION, ""))
    reported = {get_str(item, "interface"): item for item in told if "device-info" in item}
    listed = []
    for wire in wires(inputs.vmi):
        item = reported.get(wire.names.pod)
        if item is not None:
            mac = {"mac": get_str(item, "mac")} if get_str(item, "mac") else {}
            listed.append({"network": wire.network.name, "deviceInfo": item["device-info"], **mac})
    if listed:
        meta.set_annotation(pod, labels.NETWORK_INFO, orjson.dumps({"interfaces": listed}).decode())


def interface_status(
    vmi: VirtualMachineInstance, pod: JsonObject
) -> list[VirtualMachineInstanceNetworkInterface]:
    """The interfaces of the status, updated from the pod's network annotations."""
    before = {item.name: item for item in vmi.status.interfaces if item.name}
    others = [item for item in vmi.status.interfaces if not item.name]
    told = meta.annotations(pod).get(network.NETWORK_STATUS_ANNOTATION, "")
    attached = {get_str(item, "interface") for item in _objects(told) if item.get("default") is not True}
    result: list[VirtualMachineInstanceNetworkInterface] = []
    for wire in wires(vmi):
        name, pod_interface = wire.interface.name, wire.names.pod
        unknown = VirtualMachineInstanceNetworkInterface(name=name)
        entry = before.get(name, unknown)
        on_network = pod_interface in attached
        known = {source: source in sources(entry) for source in (DOMAIN, GUEST_AGENT)} | {MULTUS: on_network}
        if entry.pod_interface_name is None and (wire.is_primary or on_network):
            entry = replace(entry, pod_interface_name=pod_interface)
        told = ", ".join(source for source, is_one in known.items() if is_one)
        entry = replace(entry, info_source=told or None)
        if wire.is_primary or told:
            result.append(entry)
    return [*result, *others]


def _objects(text: str) -> list[JsonObject]:
    """The objects of a list that an annotation has; none where it is no such list."""
    try:
        found = decode(text.encode()) if 0 < len(text) <= _LONGEST else []
    except (orjson.JSONDecodeError, TooDeep):
        return []
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
