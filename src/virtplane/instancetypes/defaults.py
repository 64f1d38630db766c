"""What an instance's spec gets where it says nothing.

Webhooks give it to instances; VMs whose instance type is expanded get it too, so that they tell what
would run.
"""

from __future__ import annotations

from kubecore.json import JsonObject, get_bool, get_int, get_list, get_object, get_str
from kubecore.objects.quantity import Quantity
from virtplane.api.config import ClusterConfig


class DefaultingError(Exception):
    """The installation's settings forbid a default that would have to be set."""


def default_spec(spec: JsonObject, config: ClusterConfig) -> None:
    """Architecture, machine, CPU, memory, images, strategy, network and disks.

    Raises DefaultingError.
    """
    if not get_str(spec, "architecture"):
        spec["architecture"] = config.default_architecture
    domain = spec.setdefault("domain", {})
    domain.setdefault("devices", {})
    if not get_str(domain, "machine", "type"):
        domain["machine"] = {
            **get_object(domain, "machine"),
            "type": config.machine_type(spec["architecture"]),
        }
    domain.setdefault("resources", {})
    _default_cpu_request(domain, config)
    _default_memory(domain)
    _default_topology(domain)
    _default_pull_policies(spec)
    if spec.get("evictionStrategy") is None:
        spec["evictionStrategy"] = config.eviction_strategy
    default_network(spec, config)
    default_disks(spec)


def _default_cpu_request(domain: JsonObject, config: ClusterConfig) -> None:
    resources = domain["resources"]
    limit = get_object(resources, "limits").get("cpu")
    if limit is not None and get_object(resources, "requests").get("cpu") is None:
        resources.setdefault("requests", {})["cpu"] = limit
    dedicated = get_bool(domain, "cpu", "dedicatedCpuPlacement")
    request = get_object(resources, "requests").get("cpu")
    if request is None and not dedicated and Quantity.parse(config.cpu_request) != Quantity.parse("100m"):
        resources.setdefault("requests", {})["cpu"] = config.cpu_request


def _default_memory(domain: JsonObject) -> None:
    memory = get_object(domain, "memory")
    if memory.get("guest") is not None:
        return
    resources = domain["resources"]
    amount = (
        get_object(resources, "requests").get("memory")
        or get_object(resources, "limits").get("memory")
        or get_object(memory, "hugepages").get("pageSize")
    )
    domain["memory"] = {**memory, "guest": amount} if amount is not None else memory


def _default_topology(domain: JsonObject) -> None:
    cpu = get_object(domain, "cpu")
    if any(get_int(cpu, part) for part in ("sockets", "cores", "threads")):
        return
    resources = domain["resources"]
    amount = get_object(resources, "limits").get("cpu") or get_object(resources, "requests").get("cpu")
    sockets = max(1, _amount(amount))
    domain["cpu"] = {**cpu, "sockets": sockets, "cores": 1, "threads": 1}


def _amount(text: str | float | None) -> int:
    """A quantity rounded up; 0 if it is absent or invalid."""
    try:
        return Quantity.parse(text).value if text is not None else 0
    except ValueError:
        return 0


def _default_pull_policies(spec: JsonObject) -> None:
    for volume in get_list(spec, "volumes"):
        disk = volume.get("containerDisk")
        if isinstance(disk, dict) and not disk.get("imagePullPolicy"):
            image = get_str(disk, "image")
            is_moving = image.endswith(":latest") or (":" not in image and "@" not in image)
            disk["imagePullPolicy"] = "Always" if is_moving else "IfNotPresent"


def default_network(spec: JsonObject, config: ClusterConfig) -> None:
    """The pod network, unless the spec names networks or disables it. Raises DefaultingError."""
    devices = spec["domain"]["devices"]
    if devices.get("autoattachPodInterface") is False:
        return
    if get_list(spec, "networks") or get_list(devices, "interfaces"):
        return
    binding = config.default_network_interface
    if binding == "bridge" and not config.permits_bridge_on_pod_network:
        raise DefaultingError("bridge interface is not enabled in kubevirt-config")
    if binding == "slirp":
        raise DefaultingError("slirp interface is deprecated as of v1.3")
    devices["interfaces"] = [{"name": "default", binding: {}}]
    spec["networks"] = [{"name": "default", "pod": {}}]


def default_disks(spec: JsonObject) -> None:
    """A disk for every volume that has none."""
    devices = spec["domain"]["devices"]
    shown = {get_str(entry, "name") for key in ("disks", "filesystems") for entry in get_list(devices, key)}
    for volume in get_list(spec, "volumes"):
        name = get_str(volume, "name")
        if name not in shown:
            devices.setdefault("disks", []).append({"name": name})
            shown.add(name)
