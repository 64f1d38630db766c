"""How a number of virtual CPUs becomes sockets, cores and threads."""

from __future__ import annotations

from collections.abc import Mapping

from virtplane.api.instancetype_v1beta1.preference import VirtualMachinePreferenceSpec

SOCKETS, CORES, THREADS, SPREAD, ANY = "sockets", "cores", "threads", "spread", "any"
OLD_NAMES: Mapping[str, str] = {
    "preferSockets": SOCKETS,
    "preferCores": CORES,
    "preferThreads": THREADS,
    "preferSpread": SPREAD,
    "preferAny": ANY,
}
"""Deprecated names of topologies."""
DEFAULT_RATIO = 2
SPREAD_OVER = ("SocketsCores", "CoresThreads", "SocketsCoresThreads")


class TopologyError(Exception):
    """The virtual CPUs cannot be spread evenly."""


def preferred_topology(preference: VirtualMachinePreferenceSpec | None) -> str:
    """The topology that a preference asks for; sockets when it asks for none."""
    name = (preference.cpu.preferred_cpu_topology if preference is not None else None) or SOCKETS
    return OLD_NAMES.get(name, name)


def spread_options(preference: VirtualMachinePreferenceSpec | None) -> tuple[int, str]:
    """Ratio and parts over which virtual CPUs are spread."""
    given = preference or VirtualMachinePreferenceSpec()
    options = given.cpu.spread_options
    across = options.across or SPREAD_OVER[0]
    if across == "CoresThreads":
        return options.ratio or DEFAULT_RATIO, across
    return options.ratio or given.prefer_spread_socket_to_core_ratio or DEFAULT_RATIO, across


def topology(count: int, preference: VirtualMachinePreferenceSpec | None) -> dict[str, int]:
    """Sockets, cores and threads of `count` virtual CPUs. Raises TopologyError."""
    wanted = preferred_topology(preference)
    if count <= 1:
        return {"sockets": 1, "cores": 1, "threads": 1}
    if wanted == SPREAD:
        return _spread(count, *spread_options(preference))
    part = SOCKETS if wanted == ANY else wanted
    return {"sockets": 1, "cores": 1, "threads": 1, part: count}


def _spread(count: int, ratio: int, across: str) -> dict[str, int]:
    provided = f"{count} vCPUs provided by the instance type are not divisible by the"
    ratio_fields = "Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio"
    if across == "CoresThreads":
        if count % ratio:
            raise TopologyError(f"{provided} number of threads per core {ratio}")
        return {"sockets": 1, "cores": count // ratio, "threads": ratio}
    if across == "SocketsCoresThreads":
        if count % (2 * ratio):
            raise TopologyError(f"{provided} number of threads per core 2 and {ratio_fields} of {ratio}")
        return {"sockets": count // 2 // ratio, "cores": ratio, "threads": 2}
    if count % ratio:
        raise TopologyError(f"{provided} {ratio_fields} of {ratio} provided by the preference")
    return {"sockets": count // ratio, "cores": ratio, "threads": 1}
