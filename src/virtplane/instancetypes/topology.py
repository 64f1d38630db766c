"""How a number of virtual CPUs becomes sockets, cores and threads."""

from __future__ import annotations

from collections.abc import Mapping

from kubecore.json import JsonObject, get_int, get_object, get_str

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


def preferred_topology(preference: JsonObject | None) -> str:
    """The topology that a preference asks for; sockets when it asks for none."""
    name = get_str(preference, "cpu", "preferredCPUTopology") or SOCKETS
    return OLD_NAMES.get(name, name)


def spread_options(preference: JsonObject | None) -> tuple[int, str]:
    """Ratio and parts over which virtual CPUs are spread."""
    options = get_object(preference, "cpu", "spreadOptions")
    ratio = get_int(options, "ratio") or get_int(preference, "preferSpreadSocketToCoreRatio") or DEFAULT_RATIO
    across = get_str(options, "across") or SPREAD_OVER[0]
    return (DEFAULT_RATIO if across == "CoresThreads" and not get_int(options, "ratio") else ratio), across


def topology(count: int, preference: JsonObject | None) -> dict[str, int]:
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
