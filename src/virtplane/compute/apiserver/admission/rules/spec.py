"""All rules on the spec of an instance, in their order."""

from __future__ import annotations

from collections.abc import Iterator

from virtplane.api import feature_gates
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.compute.apiserver.admission.rules import (
    claims,
    compute,
    devices,
    disks,
    general,
    networks,
    placement,
    volumes,
)
from virtplane.serving.responses import Cause


def spec_causes(path: str, spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> Iterator[Cause]:
    """Everything wrong with a spec that lies under `path`."""
    yield from general.host_names(path, spec)
    yield from compute.memory(path, spec, config)
    yield from general.machine_type(path, spec, config)
    yield from devices.firmware_acpi(path, spec)
    yield from compute.cpu_resources(path, spec)
    yield from compute.dedicated_cpus(path, spec)
    yield from compute.numa(path, spec)
    yield from compute.cpu_settings(path, spec)
    yield from general.start_strategy(path, spec)
    yield from compute.realtime(path, spec)
    yield from placement.affinity(path, spec)
    yield from placement.topology_spread(path, spec)
    yield from networks.networks(path, spec, config)
    yield from claims.claims(path, spec, config)
    yield from disks.boot_order_and_volumes(path, spec, config)
    yield from devices.inputs(path, spec)
    yield from general.io_threads(path, spec)
    yield from general.probes(path, spec)
    yield from general.probes_need_pod_network(path, spec)
    yield from disk_causes(path, spec)
    yield from devices.firmware(path, spec.domain)
    yield from volumes.volumes(f"{path}.volumes", spec.volumes, config)
    yield from volumes.container_paths(path, spec)
    yield from volumes.credentials(path, spec)
    yield from general.dns(path, spec)
    yield from general.eviction_strategy(path, spec, config)
    yield from devices.mediated_displays(path, spec)
    yield from devices.host_devices(path, spec, config)
    yield from devices.sound(path, spec)
    yield from devices.launch_security(path, spec, config)
    yield from devices.gated(path, spec, config)
    yield from devices.video(path, spec)
    yield from devices.panic_devices(path, spec)
    yield from general.gated(path, spec, config)
    yield from general.service_account(path, spec)
    yield from general.utility_volumes(path, spec)


def disk_causes(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """The rules on disks alone."""
    return disks.disks(f"{path}.domain.devices.disks", spec.domain.devices.disks)


def storage_causes(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """What storage checks on its own before all the rest: disks, paths within images, utility volumes."""
    yield from disk_causes(path, spec)
    yield from volumes.container_paths(path, spec)
    yield from general.utility_volumes(path, spec)


def discontinued_gates(spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> Iterator[Cause]:
    """Removed features that are used while their gates are still listed."""
    cards = spec.domain.devices.interfaces
    plugins = {card.binding.name for card in cards if card.binding is not None}
    for gate, is_used in (
        ("Passt", "passt" in plugins or any(card.passt is not None for card in cards)),
        ("Macvtap", "macvtap" in plugins or any(card.macvtap is not None for card in cards)),
        ("ExperimentalVirtiofsSupport", bool(spec.domain.devices.filesystems)),
    ):
        if is_used and gate in config.enabled_gates:
            yield Cause(feature_gates.DISCONTINUED[gate], "")


def deprecation_warnings(spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> list[str]:
    """Warnings about deprecated gates that are listed."""
    if "MultiArchitecture" in config.enabled_gates and spec.architecture:
        return [feature_gates.DEPRECATED["MultiArchitecture"]]
    return []
