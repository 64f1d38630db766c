"""Checks that a VM meets the minimum requirements of its preference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kubecore.objects.quantity import Quantity
from virtplane.api.instancetype_v1beta1.instancetype import VirtualMachineInstancetypeSpec
from virtplane.api.instancetype_v1beta1.preference import VirtualMachinePreferenceSpec
from virtplane.api.kubevirt_v1.cpu import CPU
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.instancetypes.topology import (
    ANY,
    CORES,
    SOCKETS,
    SPREAD,
    THREADS,
    preferred_topology,
    spread_options,
)

_TEMPLATE = "spec.template.spec"
_ALL_PARTS = (CORES, SOCKETS, THREADS)
_SPREAD_PARTS: Mapping[str, tuple[str, ...]] = {
    "SocketsCores": (SOCKETS, CORES),
    "CoresThreads": (CORES, THREADS),
    "SocketsCoresThreads": (SOCKETS, CORES, THREADS),
}


@dataclass(frozen=True, slots=True)
class Unmet:
    """An unmet requirement: the message, and the fields that would have to be larger."""

    problem: str
    fields: tuple[str, ...]


def unmet_requirement(
    spec: VirtualMachineInstanceSpec,
    instancetype: VirtualMachineInstancetypeSpec | None,
    preference: VirtualMachinePreferenceSpec,
) -> Unmet | None:
    """The first requirement that is not met; None where everything is there.

    `spec` is the instance's, with instance type, preference and defaults.
    """
    required = preference.requirements
    return (
        _cpu(spec.domain.cpu, instancetype, preference, required.cpu.guest if required.cpu is not None else 0)
        or _memory(spec, instancetype, required.memory.guest if required.memory is not None else None)
        or _architecture(spec.architecture or "", required.architecture or "")
    )


def _cpu(
    cpu: CPU,
    instancetype: VirtualMachineInstancetypeSpec | None,
    preference: VirtualMachinePreferenceSpec,
    required: int,
) -> Unmet | None:
    if instancetype is not None:
        given = instancetype.cpu.guest
        if given >= required:
            return None
        problem = (
            f"insufficient CPU resources of {given} vCPU provided by instance type,"
            f" preference requires {required} vCPU"
        )
        return Unmet(problem, ("spec.instancetype",))
    parts, how = _counted_parts(preference)
    counts = {SOCKETS: cpu.sockets or 0, CORES: cpu.cores or 0, THREADS: cpu.threads or 0}
    provided = 1
    for part in parts:
        provided *= counts[part]
    if provided >= required:
        return None
    problem = (
        f"insufficient CPU resources of {provided} vCPU provided by VirtualMachine,"
        f" preference requires {required} vCPU provided as {how}"
    )
    return Unmet(problem, tuple(f"{_TEMPLATE}.domain.cpu.{part}" for part in parts))


def _counted_parts(preference: VirtualMachinePreferenceSpec) -> tuple[tuple[str, ...], str]:
    """The parts of the topology that count towards the required CPUs, and their names in messages."""
    wanted = preferred_topology(preference)
    if wanted == ANY:
        return _ALL_PARTS, "cores, sockets and threads"
    if wanted == SPREAD:
        across = spread_options(preference)[1]
        return _SPREAD_PARTS.get(across, _ALL_PARTS), across
    return (wanted,), wanted


def _memory(
    spec: VirtualMachineInstanceSpec,
    instancetype: VirtualMachineInstancetypeSpec | None,
    required: str | int | None,
) -> Unmet | None:
    if required is None:
        return None
    source, field = "VirtualMachine", f"{_TEMPLATE}.domain.memory"
    given = spec.domain.memory.guest
    if instancetype is not None:
        source, field = "instance type", "spec.instancetype"
        given = instancetype.memory.guest if given is None else given
    amount = Quantity.parse(given) if given is not None else Quantity.of(0)
    if amount >= Quantity.parse(required):
        return None
    problem = (
        f"insufficient Memory resources of {amount} provided by {source},"
        f" preference requires {Quantity.parse(required)}"
    )
    return Unmet(problem, (field,))


def _architecture(given: str, required: str) -> Unmet | None:
    if not required or given == required:
        return None
    problem = f"preference requires architecture {required} but {given} is being requested"
    return Unmet(problem, (f"{_TEMPLATE}.architecture",))
