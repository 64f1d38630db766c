"""Instance types and preferences, of a namespace or of the cluster."""

from __future__ import annotations

from collections.abc import Iterator

from kubecore.json import JsonObject, get_int, get_object, get_str
from virtplane.compute.apiserver.admission.request import Request
from virtplane.instancetypes import topology
from virtplane.serving.responses import Cause, Response

_TOPOLOGIES = (topology.SOCKETS, topology.CORES, topology.THREADS, topology.SPREAD, topology.ANY)
_LAUNCH_SECURITY = (
    "launchSecurity is deprecated and will be removed in a future release. Use preference instead."
)


async def validate_instancetype(request: Request) -> Response:
    """Overcommitment must be within bounds, and excludes huge pages."""
    request.expect("virtualmachineinstancetypes", "virtualmachineclusterinstancetypes")
    spec = get_object(request.new, "spec")
    found = list(_memory(get_object(spec, "memory")))
    if found:
        return Response.refuse(found)
    return Response.allow([_LAUNCH_SECURITY] if spec.get("launchSecurity") is not None else [])


def _memory(memory: JsonObject) -> Iterator[Cause]:
    percent, field = get_int(memory, "overcommitPercent"), "spec.memory.overcommitPercent"
    if not 0 <= percent <= 100:
        yield Cause(f"{field} '{percent}': must be in range between 0 and 100.", field)
    if percent and memory.get("hugepages") is not None:
        yield Cause(f"{field} and spec.memory.hugepages should not be requested together.", field)


async def validate_preference(request: Request) -> Response:
    """A known topology, spread in a way that exists."""
    request.expect("virtualmachinepreferences", "virtualmachineclusterpreferences")
    cpu = get_object(request.new, "spec", "cpu")
    found = list(_topology(cpu))
    if found:
        return Response.refuse(found)
    wanted = get_str(cpu, "preferredCPUTopology")
    new_name = topology.OLD_NAMES.get(wanted)
    if new_name is None:
        return Response.allow()
    return Response.allow(
        [
            f"PreferredCPUTopology {wanted} is deprecated for removal in a future release,"
            f" please use {new_name} instead"
        ]
    )


def _topology(cpu: JsonObject) -> Iterator[Cause]:
    wanted = get_str(cpu, "preferredCPUTopology")
    if wanted and wanted not in _TOPOLOGIES and wanted not in topology.OLD_NAMES:
        yield Cause(f"unknown preferredCPUTopology {wanted}", "spec.cpu.preferredCPUTopology")
        return
    if topology.OLD_NAMES.get(wanted, wanted) != topology.SPREAD:
        return
    options = get_object(cpu, "spreadOptions")
    across, ratio = get_str(options, "across"), get_int(options, "ratio")
    if across and across not in topology.SPREAD_OVER:
        yield Cause(f"across {across} is not supported", "spec.cpu.spreadOptions.across")
    if across == "CoresThreads" and ratio and ratio != 2:
        yield Cause(
            "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads",
            "spec.cpu.spreadOptions.ratio",
        )
