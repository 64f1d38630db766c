"""What virt-handler reports of an instance: phase, conditions, interfaces, topology. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from kubecore.patch.diff import create_json_patch
from kubecore.patch.guarded import same_version
from virtplane.api.conditions import Condition
from virtplane.api.kubevirt_v1.domain import Machine
from virtplane.api.kubevirt_v1.networks import Interface
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.vmi_status import (
    VirtualMachineInstanceNetworkInterface,
    VirtualMachineInstancePhaseTransitionTimestamp,
    VirtualMachineInstanceStatus,
    VolumeStatus,
)
from virtplane.compute import amounts, plugging
from virtplane.compute.domain.disks import target_names
from virtplane.compute.handler.agent import support
from virtplane.compute.handler.agent.credentials import Outcome
from virtplane.compute.handler.agent.facts import GuestFacts
from virtplane.compute.handler.decisions import FINAL_PHASES, NOT_MIGRATABLE, Migratability, migratability
from virtplane.compute.handler.hotplug.plugs import Plugged
from virtplane.compute.handler.hotplug.reports import reported
from virtplane.compute.handler.hotplug.shape import Shape, current_topology, memory_status
from virtplane.compute.handler.libvirtd.agentanswers import THAWED, AgentInterface
from virtplane.compute.handler.libvirtd.calls import DomainState
from virtplane.compute.handler.network.cards import ABSENT, Card
from virtplane.compute.hotplug import started_disks
from virtplane.compute.podlinks import DOMAIN, GUEST_AGENT, MULTUS, sources

CREDENTIALS = "AccessCredentialsSynchronized"
SYNCHRONIZED = "Synchronized"
_PAUSE_REASONS = {
    "Paused": ("PausedByUser", "VMI was paused by user"),
    "IOError": ("PausedIOError", "VMI was paused, low-level IO error detected"),
    "Migration": ("PausedByMigrationMonitor", "VMI was paused by the migration monitor"),
}


@dataclass(frozen=True, slots=True)
class Report:
    """The inputs of the status."""

    phase: str
    domain: DomainState | None
    domain_known: bool
    """False where libvirt cannot be reached: what depends on the domain stays as it was reported."""
    facts: GuestFacts
    emulation: bool
    cards: Mapping[str, Card]
    """The guest's interfaces, by their names in the specification."""
    machine: str
    sync_error: tuple[str, str] | None
    """Reason and message of what went wrong, or None."""
    credentials: Outcome | None
    """How setting access credentials went; None where the agent has none to set."""
    now: str
    plugged: Plugged = field(default_factory=Plugged)
    shape: Shape | None = None
    """The CPUs and memory that run; None before libvirt was asked."""
    agent_versions: tuple[str, ...] = support.DEFAULT_VERSIONS
    """The versions of agents that are supported, as regular expressions."""
    memory_error: str = ""
    """Why memory could not be plugged, or the empty string."""
    cards_known: bool = True
    """False after a restart of virt-handler, until it has read which interfaces the guest has."""


def render(vmi: VirtualMachineInstance, report: Report) -> VirtualMachineInstanceStatus:
    """The new status. Parts that belong to other components are kept."""
    status = vmi.status
    if status.phase != report.phase:
        entered = VirtualMachineInstancePhaseTransitionTimestamp(
            phase=report.phase, phase_transition_timestamp=report.now
        )
        stamps = (*status.phase_transition_timestamps, entered)
        status = replace(status, phase=report.phase, phase_transition_timestamps=stamps)
    status = replace(status, conditions=_conditions(vmi, report))
    if report.domain_known and report.domain is not None and report.domain.is_active:
        status = _running(vmi, report, status)
    return status


def patch(vmi: VirtualMachineInstance, fresh: VirtualMachineInstanceStatus) -> list[JsonObject]:
    """The JSON patch that makes `fresh` the status of `vmi`; it fails if `vmi` was changed meanwhile.

    Items of lists are changed one by one, so that fields that this version does not know are kept.
    """
    before, after = ({"status": each} if each else {} for each in map(_document, (vmi.status, fresh)))
    return [*same_version({"metadata": encode(vmi.metadata)}), *create_json_patch(before, after)]


def _document(status: VirtualMachineInstanceStatus) -> JsonObject:
    """As KubeVirt writes it: conditions have a probe time, null where nothing was probed."""
    document = encode(status)
    for condition in document.get("conditions", ()):
        condition.setdefault("lastProbeTime", None)
    return document


