"""What a VM's template would get anyway, written out when its instance type is."""

from __future__ import annotations

from kubecore.json import JsonObject, get_list
from kubecore.objects.structs import decode
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec


def set_defaults(spec: JsonObject, config: ClusterConfig) -> None:
    """The disks, the interface and the eviction strategy that an instance of `spec` would get."""
    given = decode(VirtualMachineInstanceSpec, spec)
    present = given.domain.devices
    devices = spec["domain"].setdefault("devices", {})
    used = {disk.name for disk in present.disks} | {shared.name for shared in present.filesystems}
    added = [{"name": volume.name, "disk": {}} for volume in given.volumes if volume.name not in used]
    if added:
        devices["disks"] = [*get_list(devices, "disks"), *added]
    if present.autoattach_pod_interface is not False and not present.interfaces:
        devices["interfaces"] = [{"name": "default", config.default_network_interface: {}}]
        if not given.networks:
            spec["networks"] = [{"name": "default", "pod": {}}]
    spec.setdefault("evictionStrategy", config.eviction_strategy)
