"""Whether a machine has at least what its preference requires."""

from __future__ import annotations

from kubecore.json import JsonObject, get_int, get_object, get_str
from kubecore.objects.quantity import Quantity
from virtplane.instancetypes.topology import (
    ANY,
    CORES,
    SPREAD,
    THREADS,
    preferred_topology,
    spread_options,
)


def unmet_requirement(spec: JsonObject, instancetype: JsonObject | None, preference: JsonObject) -> str:
    """What is lacking, in words; empty where everything is there. `spec` is the instance's, defaulted."""
    required = get_object(preference, "requirements")
    return (
        _cpu(spec, instancetype, preference, get_int(required, "cpu", "guest"))
        or _memory(spec, instancetype, get_object(required, "memory").get("guest"))
        or _architecture(spec, get_str(required, "architecture"))
    )


def _cpu(spec: JsonObject, instancetype: JsonObject | None, preference: JsonObject, required: int) -> str:
    if not required:
        return ""
    if instancetype is not None:
        given = get_int(instancetype, "cpu", "guest")
        if given < required:
            return (
                f"insufficient CPU resources of {given} vCPU provided by instance type,"
                f" preference requires {required} vCPU"
            )
        return ""
    cpu = get_object(spec, "domain", "cpu")
    if not cpu:
        return f"no CPU resources provided by VirtualMachine, preference requires {required} vCPU"
    parts = {part: get_int(cpu, part) or 1 for part in ("sockets", "cores", "threads")}
    wanted = preferred_topology(preference)
    provided = parts["sockets"] * parts["cores"] * parts["threads"]
    how = "cores, sockets and threads"
    if wanted == SPREAD:
        across = spread_options(preference)[1]
        counted = {
            "SocketsCores": parts["sockets"] * parts["cores"],
            "CoresThreads": parts["cores"] * parts["threads"],
        }
        provided, how = counted.get(across, provided), across
    elif wanted in (THREADS, CORES):
        provided, how = parts[wanted], wanted
    elif wanted != ANY:
        provided, how = parts["sockets"], "sockets"
    if provided < required:
        return (
            f"insufficient CPU resources of {provided} vCPU provided by VirtualMachine,"
            f" preference requires {required} vCPU provided as {how}"
        )
    return ""


def _memory(spec: JsonObject, instancetype: JsonObject | None, required: str | int | None) -> str:
    if required is None:
        return ""
    source = "instance type" if instancetype is not None else "VirtualMachine"
    given = get_object(instancetype, "memory").get("guest") if instancetype is not None else None
    if instancetype is None:
        given = get_object(spec, "domain", "memory").get("guest")
    amount = Quantity.parse(given) if given is not None else Quantity.of(0)
    if amount < Quantity.parse(required):
        return (
            f"insufficient Memory resources of {amount} provided by {source},"
            f" preference requires {Quantity.parse(required)}"
        )
    return ""


def _architecture(spec: JsonObject, required: str) -> str:
    given = get_str(spec, "architecture")
    if required and given != required:
        return f"preference requires architecture {required} but {given} is being requested"
    return ""
