"""Distributes a number of virtual CPUs over sockets, cores and threads."""

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
THREADS_PER_CORE = 2
SPREAD_OVER = ("SocketsCores", "CoresThreads", "SocketsCoresThreads")


def preferred_topology(preference: VirtualMachinePreferenceSpec | None) -> str:
    """The topology that a preference asks for; sockets by default."""
    name = (preference.cpu.preferred_cpu_topology if preference is not None else None) or SOCKETS
    return OLD_NAMES.get(name, name)


def spread_options(preference: VirtualMachinePreferenceSpec | None) -> tuple[int, str]:
    """The ratio, and the parts of the topology over which virtual CPUs are spread."""
    given = preference or VirtualMachinePreferenceSpec()
    options = given.cpu.spread_options
    ratio = options.ratio or given.prefer_spread_socket_to_core_ratio or DEFAULT_RATIO
    return ratio, options.across or SPREAD_OVER[0]


def topology(count: int, preference: VirtualMachinePreferenceSpec | None) -> dict[str, int]:
    """Sockets, cores and threads of `count` virtual CPUs, without what cannot be spread evenly."""
    wanted = preferred_topology(preference)
    if count <= 1:
        return {"sockets": 1, "cores": 1, "threads": 1}
    if wanted == SPREAD:
        return _spread(count, *spread_options(preference))
    part = SOCKETS if wanted == ANY else wanted
    return {"sockets": 1, "cores": 1, "threads": 1, part: count}


def _spread(count: int, ratio: int, across: str) -> dict[str, int]:
    if across == "CoresThreads":
        return {"sockets": 1, "cores": count // ratio, "threads": ratio}
    if across == "SocketsCoresThreads":
        return {"sockets": count // THREADS_PER_CORE // ratio, "cores": ratio, "threads": THREADS_PER_CORE}
    return {"sockets": count // ratio, "cores": ratio, "threads": 1}


def spread_problem(count: int, preference: VirtualMachinePreferenceSpec | None) -> str:
    """Why `count` virtual CPUs cannot be spread evenly as preferred; empty if they can."""
    if preferred_topology(preference) != SPREAD:
        return ""
    ratio, across = spread_options(preference)
    provided = f"{count} vCPUs provided by the instance type are not divisible by the"
    ratio_fields = f"Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of {ratio}"
    if across == "CoresThreads":
        return f"{provided} number of threads per core {ratio}" if count % ratio else ""
    if across == "SocketsCoresThreads":
        threads = f"number of threads per core {THREADS_PER_CORE}"
        return f"{provided} {threads} and {ratio_fields}" if count % (THREADS_PER_CORE * ratio) else ""
    return f"{provided} {ratio_fields} provided by the preference" if count % ratio else ""
