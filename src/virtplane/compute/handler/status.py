"""What virt-handler reports of an instance: phase, conditions, interfaces, topology. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from kubecore.json import JsonObject, deep_copy, get_list, get_object, get_str
from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain.disks import target_names
from virtplane.compute.domain.processor import memory_bytes, topology
from virtplane.compute.handler.credentials import Outcome
from virtplane.compute.handler.decisions import Migratability, migratability
from virtplane.compute.handler.libvirtcalls import DomainState
from virtplane.compute.hotplug import permanent_disks

CREDENTIALS = "AccessCredentialsSynchronized"
_PAUSE_REASONS = {
    "Paused": ("PausedByUser", "VMI was paused by user"),
    "IOError": ("PausedIOError", "VMI was paused, IO error"),
    "Migration": ("PausedByMigrationMonitor", "VMI was paused, migration monitor"),
}


@dataclass(frozen=True, slots=True)
class GuestFacts:
    """What is known of the guest beyond its domain's state."""

    agent_connected: bool = False
    os_info: JsonObject = field(default_factory=dict)
    agent_interfaces: tuple[JsonObject, ...] = ()
    """``name``, ``mac`` and ``addresses`` as the guest agent reports them."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that the status is made of."""

    phase: str
    domain: DomainState | None
    domain_known: bool
    """False where libvirt cannot be reached: what depends on the domain stays as it was reported."""
    facts: GuestFacts
    emulation: bool
    macs: dict[str, str]
    """MAC of each wired interface, by its name in the specification."""
    pod_addresses: tuple[str, ...]
    machine: str
    sync_error: tuple[str, str] | None
    """Reason and message of what went wrong, or None."""
    credentials: Outcome | None
    """How setting access credentials went; None where the agent has none to set."""
    now: str


def render(vmi: JsonObject, report: Report) -> JsonObject:
    """The status after this look at the guest. Parts that others own are kept."""
    status = deep_copy(get_object(vmi, "status"))
    if status.get("phase") != report.phase:
        status["phase"] = report.phase
        stamps = status.setdefault("phaseTransitionTimestamps", [])
        stamps.append({"phase": report.phase, "phaseTransitionTimestamp": report.now})
    conditions: list[JsonObject] = status.setdefault("conditions", [])
    _conditions(vmi, report, conditions)
    if report.domain_known and report.domain is not None and report.domain.is_active:
        _running(vmi, report, status)
    return status


def _conditions(vmi: JsonObject, report: Report, conditions: list[JsonObject]) -> None:
    if report.sync_error is not None:
        reason, message = report.sync_error
        _set(conditions, "Synchronized", "False", reason, message, report.now)
    else:
        _remove(conditions, "Synchronized")
    if not report.domain_known:
        return
    active = report.domain is not None and report.domain.is_active
    if not active:
        _remove(conditions, "AgentConnected")
        _remove(conditions, "Paused")
        return
    assert report.domain is not None
    found = migratability(vmi, emulation=report.emulation)
    _migratable(conditions, found, report.now)
    if report.facts.agent_connected:
        _set(conditions, "AgentConnected", "True", "", "", report.now)
    else:
        _remove(conditions, "AgentConnected")
    if report.credentials is not None:
        verdict = "True" if report.credentials.succeeded else "False"
        _set(conditions, CREDENTIALS, verdict, "", report.credentials.message, report.now)
    paused = _PAUSE_REASONS.get(report.domain.reason) if report.domain.status == "Paused" else None
    if paused is not None:
        _set(conditions, "Paused", "True", *paused, report.now)
    else:
        _remove(conditions, "Paused")


def _migratable(conditions: list[JsonObject], found: Migratability, now: str) -> None:
    verdict = "True" if found.possible else "False"
    _set(conditions, "LiveMigratable", verdict, found.reason, found.message, now)
    storage = "False" if found.reason == "DisksNotLiveMigratable" else "True"
    reason, message = (found.reason, found.message) if storage == "False" else ("", "")
    _set(conditions, "StorageLiveMigratable", storage, reason, message, now)


