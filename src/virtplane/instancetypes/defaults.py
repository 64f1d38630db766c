"""What a VM's template would get anyway, written out when its instance type is."""

from __future__ import annotations

from kubecore.json import JsonObject, get_list
from virtplane.api.config import ClusterConfig


def set_defaults(spec: JsonObject, config: ClusterConfig) -> None:
    """The disks, the interface and the eviction strategy that an instance of `spec` would get."""
    devices = spec["domain"].setdefault("devices", {})
    used = {item.get("name") for item in [*get_list(devices, "disks"), *get_list(devices, "filesystems")]}
    missing = [item for item in get_list(spec, "volumes") if item.get("name") not in used]
    if missing:
        added = [{"name": item.get("name"), "disk": {}} for item in missing]
        devices["disks"] = [*get_list(devices, "disks"), *added]
    if devices.get("autoattachPodInterface") is not False and not get_list(devices, "interfaces"):
        devices["interfaces"] = [{"name": "default", config.default_network_interface: {}}]
        if not get_list(spec, "networks"):
            spec["networks"] = [{"name": "default", "pod": {}}]
    spec.setdefault("evictionStrategy", config.eviction_strategy)
