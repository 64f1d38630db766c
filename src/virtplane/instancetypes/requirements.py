"""Whether a machine has at least what its preference requires."""

from __future__ import annotations

from kubecore.objects.quantity import Quantity
from virtplane.api.instancetype_v1beta1.instancetype import VirtualMachineInstancetypeSpec
from virtplane.api.instancetype_v1beta1.preference import VirtualMachinePreferenceSpec
from virtplane.api.kubevirt_v1.cpu import CPU
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.instancetypes.topology import (
    ANY,
    CORES,
    SPREAD,
    THREADS,
    preferred_topology,
    spread_options,
)


def unmet_requirement(
    spec: VirtualMachineInstanceSpec,
    instancetype: VirtualMachineInstancetypeSpec | None,
    preference: VirtualMachinePreferenceSpec,
) -> str:
    """What is lacking, in words; empty where everything is there. `spec` is the instance's, defaulted."""
    required = preference.requirements
    return (
        _cpu(spec, instancetype, preference, required.cpu.guest if required.cpu is not None else 0)
        or _memory(spec, instancetype, required.memory.guest if required.memory is not None else None)
        or _architecture(spec.architecture or "", required.architecture or "")
    )


def _cpu(
    spec: VirtualMachineInstanceSpec,
    instancetype: VirtualMachineInstancetypeSpec | None,
    preference: VirtualMachinePreferenceSpec,
    required: int,
) -> str:
    if not required:
        return ""
    if instancetype is not None:
        given = instancetype.cpu.guest
        if given < required:
            return (
                f"insufficient CPU resources of {given} vCPU provided by instance type,"
                f" preference requires {required} vCPU"
            )
        return ""
    cpu = spec.domain.cpu
    if cpu == CPU():
        return f"no CPU resources provided by VirtualMachine, preference requires {required} vCPU"
    parts = {"sockets": cpu.sockets or 1, "cores": cpu.cores or 1, "threads": cpu.threads or 1}
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


def _memory(
    spec: VirtualMachineInstanceSpec,
    instancetype: VirtualMachineInstancetypeSpec | None,
    required: str | int | None,
) -> str:
    if required is None:
        return ""
    source = "instance type" if instancetype is not None else "VirtualMachine"
    given = instancetype.memory.guest if instancetype is not None else spec.domain.memory.guest
    amount = Quantity.parse(given) if given is not None else Quantity.of(0)
    if amount < Quantity.parse(required):
        return (
            f"insufficient Memory resources of {amount} provided by {source},"
            f" preference requires {Quantity.parse(required)}"
        )
    return ""


def _architecture(given: str, required: str) -> str:
    if required and given != required:
        return f"preference requires architecture {required} but {given} is being requested"
    return ""
