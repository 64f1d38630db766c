"""Names, strategies, probes, DNS, machine type and other settings outside of devices."""

from __future__ import annotations

import fnmatch
import ipaddress
from collections.abc import Iterator

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import names
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission.response import (
    NOT_SUPPORTED,
    REQUIRED,
    Cause,
)

EVICTION_STRATEGIES = ("LiveMigrate", "LiveMigrateIfPossible", "None", "External")
_PROBE_HANDLERS = ("httpGet", "tcpSocket", "exec", "guestAgentPing")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
MAX_NAMESERVERS = 3
MAX_SEARCH_PATHS = 6
MAX_SEARCH_CHARACTERS = 256


def host_names(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Host name and subdomain must be DNS names."""
    for field, check, rules in (
        ("hostname", names.is_dns1123_label, "DNS_LABEL"),
        ("subdomain", names.is_dns1123_subdomain, "DNS_SUBDOMAIN"),
    ):
        value = get_str(spec, field)
        problems = check(value) if value else []
        if problems:
            yield Cause(
                f"{path}.{field} does not conform to the kubernetes {rules} rules : {', '.join(problems)}",
                f"{path}.{field}",
            )


def machine_type(path: str, spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    """The machine type must match one of the globs allowed for the architecture."""
    wanted = get_str(spec, "domain", "machine", "type")
    if not wanted:
        return
    allowed = config.emulated_machines(get_str(spec, "architecture"))
    if not any(fnmatch.fnmatchcase(wanted, pattern) for pattern in allowed):
        field = f"{path}.domain.machine.type"
        yield Cause(
            f"{field} is not supported: {wanted} (allowed values: [{' '.join(allowed)}])",
            field,
        )


def start_strategy(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Only `Paused` exists, and a paused guest cannot be probed for liveness."""
    strategy = get_str(spec, "startStrategy")
    if not strategy:
        return
    field = f"{path}.startStrategy"
    if strategy != "Paused":
        yield Cause(f"{field} is set with an unrecognized option: {strategy}", field)
    elif spec.get("livenessProbe") is not None:
        yield Cause(
            f"either {field} or {path}.livenessProbe should be provided."
            "Pausing VMI with LivenessProbe is not supported",
            field,
        )


def eviction_strategy(path: str, spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    """The strategy, or the installation's, must be known."""
    strategy = spec.get("evictionStrategy")
    if strategy is None:
        strategy = config.eviction_strategy
    if strategy and strategy not in EVICTION_STRATEGIES:
        field = f"{path}.evictionStrategy"
        yield Cause(f"{field} is set with an unrecognized option: {strategy}", field)


def io_threads(path: str, spec: JsonObject) -> Iterator[Cause]:
    """The I/O thread policy must be known, and a pool needs threads."""
    policy = get_object(spec, "domain").get("ioThreadsPolicy")
    if policy is None:
        return
    if policy not in ("shared", "auto", "supplementalPool"):
        yield Cause(f"Invalid IOThreadsPolicy ({policy})", f"{path}.domain.ioThreadsPolicy")
    count = get_object(spec, "domain", "ioThreads").get("supplementalPoolThreadCount")
    if policy == "supplementalPool" and (not isinstance(count, int) or count < 1):
        yield Cause(
            "the number of iothreads needs to be set and positive for the dedicated policy",
            f"{path}.domain.ioThreads.count",
        )


def probes(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Each probe has exactly one handler."""
    for name in ("readinessProbe", "livenessProbe"):
        probe = spec.get(name)
        if not isinstance(probe, dict):
            continue
        field = f"{path}.{name}"
        handlers = [handler for handler in _PROBE_HANDLERS if probe.get(handler) is not None]
        if len(handlers) > 1:
            yield Cause(f"{field} must have exactly one probe type set", field)
        if not handlers:
            yield Cause(
                f"either {field}.tcpSocket, {field}.exec or {field}.httpGet must be set"
                f" if a {field} is specified",
                field,
                REQUIRED,
            )


def probes_need_pod_network(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Probes over the network reach guests on the pod network only."""
    if any("pod" in network for network in get_list(spec, "networks")):
        return
    for name in ("readinessProbe", "livenessProbe"):
        for handler in ("httpGet", "tcpSocket"):
            if get_object(spec, name).get(handler) is not None:
                field = f"{path}.{name}.{handler}"
                yield Cause(f"{field} is only allowed if the Pod Network is attached", field)


def dns(path: str, spec: JsonObject) -> Iterator[Cause]:
    """DNS policy and configuration follow the rules of pods."""
    policy = get_str(spec, "dnsPolicy")
    if policy and policy not in _DNS_POLICIES:
        valid = " ".join(_DNS_POLICIES)
        yield Cause(
            f"DNSPolicy: {policy} is not supported, valid values: [{valid} ]",
            f"{path}.dnsPolicy",
            NOT_SUPPORTED,
        )
    field = f"{path}.dnsConfig"
    configured = spec.get("dnsConfig")
    config = get_object(spec, "dnsConfig")
    if policy == "None":
        if not isinstance(configured, dict):
            yield Cause("must provide `dnsConfig` when `dnsPolicy` is None", field, REQUIRED)
            return
        if not get_list(config, "nameservers"):
            yield Cause(
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
                "nameservers",
                REQUIRED,
            )
            return
    yield from _dns_config(config)


def _dns_config(config: JsonObject) -> Iterator[Cause]:
    servers = get_list(config, "nameservers")
    if len(servers) > MAX_NAMESERVERS:
        listed = " ".join(servers)
        yield Cause(f"must not have more than {MAX_NAMESERVERS} nameservers: [{listed}]", "nameservers")
    for server in servers:
        try:
            ipaddress.ip_address(server)
        except ValueError:
            yield Cause(f"must be valid IP address: {server}", "nameservers")
    searches = get_list(config, "searches")
    if len(searches) > MAX_SEARCH_PATHS:
        yield Cause(f"must not have more than {MAX_SEARCH_PATHS} search paths", "searchDomains")
    if len(" ".join(searches)) > MAX_SEARCH_CHARACTERS:
        yield Cause(
            f"must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces)"
            " in the search list",
            "searchDomains",
        )
    for search in searches:
        for problem in names.is_dns1123_subdomain(search):
            yield Cause(problem, "searchDomains")
    for option in get_list(config, "options"):
        if not get_str(option, "name"):
            yield Cause("Option.Name must not be empty", "options")


def service_account(path: str, spec: JsonObject) -> Iterator[Cause]:
    """The service account must be a name, and the same in every volume."""
    account = get_str(spec, "serviceAccountName")
    if not account:
        return
    field = f"{path}.serviceAccountName"
    problems = names.is_dns1123_subdomain(account)
    if problems:
        yield Cause(f"{field} is not a valid service account name: {', '.join(problems)}", field)
    for volume in get_list(spec, "volumes"):
        other = get_str(volume, "serviceAccount", "serviceAccountName")
        if other and other != account:
            yield Cause(
                f'spec.serviceAccountName "{account}" and serviceAccount volume "{other}"'
                " must reference the same service account",
                field,
            )


def utility_volumes(path: str, spec: JsonObject) -> Iterator[Cause]:
    """Utility volumes come by hotplug only."""
    if spec.get("utilityVolumes") is not None:
        yield Cause(
            "cannot create VMI with utility volumes in spec, utility volumes can only be added via hotplug",
            f"{path}.utilityVolumes",
        )


def gated(path: str, spec: JsonObject, config: ClusterConfig) -> Iterator[Cause]:
    """Settings whose feature is not on."""
    domain = get_object(spec, "domain")
    if domain.get("rebootPolicy") is not None and not config.gate("RebootPolicy"):
        yield Cause(
            "RebootPolicy is specified but the RebootPolicy feature gate is not enabled",
            f"{path}.domain.rebootPolicy",
        )
    overhead = get_object(domain, "memory").get("reservedOverhead")
    if overhead is not None and not config.gate("ReservedOverheadMemlock"):
        yield Cause(
            "Reserved overhead memlock feature gate is not enabled in kubevirt-config",
            f"{path}.domain.memory.reservedOverhead",
        )
