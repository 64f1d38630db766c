"""Fields that are accepted, because users of KubeVirt have them, but that nothing acts upon yet.

Whoever sets one is warned when the object is written. An entry goes as soon as the field is acted upon.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubecore.json import JsonObject

NOT_ACTED_UPON: tuple[str, ...] = (
    "domain.chassis.asset",
    "domain.chassis.sku",
    "domain.cpu.isolateEmulatorThread",
    "domain.cpu.numa",
    "domain.cpu.realtime",
    "domain.devices.autoattachVSOCK",
    "domain.devices.blockMultiQueue",
    "domain.devices.disks[].blockSize",
    "domain.devices.disks[].disk.pciAddress",
    "domain.devices.disks[].tag",
    "domain.devices.downwardMetrics",
    "domain.devices.filesystems",
    "domain.devices.gpus",
    "domain.devices.hostDevices",
    "domain.devices.interfaces[].acpiIndex",
    "domain.devices.interfaces[].binding",
    "domain.devices.interfaces[].passtBinding",
    "domain.devices.interfaces[].pciAddress",
    "domain.devices.interfaces[].portRanges",
    "domain.devices.interfaces[].sriov",
    "domain.devices.interfaces[].tag",
    "domain.devices.networkInterfaceMultiqueue",
    "domain.devices.panicDevices",
    "domain.features.hyperv.tlbflush.extended",
    "domain.features.hypervPassthrough",
    "domain.firmware.acpi",
    "domain.firmware.kernelBoot",
    "domain.ioThreads",
    "domain.ioThreadsPolicy",
    "domain.launchSecurity",
    "networks[].multus",
    "networks[].pod.vmIPv6NetworkCIDR",
    "networks[].resourceClaim",
    "volumes[].containerPath",
    "volumes[].downwardMetrics",
    "volumes[].memoryDump",
)
"""Paths within the spec of an instance."""


def unsupported_warnings(path: str, spec: JsonObject, patterns: Sequence[str] = NOT_ACTED_UPON) -> list[str]:
    """One warning for each field of `spec`, which lies under `path`, that has no effect."""
    return [
        f"{found} is accepted, but has no effect in this version"
        for pattern in patterns
        for found in _found(path, spec, pattern.split("."))
    ]


def _found(path: str, value: Any, parts: list[str]) -> Iterator[str]:
    if not parts:
        if value not in (None, False, "", [], {}) or isinstance(value, dict):
            yield path
        return
    part, *rest = parts
    name = part.removesuffix("[]")
    if not isinstance(value, dict) or value.get(name) is None:
        return
    if part.endswith("[]"):
        for index, item in enumerate(value[name]):
            yield from _found(f"{path}.{name}[{index}]", item, rest)
    else:
        yield from _found(f"{path}.{name}", value[name], rest)
