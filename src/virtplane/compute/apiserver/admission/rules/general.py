"""Names, strategies, probes, DNS, machine type and other settings outside of devices."""

from __future__ import annotations

import fnmatch
import ipaddress
from collections.abc import Iterator

from kubecore.objects import names
from virtplane.api.config import ClusterConfig
from virtplane.api.core_v1 import PodDNSConfig
from virtplane.api.kubevirt_v1.probes import Probe
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstanceSpec
from virtplane.compute.addresses import without_leading_zeros
from virtplane.serving.responses import NOT_SUPPORTED, REQUIRED, Cause

EVICTION_STRATEGIES = ("LiveMigrate", "LiveMigrateIfPossible", "None", "External")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
MAX_NAMESERVERS = 3
MAX_SEARCH_PATHS = 6
MAX_SEARCH_CHARACTERS = 256


def host_names(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Host name and subdomain must be DNS names."""
    for field, value, check, rules in (
        ("hostname", spec.hostname, names.is_dns1123_label, "DNS_LABEL"),
        ("subdomain", spec.subdomain, names.is_dns1123_subdomain, "DNS_SUBDOMAIN"),
    ):
        problems = check(value) if value else []
        if problems:
            yield Cause(
                f"{path}.{field} does not conform to the kubernetes {rules} rules : {', '.join(problems)}",
                f"{path}.{field}",
            )


def machine_type(path: str, spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> Iterator[Cause]:
    """The machine type must match one of the globs allowed for the architecture."""
    wanted = spec.domain.machine.type
    if not wanted:
        return
    allowed = config.emulated_machines(spec.architecture or "")
    if not any(fnmatch.fnmatchcase(wanted, pattern) for pattern in allowed):
        field = f"{path}.domain.machine.type"
        yield Cause(f"{field} is not supported: {wanted} (allowed values: [{' '.join(allowed)}])", field)


def start_strategy(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Only `Paused` exists, and a paused guest cannot be probed for liveness."""
    strategy = spec.start_strategy
    if not strategy:
        return
    field = f"{path}.startStrategy"
    if strategy != "Paused":
        yield Cause(f"{field} is set with an unrecognized option: {strategy}", field)
    elif spec.liveness_probe is not None:
        yield Cause(
            f"either {field} or {path}.livenessProbe should be provided."
            "Pausing VMI with LivenessProbe is not supported",
            field,
        )


def eviction_strategy(path: str, spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> Iterator[Cause]:
    """The strategy, or the installation's, must be known."""
    strategy = spec.eviction_strategy
    if strategy is None:
        strategy = config.eviction_strategy
    if strategy and strategy not in EVICTION_STRATEGIES:
        field = f"{path}.evictionStrategy"
        yield Cause(f"{field} is set with an unrecognized option: {strategy}", field)


def io_threads(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """The I/O thread policy must be known, and a pool needs threads."""
    policy = spec.domain.io_threads_policy
    if policy is None:
        return
    if policy not in ("shared", "auto", "supplementalPool"):
        yield Cause(f"Invalid IOThreadsPolicy ({policy})", f"{path}.domain.ioThreadsPolicy")
    if policy == "supplementalPool" and (spec.domain.io_threads.supplemental_pool_thread_count or 0) < 1:
        yield Cause(
            "the number of iothreads needs to be set and positive for the dedicated policy",
            f"{path}.domain.ioThreads.count",
        )


def _probes(spec: VirtualMachineInstanceSpec) -> list[tuple[str, Probe]]:
    both = (("readinessProbe", spec.readiness_probe), ("livenessProbe", spec.liveness_probe))
    return [(name, probe) for name, probe in both if probe is not None]


def probes(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Each probe has exactly one handler."""
    for name, probe in _probes(spec):
        field = f"{path}.{name}"
        possible = (probe.http_get, probe.tcp_socket, probe.exec, probe.guest_agent_ping)
        handlers = [handler for handler in possible if handler is not None]
        if len(handlers) > 1:
            yield Cause(f"{field} must have exactly one probe type set", field)
        if not handlers:
            yield Cause(
                f"either {field}.tcpSocket, {field}.exec or {field}.httpGet must be set"
                f" if a {field} is specified",
                field,
                REQUIRED,
            )


def probes_need_pod_network(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Probes over the network reach guests on the pod network only."""
    if any(network.pod is not None for network in spec.networks):
        return
    for name, probe in _probes(spec):
        for handler, settings in (("httpGet", probe.http_get), ("tcpSocket", probe.tcp_socket)):
            if settings is not None:
                field = f"{path}.{name}.{handler}"
                yield Cause(f"{field} is only allowed if the Pod Network is attached", field)


def dns(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """DNS policy and configuration follow the rules of pods."""
    policy, config = spec.dns_policy, spec.dns_config
    if policy and policy not in _DNS_POLICIES:
        valid = " ".join(_DNS_POLICIES)
        yield Cause(
            f"DNSPolicy: {policy} is not supported, valid values: [{valid} ]",
            f"{path}.dnsPolicy",
            NOT_SUPPORTED,
        )
    if policy == "None":
        if config is None:
            field = f"{path}.dnsConfig"
            yield Cause("must provide `dnsConfig` when `dnsPolicy` is None", field, REQUIRED)
            return
        if not config.nameservers:
            yield Cause(
                "must provide at least one DNS nameserver when `dnsPolicy` is None", "nameservers", REQUIRED
            )
            return
    if config is not None:
        yield from _dns_config(config)


def _dns_config(config: PodDNSConfig) -> Iterator[Cause]:
    servers = config.nameservers
    if len(servers) > MAX_NAMESERVERS:
        listed = " ".join(servers)
        yield Cause(f"must not have more than {MAX_NAMESERVERS} nameservers: [{listed}]", "nameservers")
    for server in servers:
        try:
            ipaddress.ip_address(without_leading_zeros(server))
        except ValueError:
            yield Cause(f"must be valid IP address: {server}", "nameservers")
    if len(config.searches) > MAX_SEARCH_PATHS:
        yield Cause(f"must not have more than {MAX_SEARCH_PATHS} search paths", "searchDomains")
    if len(" ".join(config.searches)) > MAX_SEARCH_CHARACTERS:
        yield Cause(
            f"must not have more than {MAX_SEARCH_CHARACTERS} characters (including spaces)"
            " in the search list",
            "searchDomains",
        )
    for search in config.searches:
        for problem in names.is_dns1123_subdomain(search):
            yield Cause(problem, "searchDomains")
    for option in config.options:
        if not option.name:
            yield Cause("Option.Name must not be empty", "options")


def service_account(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """The service account must be a name, and the same in every volume."""
    account = spec.service_account_name
    if not account:
        return
    field = f"{path}.serviceAccountName"
    problems = names.is_dns1123_subdomain(account)
    if problems:
        yield Cause(f"{field} is not a valid service account name: {', '.join(problems)}", field)
    sources = (volume.service_account for volume in spec.volumes if volume.service_account is not None)
    for other in (source.service_account_name for source in sources):
        if other and other != account:
            yield Cause(
                f'spec.serviceAccountName "{account}" and serviceAccount volume "{other}"'
                " must reference the same service account",
                field,
            )


def utility_volumes(path: str, spec: VirtualMachineInstanceSpec) -> Iterator[Cause]:
    """Utility volumes come by hotplug only."""
    if spec.utility_volumes:
        yield Cause(
            "cannot create VMI with utility volumes in spec, utility volumes can only be added via hotplug",
            f"{path}.utilityVolumes",
        )


def gated(path: str, spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> Iterator[Cause]:
    """Settings whose feature is not on."""
    domain = spec.domain
    if domain.reboot_policy is not None and not config.gate("RebootPolicy"):
        yield Cause(
            "RebootPolicy is specified but the RebootPolicy feature gate is not enabled",
            f"{path}.domain.rebootPolicy",
        )
    if domain.memory.reserved_overhead is not None and not config.gate("ReservedOverheadMemlock"):
        yield Cause(
            "Reserved overhead memlock feature gate is not enabled in kubevirt-config",
            f"{path}.domain.memory.reservedOverhead",
        )
