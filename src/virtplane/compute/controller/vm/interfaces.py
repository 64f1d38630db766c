"""Interfaces that come to, and leave, a running guest because its VM's template says so. Pure.

A template adds an interface by listing it, and removes one by its state ``absent``: the instance gets the
state, the node takes the interface from the guest, and then it leaves the instance and the template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from kubecore.patch.guarded import same_version
from virtplane.api.kubevirt_v1.networks import Interface, Network
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virtplane.cluster.objects import described
from virtplane.compute.podlinks import is_numbered, is_primary

ABSENT = "absent"
_INTERFACES, _NETWORKS = "domain/devices/interfaces", "networks"


def can_be_plugged(interface: Interface, network: Network | None) -> bool:
    """Whether a running guest can get an interface: bridged ones of secondary networks."""
    is_secondary = network is not None and network.multus is not None and not is_primary(network)
    return is_secondary and interface.bridge is not None


def instance_operations(vm: VirtualMachine, vmi: VirtualMachineInstance) -> list[JsonObject]:
    """Operations that give the instance the interfaces of the template, at the very version of the instance.

    What else has changed waits for the next start of the guest.
    """
    if vmi.status.phase != "Running" or vmi.metadata.is_being_deleted:
        return []
    template = vm.spec.instance
    wanted = {item.name: item for item in template.domain.devices.interfaces}
    running = vmi.spec.domain.devices.interfaces
    present = {item.name for item in running}
    networks = {item.name: item for item in template.networks}
    added = [
        item
        for item in wanted.values()
        if item.name not in present and item.state != ABSENT and can_be_plugged(item, networks.get(item.name))
    ]
    gone = {item.name for item in running if _has_left(vmi, item, wanted)}
    operations = _states(vmi, wanted)
    operations += _removals("/spec", vmi.spec, gone)
    kept_interfaces, kept_networks = len(running) - len(gone), len(_without(vmi.spec.networks, gone))
    operations += _additions(f"/spec/{_INTERFACES}", kept_interfaces, added)
    operations += _additions(f"/spec/{_NETWORKS}", kept_networks, [networks[item.name] for item in added])
    return [*same_version(described(vmi)), *operations] if operations else []


def template_operations(vm: VirtualMachine, vmi: VirtualMachineInstance) -> list[JsonObject]:
    """Operations that remove from the template, at the VM's very version, the interfaces that its running
    guest does not have any more.
    """
    template = vm.spec.instance
    present = {item.name for item in vmi.spec.domain.devices.interfaces}
    gone = {
        item.name
        for item in template.domain.devices.interfaces
        if item.state == ABSENT and item.name not in present
    }
    operations = _removals("/spec/template/spec", template, gone)
    return [*same_version(described(vm)), *operations] if operations else []


def drop_absent(spec: JsonObject) -> None:
    """Leave out of a new instance's spec, a document, the interfaces that its guest is to start without."""
    devices = spec.get("domain", {}).get("devices") or {}
    absent = {item.get("name") for item in devices.get("interfaces") or () if item.get("state") == ABSENT}
    if absent:
        devices["interfaces"] = [item for item in devices["interfaces"] if item.get("name") not in absent]
        networks = spec.get("networks") or ()
        spec["networks"] = [item for item in networks if item.get("name") not in absent]


def _states(vmi: VirtualMachineInstance, wanted: Mapping[str, Interface]) -> list[JsonObject]:
    established = {item.name: item.pod_interface_name or "" for item in vmi.status.interfaces}
    operations: list[JsonObject] = []
    for index, interface in enumerate(vmi.spec.domain.devices.interfaces):
        other = wanted.get(interface.name)
        if other is None or (other.state or "") == (interface.state or ""):
            continue
        if other.state == ABSENT and is_numbered(established.get(interface.name, "")):
            continue  # Which of the pod's numbered interfaces it is would not be sure any more.
        path = f"/spec/{_INTERFACES}/{index}/state"
        if not other.state:
            operations.append({"op": "remove", "path": path})
        else:
            operations.append({"op": "add", "path": path, "value": other.state})
    return operations


def _has_left(vmi: VirtualMachineInstance, interface: Interface, wanted: Mapping[str, Interface]) -> bool:
    """Whether neither the guest nor its pod is on the network of an interface that is to go."""
    other = wanted.get(interface.name)
    is_leaving = interface.state == ABSENT and (other is None or other.state == ABSENT)
    return is_leaving and all(item.name != interface.name for item in vmi.status.interfaces)


def _without(networks: Sequence[Network], gone: set[str]) -> list[Network]:
    return [item for item in networks if item.name not in gone]


def _removals(path: str, spec: VirtualMachineInstanceSpec, gone: set[str]) -> list[JsonObject]:
    lists: tuple[tuple[str, Sequence[Interface | Network]], ...] = (
        (_INTERFACES, spec.domain.devices.interfaces),
        (_NETWORKS, spec.networks),
    )
    return [
        {"op": "remove", "path": f"{path}/{name}/{index}"}
        for name, items in lists
        for index, item in reversed(list(enumerate(items)))
        if item.name in gone
    ]


def _additions(path: str, kept: int, added: Sequence[Interface | Network]) -> list[JsonObject]:
    values = [encode(item) for item in added]
    if not kept:  # the list may be absent
        return [{"op": "add", "path": path, "value": values}] if values else []
    return [{"op": "add", "path": f"{path}/-", "value": value} for value in values]