def _conditions(vmi: VirtualMachineInstance, report: Report) -> tuple[Condition, ...]:
    conditions = list(vmi.status.conditions)
    if report.sync_error is not None:
        _set(conditions, SYNCHRONIZED, "False", *report.sync_error, report.now)
    elif report.phase not in FINAL_PHASES:  # of an instance that failed, the condition says why
        _remove(conditions, SYNCHRONIZED)
    if not report.domain_known:
        return tuple(conditions)
    if report.domain is None or not report.domain.is_active:
        _remove(conditions, "AgentConnected")
        _remove(conditions, support.CONDITION)
        _remove(conditions, "Paused")
        return tuple(conditions)
    found = migratability(vmi, emulation=report.emulation)
    _migratable(conditions, found, report.now)
    if report.facts.agent_connected:
        _set(conditions, "AgentConnected", "True", "", "", report.now)
    else:
        _remove(conditions, "AgentConnected")
    _agent_support(conditions, vmi, report)
    _plugged(conditions, vmi, report)
    if report.credentials is not None:
        verdict = "True" if report.credentials.succeeded else "False"
        _set(conditions, CREDENTIALS, verdict, "", report.credentials.message, report.now)
    paused = _PAUSE_REASONS.get(report.domain.reason) if report.domain.status == "Paused" else None
    if paused is not None:
        _set(conditions, "Paused", "True", *paused, report.now)
    else:
        _remove(conditions, "Paused")
    return tuple(conditions)


def _agent_support(conditions: list[Condition], vmi: VirtualMachineInstance, report: Report) -> None:
    facts = report.facts
    lack = support.shortcoming(vmi, facts.agent_version, facts.agent_commands, report.agent_versions)
    if facts.agent_connected and lack:
        _set(conditions, support.CONDITION, "True", lack, "", report.now)
    else:
        _remove(conditions, support.CONDITION)


def _plugged(conditions: list[Condition], vmi: VirtualMachineInstance, report: Report) -> None:
    """End the changes of CPUs and memory that the guest has now, and report one that failed."""
    if current_topology(vmi, report.shape).sockets == vmi.spec.domain.cpu.sockets:
        _remove(conditions, plugging.CPU_CHANGE)
    requested = memory_status(vmi, report.shape).guest_requested
    if report.memory_error:
        _set(
            conditions,
            plugging.MEMORY_CHANGE,
            "False",
            "Memory Hotplug Failed",
            report.memory_error,
            report.now,
        )
    elif amounts.to_bytes(requested) == amounts.to_bytes(vmi.spec.domain.memory.guest):
        _remove(conditions, plugging.MEMORY_CHANGE)


def _migratable(conditions: list[Condition], found: Migratability, now: str) -> None:
    verdict = "True" if found.possible else "False"
    _set(conditions, "LiveMigratable", verdict, found.reason, found.message, now)
    # Volumes move with the guest: what its disks lack is no obstacle to moving them.
    storage = "False" if found.obstacles else "True"
    texts = ", ".join(f"{each.reason}: {each.message}" for each in found.obstacles)
    _set(conditions, "StorageLiveMigratable", storage, NOT_MIGRATABLE if texts else "", texts, now)


def _set(conditions: list[Condition], kind: str, verdict: str, reason: str, message: str, now: str) -> None:
    """Set a condition. An equal one is left alone; one with the same status keeps its transition time."""
    fresh = Condition(
        type=kind,
        status=verdict,
        reason=reason or None,
        message=message or None,
        last_transition_time=now,
    )
    for index, known in enumerate(conditions):
        if known.type == kind:
            if not says_same(known, fresh):
                since = known.last_transition_time if known.status == verdict else None
                conditions[index] = replace(fresh, last_transition_time=since or now)
            return
    conditions.append(fresh)


def says_same(one: Condition, other: Condition) -> bool:
    """Whether two conditions differ in nothing but their times."""
    return (one.status, one.reason or "", one.message or "") == (
        other.status,
        other.reason or "",
        other.message or "",
    )


def condition(status: VirtualMachineInstanceStatus, kind: str) -> Condition | None:
    """The condition `kind`, or None."""
    return next((each for each in status.conditions if each.type == kind), None)


def _remove(conditions: list[Condition], kind: str) -> None:
    conditions[:] = [condition for condition in conditions if condition.type != kind]


