"""Detects changes of a VM that take effect only after a restart of its guest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.features import FeatureState
from virtplane.api.kubevirt_v1.networks import Interface, Network
from virtplane.api.kubevirt_v1.vm import VirtualMachineSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virtplane.api.kubevirt_v1.volumes import Volume
from virtplane.compute.controller.vm.interfaces import ABSENT, can_be_plugged
from virtplane.compute.hotplug import is_hotpluggable

MESSAGE = "a non-live-updatable field was changed in the template spec"


def needs_restart(
    started: VirtualMachineSpec,
    current: VirtualMachineSpec,
    vmi: VirtualMachineInstance,
    *,
    live_update: bool,
) -> bool:
    """Whether `current` (a VM's spec) differs from `started` in what a running guest cannot follow.

    Both specs are expanded (instance type applied). What can be followed is made equal first.
    """
    before, after = started.instance, current.instance
    movable = {volume.name for volume in (*before.volumes, *after.volumes) if is_hotpluggable(volume)}
    before, after = _without_volumes(before, movable), _without_volumes(after, movable)
    running = vmi.spec.domain.firmware.uuid
    before, after = _without_uuid(before, running), _without_uuid(after, running)
    if current.update_volumes_strategy == "Migration":
        before = replace(before, volumes=_with_claims(before.volumes, after.volumes))
    # A template without networks is compared as it is: its instance has the default network.
    if _names_networks(after) and not network_needs_restart(after, vmi):
        after = _with_networks(after, before)
    if live_update:
        after = _with_live_updated(after, before)
    return bool(_meaning(before) != _meaning(after))


def _meaning(spec: VirtualMachineInstanceSpec) -> Any:
    """The spec in a form in which texts, lists and maps that are empty equal absent ones.

    Most objects ask for something by being there (``tpm: {}``) and stay.
    """
    features = spec.domain.features
    if features.acpi == FeatureState():  # KubeVirt does not distinguish it from an absent one
        spec = replace(spec, domain=replace(spec.domain, features=replace(features, acpi=None)))
    return _without_empty_texts(spec)


def _without_empty_texts(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return type(value), [_without_empty_texts(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, tuple):
        return [_without_empty_texts(item) for item in value]
    return value or None if isinstance(value, str) else value


def _without_volumes(spec: VirtualMachineInstanceSpec, movable: set[str]) -> VirtualMachineInstanceSpec:
    """Ignore hotpluggable volumes, and media in CD-ROM drives."""
    devices = spec.domain.devices
    disks = tuple(disk for disk in devices.disks if disk.name not in movable or disk.cdrom is not None)
    return replace(
        spec,
        volumes=tuple(volume for volume in spec.volumes if volume.name not in movable),
        domain=replace(spec.domain, devices=replace(devices, disks=disks)),
    )


def _without_uuid(spec: VirtualMachineInstanceSpec, running: str | None) -> VirtualMachineInstanceSpec:
    """Ignore the firmware UUID, which the running guest already has."""
    firmware = spec.domain.firmware
    if firmware.uuid != (running or ""):
        return spec
    return replace(spec, domain=replace(spec.domain, firmware=replace(firmware, uuid=None)))


def _with_claims(before: Sequence[Volume], after: Sequence[Volume]) -> tuple[Volume, ...]:
    """Ignore changed claims, which volume migration handles."""
    theirs = {volume.name: volume for volume in after if _is_claim(volume)}
    return tuple(theirs.get(volume.name, volume) if _is_claim(volume) else volume for volume in before)


def _is_claim(volume: Volume) -> bool:
    return volume.persistent_volume_claim is not None or volume.data_volume is not None


def _with_networks(
    spec: VirtualMachineInstanceSpec, other: VirtualMachineInstanceSpec
) -> VirtualMachineInstanceSpec:
    devices = replace(spec.domain.devices, interfaces=other.domain.devices.interfaces)
    return replace(spec, networks=other.networks, domain=replace(spec.domain, devices=devices))


def _with_live_updated(
    spec: VirtualMachineInstanceSpec, other: VirtualMachineInstanceSpec
) -> VirtualMachineInstanceSpec:
    cpu = replace(spec.domain.cpu, sockets=other.domain.cpu.sockets)
    memory = replace(spec.domain.memory, guest=other.domain.memory.guest)
    return replace(
        spec,
        domain=replace(spec.domain, cpu=cpu, memory=memory),
        node_selector=other.node_selector,
        affinity=other.affinity,
        tolerations=other.tolerations,
    )


def _names_networks(template: VirtualMachineInstanceSpec) -> bool:
    return bool(template.domain.devices.interfaces or template.networks)


def network_needs_restart(template: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance) -> bool:
    """Whether the networks of template and instance differ in a way that hotplug cannot change."""
    wanted = {interface.name: interface for interface in template.domain.devices.interfaces}
    running = vmi.spec.domain.devices.interfaces
    for interface in running:
        other = wanted.get(interface.name)
        if other is None or _comparable(interface) != _comparable(other):
            return True
    present = {interface.name for interface in running}
    networks = {network.name: network for network in template.networks}
    for interface in wanted.values():
        is_new = interface.name not in present and interface.state != ABSENT
        if is_new and not can_be_plugged(interface, networks.get(interface.name)):
            return True
    return _networks_changed({network.name: network for network in template.networks}, vmi)


def _networks_changed(networks: Mapping[str, Network], vmi: VirtualMachineInstance) -> bool:
    is_migratable = is_true(vmi.status.conditions, "LiveMigratable")
    for network in vmi.spec.networks:
        other = networks.get(network.name)
        if other is None:
            return True
        is_multus = network.multus is not None and other.multus is not None
        if other != network and not (is_migratable and is_multus):
            return True
    return False


def _comparable(interface: Interface) -> Any:
    return _without_empty_texts(replace(interface, state=None))