def _set(conditions: list[JsonObject], kind: str, verdict: str, reason: str, message: str, now: str) -> None:
    fresh: JsonObject = {"type": kind, "status": verdict}
    if reason:
        fresh["reason"] = reason
    if message:
        fresh["message"] = message
    for index, condition in enumerate(conditions):
        if condition.get("type") != kind:
            continue
        same = all(condition.get(key, "") == fresh.get(key, "") for key in ("status", "reason", "message"))
        if not same:
            unchanged = condition.get("status") == verdict
            since = condition.get("lastTransitionTime", now) if unchanged else now
            conditions[index] = fresh | {"lastProbeTime": None, "lastTransitionTime": since}
        return
    conditions.append(fresh | {"lastProbeTime": None, "lastTransitionTime": now})


def _remove(conditions: list[JsonObject], kind: str) -> None:
    conditions[:] = [condition for condition in conditions if condition.get("type") != kind]


def _running(vmi: JsonObject, report: Report, status: JsonObject) -> None:
    domain = get_object(vmi, "spec", "domain")
    status["machine"] = {"type": report.machine} if report.machine else status.get("machine", {})
    status["migrationMethod"] = migratability(vmi, emulation=report.emulation).method
    status["migrationTransport"] = "Unix"
    status["selinuxContext"] = get_str(status, "selinuxContext") or "none"
    sockets, cores, threads = topology(decode(DomainSpec, domain))
    status["currentCPUTopology"] = {"cores": cores, "sockets": sockets, "threads": threads}
    guest = _quantity(domain)
    memory = {"guestAtBoot": guest, "guestCurrent": guest, "guestRequested": guest}
    status["memory"] = get_object(status, "memory") or memory
    status["interfaces"] = interfaces(vmi, report)
    status["guestOSInfo"] = report.facts.os_info
    _name_targets(vmi, get_list(status, "volumeStatus"))


def _quantity(domain: JsonObject) -> str:
    given = get_object(domain, "memory").get("guest")
    return str(given) if given is not None else str(memory_bytes(decode(DomainSpec, domain)))


def _name_targets(vmi: JsonObject, entries: list[JsonObject]) -> None:
    """Say which device each volume is. What has an entry, and until when, virt-controller decides."""
    reported = {get_str(entry, "name"): get_str(entry, "target") for entry in entries if entry.get("target")}
    targets = target_names(permanent_disks(decode(VirtualMachineInstance, vmi)), reported)
    for entry in entries:
        entry["target"] = targets.get(get_str(entry, "name"), "")


def interfaces(vmi: JsonObject, report: Report) -> list[JsonObject]:
    """The guest's interfaces: those of the specification first, enriched by the guest agent, then its own."""
    by_mac = {get_str(item, "mac").lower(): item for item in report.facts.agent_interfaces}
    rendered = []
    pod_networks = {get_str(item, "name") for item in get_list(vmi, "spec", "networks") if "pod" in item}
    for interface in get_list(vmi, "spec", "domain", "devices", "interfaces"):
        name = get_str(interface, "name")
        mac = report.macs.get(name, "")
        if not mac:
            continue
        entry: JsonObject = {"name": name, "mac": mac, "queueCount": 1, "podInterfaceName": "eth0"}
        seen = by_mac.pop(mac.lower(), None)
        entry["infoSource"] = "domain, guest-agent" if seen else "domain"
        entry["linkState"] = "down" if get_str(interface, "state") == "down" else "up"
        addresses = list(report.pod_addresses) if name in pod_networks else []
        if seen is not None:
            entry["interfaceName"] = get_str(seen, "name")
            if "masquerade" not in interface:
                addresses = _primary_first(get_list(seen, "addresses"), addresses) or addresses
        if addresses:
            entry["ipAddress"], entry["ipAddresses"] = addresses[0], addresses
        rendered.append(entry)
    return rendered + _guest_only(by_mac)


def _primary_first(found: list[str], primary: list[str]) -> list[str]:
    """The guest's addresses, those first by which the cluster knows it."""
    return sorted(found, key=lambda address: address not in primary)


def _guest_only(by_mac: dict[str, JsonObject]) -> list[JsonObject]:
    """At most ten interfaces that only the guest knows (bridges, VPNs of its own)."""
    entries = []
    for item in list(by_mac.values())[:10]:
        addresses = [
            text for text in get_list(item, "addresses") if not ipaddress.ip_address(text).is_loopback
        ]
        entry: JsonObject = {
            "interfaceName": get_str(item, "name"),
            "mac": get_str(item, "mac"),
            "infoSource": "guest-agent",
        }
        if addresses:
            entry["ipAddress"], entry["ipAddresses"] = addresses[0], addresses
        entries.append(entry)
    return entries