def _running(
    vmi: VirtualMachineInstance, report: Report, status: VirtualMachineInstanceStatus
) -> VirtualMachineInstanceStatus:
    return replace(
        status,
        machine=Machine(type=report.machine) if report.machine else status.machine or Machine(),
        migration_method=migratability(vmi, emulation=report.emulation).method,
        migration_transport="Unix",
        selinux_context=status.selinux_context or "none",
        current_cpu_topology=current_topology(vmi, report.shape),
        memory=memory_status(vmi, report.shape),
        interfaces=interfaces(vmi, report) if report.cards_known else status.interfaces,
        guest_os_info=report.facts.os_info,
        volume_status=_with_targets(vmi, report.plugged),
        fs_freeze_status=_freeze_status(report.facts, status),
    )


def _freeze_status(facts: GuestFacts, status: VirtualMachineInstanceStatus) -> str | None:
    """Only a freeze is reported; what was reported stays while the agent says nothing."""
    if not facts.freeze_state:
        return status.fs_freeze_status
    return facts.freeze_state if facts.freeze_state != THAWED else None


def _with_targets(vmi: VirtualMachineInstance, plugged: Plugged) -> tuple[VolumeStatus, ...]:
    """Set the target device of each volume. virt-controller adds and removes the entries."""
    known = {entry.name: entry.target for entry in vmi.status.volume_status if entry.target}
    return reported(vmi, target_names(started_disks(vmi, plugged.in_pod), known), plugged)


def interfaces(
    vmi: VirtualMachineInstance, report: Report
) -> tuple[VirtualMachineInstanceNetworkInterface, ...]:
    """The guest's interfaces: those of the spec first, with data of the guest agent, then those that only the
    agent reports. Whether the pod is on a network is virt-controller's to say, and kept.
    """
    by_mac = {item.mac.lower(): item for item in report.facts.agent_interfaces}
    before = {item.name: item for item in vmi.status.interfaces if item.name}
    rendered = []
    for interface in vmi.spec.domain.devices.interfaces:
        known = before.get(interface.name)
        on_network = known is not None and MULTUS in sources(known)
        card = report.cards.get(interface.name)
        if card is not None:
            seen = by_mac.pop(card.mac.lower(), None)
            rendered.append(_entry(interface, card, seen, on_network=on_network))
        elif known is not None and (on_network or interface.state != ABSENT):
            # The guest is not there: not yet, or not any more. What virt-controller says of the pod stays.
            rendered.append(
                VirtualMachineInstanceNetworkInterface(
                    name=known.name,
                    info_source=MULTUS if on_network else None,
                    pod_interface_name=known.pod_interface_name,
                )
            )
    return (*rendered, *_guest_only(by_mac.values()))


def _entry(
    interface: Interface, card: Card, seen: AgentInterface | None, *, on_network: bool
) -> VirtualMachineInstanceNetworkInterface:
    addresses = card.addresses
    if seen is not None and interface.masquerade is None:
        addresses = _primary_first(seen.addresses, addresses) or addresses
    known = {DOMAIN: True, GUEST_AGENT: seen is not None, MULTUS: on_network}
    return VirtualMachineInstanceNetworkInterface(
        name=interface.name,
        mac=card.mac,
        queue_count=card.queues,
        pod_interface_name=card.pod_interface,
        info_source=", ".join(source for source, is_one in known.items() if is_one),
        link_state="up" if card.is_up else "down",
        interface_name=seen.name if seen is not None else None,
        ip_address=addresses[0] if addresses else None,
        ip_addresses=addresses,
    )


def _primary_first(found: Sequence[str], primary: Sequence[str]) -> tuple[str, ...]:
    """The guest's addresses, beginning with those by which the cluster knows it."""
    return tuple(sorted(found, key=lambda address: address not in primary))


def _guest_only(found: Iterable[AgentInterface]) -> Iterator[VirtualMachineInstanceNetworkInterface]:
    """Up to ten interfaces that only the guest agent reports (bridges, VPNs)."""
    for item in list(found)[:10]:
        addresses = tuple(text for text in item.addresses if not ipaddress.ip_address(text).is_loopback)
        yield VirtualMachineInstanceNetworkInterface(
            interface_name=item.name,
            mac=item.mac,
            info_source="guest-agent",
            ip_address=addresses[0] if addresses else None,
            ip_addresses=addresses,
        )


def is_reported(vmi: VirtualMachineInstance, reason: str, message: str) -> bool:
    """Whether the condition Synchronized has this error already; a failing step is repeated every second."""
    known = condition(vmi.status, SYNCHRONIZED)
    return known is not None and (known.reason, known.message) == (reason, message)
