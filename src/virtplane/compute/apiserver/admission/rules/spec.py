"""All rules on the spec of an instance, in their order."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject, get_list, get_str
from virtplane.api import feature_gates
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission.response import Cause
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

_DISCONTINUED_GATES = (("Passt", "passt"), ("Macvtap", "macvtap"))


def spec_causes(path: str, spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
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
    yield from devices.firmware(path, spec)
    yield from volumes.volumes(f"{path}.volumes", get_list(spec, "volumes"), config)
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


def disk_causes(path: str, spec: JsonObject) -> Iterator[Cause]:
    """The rules on disks alone."""
    return disks.disks(f"{path}.domain.devices.disks", get_list(spec, "domain", "devices", "disks"))


def storage_causes(path: str, spec: JsonObject) -> Iterator[Cause]:
    """What storage checks on its own before all the rest: disks, paths within images, utility volumes."""
    yield from disk_causes(path, spec)
    yield from volumes.container_paths(path, spec)
    yield from general.utility_volumes(path, spec)


def discontinued_gates(spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    """Removed features that are used while their gates are still listed."""
    interfaces = get_list(spec, "domain", "devices", "interfaces")
    for gate, binding in _DISCONTINUED_GATES:
        uses = any(
            interface.get(binding) is not None or get_str(interface, "binding", "name") == binding
            for interface in interfaces
        )
        if uses and gate in config.enabled_gates:
            yield Cause(feature_gates.DISCONTINUED[gate], "")
    uses_virtiofs = bool(get_list(spec, "domain", "devices", "filesystems"))
    gate = "ExperimentalVirtiofsSupport"
    if uses_virtiofs and gate in config.enabled_gates:
        yield Cause(feature_gates.DISCONTINUED[gate], "")


def deprecation_warnings(spec: JsonObject, config: ClusterConfig) -> list[str]:
    """Warnings about deprecated gates that are listed."""
    if "MultiArchitecture" in config.enabled_gates and get_str(spec, "architecture"):
        return [feature_gates.DEPRECATED["MultiArchitecture"]]
    return []
