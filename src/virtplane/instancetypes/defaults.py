"""What an instance's spec gets where it says nothing.

Webhooks give it to instances; VMs whose instance type is expanded get it too, so that they tell what
would run.
"""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.objects.quantity import Quantity
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.api.markers import Quantity as Amount


class DefaultingError(Exception):
    """The installation's settings forbid a default that would have to be set."""


# What is there is read by its type; what is missing is put into the document, in which all else stays.


def default_spec(spec: JsonObject, config: ClusterConfig) -> None:
    """Architecture, machine, CPU, memory, images, strategy, network and disks.

    Raises DefaultingError, and UnfitDocument where `spec` is none.
    """
    present = decode(VirtualMachineInstanceSpec, spec)
    architecture = present.architecture or config.default_architecture
    spec["architecture"] = architecture
    given, domain = present.domain, spec.setdefault("domain", {})
    domain.setdefault("devices", {})
    if not given.machine.type:
        machine_type = config.machine_type(architecture)
        domain["machine"] = {**(domain.get("machine") or {}), "type": machine_type}
    resources = domain.setdefault("resources", {})
    requested = _cpu_request(given, config)
    if requested is not None:
        resources["requests"] = {**(resources.get("requests") or {}), "cpu": requested}
    memory = domain["memory"] = domain.get("memory") or {}
    guest = _guest_memory(given)
    if guest is not None:
        memory["guest"] = guest
    _default_topology(given, domain, requested)
    _default_pull_policies(present, spec)
    if present.eviction_strategy is None:
        spec["evictionStrategy"] = config.eviction_strategy
    _default_network(present, spec, config)
    _default_disks(present, spec)


def _cpu_request(domain: DomainSpec, config: ClusterConfig) -> Amount | None:
    """The CPU that is requested, as it is there or by default; None for none."""
    present, limit = domain.resources.requests.get("cpu"), domain.resources.limits.get("cpu")
    if present is not None or limit is not None:
        return limit if present is None else present
    if domain.cpu.dedicated_cpu_placement or Quantity.parse(config.cpu_request) == Quantity.parse("100m"):
        return None
    return config.cpu_request


def _guest_memory(domain: DomainSpec) -> Amount | None:
    """The guest's memory, as it is there or by default; None where nothing tells it."""
    if domain.memory.guest is not None:
        return domain.memory.guest
    requests, limits, hugepages = domain.resources.requests, domain.resources.limits, domain.memory.hugepages
    return requests.get("memory") or limits.get("memory") or (hugepages.page_size if hugepages else None)


def _default_topology(given: DomainSpec, domain: JsonObject, requested: Amount | None) -> None:
    if given.cpu.sockets or given.cpu.cores or given.cpu.threads:
        return
    sockets = max(1, _amount(given.resources.limits.get("cpu") or requested))
    domain["cpu"] = {**(domain.get("cpu") or {}), "sockets": sockets, "cores": 1, "threads": 1}


def _amount(text: Amount | None) -> int:
    """A quantity rounded up; 0 where it is absent or none."""
    try:
        return Quantity.parse(text).value if text is not None else 0
    except ValueError:
        return 0


def _default_pull_policies(present: VirtualMachineInstanceSpec, spec: JsonObject) -> None:
    for volume, document in zip(present.volumes, spec.get("volumes") or (), strict=True):
        disk = volume.container_disk
        if disk is not None and not disk.image_pull_policy:
            image = disk.image
            is_moving = image.endswith(":latest") or (":" not in image and "@" not in image)
            document["containerDisk"]["imagePullPolicy"] = "Always" if is_moving else "IfNotPresent"


def default_network(spec: JsonObject, config: ClusterConfig) -> None:
    """The pod network, where the spec neither names networks nor wants none. Raises like `default_spec`."""
    _default_network(decode(VirtualMachineInstanceSpec, spec), spec, config)


def _default_network(present: VirtualMachineInstanceSpec, spec: JsonObject, config: ClusterConfig) -> None:
    devices = present.domain.devices
    if devices.autoattach_pod_interface is False or present.networks or devices.interfaces:
        return
    binding = config.default_network_interface
    if binding == "bridge" and not config.permits_bridge_on_pod_network:
        raise DefaultingError("bridge interface is not enabled in kubevirt-config")
    if binding == "slirp":
        raise DefaultingError("slirp interface is deprecated as of v1.3")
    spec["domain"]["devices"]["interfaces"] = [{"name": "default", binding: {}}]
    spec["networks"] = [{"name": "default", "pod": {}}]


def default_disks(spec: JsonObject) -> None:
    """A disk for every volume that nothing shows to the guest. Raises UnfitDocument."""
    _default_disks(decode(VirtualMachineInstanceSpec, spec), spec)


def _default_disks(present: VirtualMachineInstanceSpec, spec: JsonObject) -> None:
    devices = present.domain.devices
    shown = {disk.name for disk in devices.disks} | {share.name for share in devices.filesystems}
    for volume in present.volumes:
        if volume.name not in shown:
            document = spec["domain"]["devices"]
            document["disks"] = [*(document.get("disks") or ()), {"name": volume.name}]
            shown.add(volume.name)
