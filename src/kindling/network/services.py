"""Services and their endpoints, as the proxy and the resolver need them; pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kindling.network.external import ExternalRanges, is_remote, parse
from kubecore.json import JsonObject, get_bool, get_int, get_list, get_object, get_str
from kubecore.objects import meta

_log = logging.getLogger(__name__)

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
_OF_OTHER_PROXIES = ("service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless")
"""Labels of services that this proxy leaves alone, whatever they say: others serve them, or nobody."""

AFFINITY_SECONDS = 10800
"""How long a client stays with its backend if the service does not say."""

MAX_PARTS = 20_000
"""So many ports, and backends of each, may the services of one namespace have together: everybody's rules
wait while those of one are loaded."""

MAX_CLAIMS = 100
"""So many addresses from outside may the services of one namespace claim: each has rules and a route, and no
load balancer gets it."""
_SHOWN_PORTS = 100
"""So many ports of a service that has too many refuse connections; others do not answer."""

ExternalKey = tuple[str, str, int]
"""An address from outside the cluster, a protocol (lower case) and a port."""


@dataclass(frozen=True, slots=True, order=True)
class Backend:
    """Where connections end."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class ServicePort:
    """One port of a service with the backends that are ready."""

    name: str
    """namespace/service:port"""
    protocol: str
    addresses: tuple[str, ...]
    port: int
    node_port: int
    backends: tuple[Backend, ...]
    nearby: Mapping[str, tuple[Backend, ...]] = field(default_factory=dict)
    """Each node's own backends."""
    affinity_seconds: int = 0
    """How long a client stays with its backend; 0: every connection may have another."""
    external: tuple[str, ...] = ()
    """Addresses from outside the cluster that lead here, as far as they take effect."""
    balanced: tuple[str, ...] = ()
    """Those of them that are a load balancer's: only these are restricted to `sources`."""
    sources: tuple[str, ...] | None = None
    """The networks that may use the load balancer's addresses; None: all."""
    is_internal_local: bool = False
    """Clients of the cluster get backends of their own node alone (``internalTrafficPolicy``)."""
    is_external_local: bool = False
    """Others get backends of the node that they ask, which see their address (``externalTrafficPolicy``)."""
    prefers_own_node: bool = False
    """Clients of the cluster get backends of their own node if there are any (``trafficDistribution``)."""

    @property
    def namespace(self) -> str:
        """The service's namespace."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A service whose nodes tell a load balancer how many of its endpoints they have."""

    namespace: str
    name: str
    port: int
    endpoints: Mapping[str, int]
    """By node."""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A pod's port that its node forwards."""

    node: str
    protocol: str
    port: int
    backend: Backend
    address: str = ""
    """The node's address to which the port is bound; empty for the one that others know."""


class ServicePorts:
    """The ports of services, made anew only for services that changed: most stay as they are.

    What it is given are objects of caches, which nobody changes: the same object says the same. `version` is
    that of the family, IPv4's or IPv6's, of all addresses and backends.
    """

    def __init__(self, ranges: ExternalRanges, version: int = 4) -> None:
        self._ranges = ranges
        self._version = version
        self._known: dict[str, tuple[JsonObject, list[JsonObject], list[ServicePort]]] = {}
        self._refused: set[str] = set()

    def of(self, services: Iterable[JsonObject], slices: Iterable[JsonObject]) -> list[ServicePort]:
        """All ports of all services that have an address of the family, the oldest service's first.

        Services of a namespace that has too many ports and backends have no backends.
        """
        by_service = _by_service(slices)
        before, self._known = self._known, {}
        refused: set[str] = set()
        spent: dict[str, int] = {}
        claimed: dict[str, set[str]] = {}
        found: list[ServicePort] = []
        for service in sorted(services, key=_age):
            namespace = meta.namespace(service)
            key = f"{namespace}/{meta.name(service)}"
            own = by_service.get((namespace, meta.name(service)), [])
            size = spent.get(namespace, 0) + _size(service, own)
            if size > MAX_PARTS:
                refused.add(key)
                found += self._without_backends(service, key)
                continue
            spent[namespace] = size
            known = before.get(key)
            if known is None or known[0] is not service or not _are_the_same(known[1], own):
                known = (service, own, _ports_of(service, key, own, self._ranges, self._version))
            self._known[key] = known
            claims = {each for port in known[2] for each in port.external if each not in port.balanced}
            if claims and len(claims | claimed.get(namespace, set())) > MAX_CLAIMS:
                refused.add(key)
                self._tell(key, "external addresses lead nowhere", MAX_CLAIMS, "external addresses")
                found += [replace(port, external=port.balanced) for port in known[2]]
                continue
            claimed.setdefault(namespace, set()).update(claims)
            found += known[2]
        self._refused = refused
        return found

    def _tell(self, key: str, problem: str, most: int, of_what: str) -> None:
        if key not in self._refused:
            text = (
                "service %s: its %s: with it, the services of its namespace have more than %d %s; remove some"
            )
            _log.error(text, key, problem, most, of_what)

    def _without_backends(self, service: JsonObject, key: str) -> list[ServicePort]:
        self._tell(key, "addresses lead nowhere", MAX_PARTS, "ports and backends of each")
        spec = get_object(service, "spec")
        few = {**service, "spec": {**spec, "ports": get_list(spec, "ports")[:_SHOWN_PORTS]}}
        return _ports_of(few, key, (), self._ranges, self._version)


def _size(service: JsonObject, slices: Iterable[JsonObject]) -> int:
    """How many ports a service has, and at most how many backends of each."""
    if get_str(service, "spec", "clusterIP") in ("", "None"):
        return 0
    endpoints = (endpoint for item in slices for endpoint in get_list(item, "endpoints"))
    backends = sum(len(get_list(endpoint, "addresses")) for endpoint in endpoints)
    return len(get_list(service, "spec", "ports")) * (1 + backends)


def _are_the_same(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(left is right for left, right in zip(one, other, strict=True))


def service_ports(
    services: Iterable[JsonObject], slices: Iterable[JsonObject], ranges: ExternalRanges, version: int = 4
) -> list[ServicePort]:
    """All ports of all services that have an address of IPv4 or IPv6, the oldest service's first."""
    return ServicePorts(ranges, version).of(services, slices)


def _ports_of(
    service: JsonObject, name: str, slices: Sequence[JsonObject], ranges: ExternalRanges, version: int
) -> list[ServicePort]:
    spec = get_object(service, "spec")
    if get_str(spec, "clusterIP") in ("", "None") or not _is_ours(service):
        return []
    addresses = _of(version, get_list(spec, "clusterIPs") or [get_str(spec, "clusterIP")])
    if not addresses:
        return []
    claimed = _of(version, filter(ranges.admits, external_addresses(service)))
    balanced = _of(version, filter(ranges.admits, balancer_addresses(service)))
    is_balanced = get_str(spec, "type") == "LoadBalancer"
    sources = get_list(spec, "loadBalancerSourceRanges") if is_balanced else []
    found = []
    numbered = [(item, _numbers(item)) for item in slices]
    for port in get_list(spec, "ports"):
        endpoints = _endpoints(numbered, get_str(port, "name"), version)
        found.append(
            ServicePort(
                name=f"{name}:{get_str(port, 'name')}",
                protocol=get_str(port, "protocol", default="TCP").lower(),
                addresses=addresses,
                port=get_int(port, "port"),
                node_port=get_int(port, "nodePort"),
                backends=_chosen(endpoints),
                nearby=_nearby(endpoints),
                affinity_seconds=_affinity_seconds(spec),
                external=claimed,
                balanced=balanced,
                sources=tuple(text.strip() for text in sources) if sources else None,
                is_internal_local=get_str(spec, "internalTrafficPolicy") == "Local",
                is_external_local=get_str(spec, "externalTrafficPolicy") == "Local",
                prefers_own_node=get_str(spec, "trafficDistribution") == "PreferSameNode",
            )
        )
    return found


def health_checks(services: Iterable[JsonObject], slices: Iterable[JsonObject]) -> list[HealthCheck]:
    """The services that have a port for health checks."""
    by_service = _by_service(slices)
    found = []
    for service in services:
        spec, key = get_object(service, "spec"), (meta.namespace(service), meta.name(service))
        port = get_int(spec, "healthCheckNodePort")
        is_local = get_str(spec, "externalTrafficPolicy") == "Local"
        if port and is_local and get_str(spec, "type") == "LoadBalancer" and _is_ours(service):
            nodes: dict[str, set[str]] = {}
            family = next(iter(get_list(spec, "ipFamilies")), "IPv4")
            for item in by_service.get(key, ()):
                if get_str(item, "addressType", default="IPv4") != family:
                    continue  # the same pods, by their other addresses
                for endpoint in get_list(item, "endpoints"):
                    if get_bool(endpoint, "conditions", "ready", default=True):
                        own = nodes.setdefault(get_str(endpoint, "nodeName"), set())
                        own.update(get_list(endpoint, "addresses"))
            found.append(HealthCheck(*key, port, {node: len(own) for node, own in nodes.items()}))
    return found


def _is_ours(service: JsonObject) -> bool:
    labels = meta.labels(service)
    return not any(label in labels for label in _OF_OTHER_PROXIES)


def _by_service(slices: Iterable[JsonObject]) -> dict[tuple[str, str], list[JsonObject]]:
    found: dict[tuple[str, str], list[JsonObject]] = {}
    for item in slices:
        name = get_object(item, "metadata", "labels").get(SERVICE_NAME_LABEL, "")
        found.setdefault((meta.namespace(item), name), []).append(item)
    return found


def _affinity_seconds(spec: JsonObject) -> int:
    if get_str(spec, "sessionAffinity") != "ClientIP":
        return 0
    return get_int(spec, "sessionAffinityConfig", "clientIP", "timeoutSeconds", default=AFFINITY_SECONDS)


def _age(service: JsonObject) -> tuple[str, str, str]:
    created = get_str(service, "metadata", "creationTimestamp")
    return (created, meta.namespace(service), meta.name(service))


def assign_external(
    ports: Sequence[ServicePort], before: Mapping[ExternalKey, str]
) -> dict[ExternalKey, str]:
    """The service port (by name) that each external address belongs to, where several claim it.

    The port that had the address `before` keeps it while it claims it: adding an address to a service never
    takes it from another service. Otherwise it goes to the service whose load balancer has it, or else to the
    oldest. An address that a load balancer gave leads to no service of another namespace, on no port:
    whoever answers on another port of it could get certificates for its names.
    """
    owners: dict[str, set[str]] = {}
    for item in ports:
        for address in item.balanced:
            owners.setdefault(address, set()).add(item.namespace)
    claims: dict[ExternalKey, list[str]] = {}
    for item in ports:
        for address in item.external:
            claimants = claims.setdefault((address, item.protocol, item.port), [])
            if address in item.balanced:
                claimants.append(item.name)
    for item in ports:
        for address in item.external:
            is_free = address not in owners or item.namespace in owners[address]
            if is_free and address not in item.balanced:
                claims[address, item.protocol, item.port].append(item.name)
    return {
        key: before[key] if before.get(key) in claimants else claimants[0]
        for key, claimants in claims.items()
        if claimants
    }


def external_addresses(service: JsonObject) -> list[str]:
    """The external addresses that a service claims, whether or not they take effect."""
    return [*filter(None, get_list(service, "spec", "externalIPs")), *balancer_addresses(service)]


def balancer_addresses(service: JsonObject) -> list[str]:
    """The addresses of a service's load balancer. Where it is a proxy, packets have to get to it."""
    points = get_list(service, "status", "loadBalancer", "ingress")
    return [get_str(point, "ip") for point in points if point.get("ip") and point.get("ipMode") != "Proxy"]


def _chosen(endpoints: Iterable[_Endpoint]) -> tuple[Backend, ...]:
    """Ready backends; if there are none, terminating ones that still serve (as in kube-proxy)."""
    ready: set[Backend] = set()
    serving: set[Backend] = set()
    for item in endpoints:
        (ready if item.is_ready else serving).add(item.backend)
    return tuple(sorted(ready or serving))


def _nearby(endpoints: Iterable[_Endpoint]) -> dict[str, tuple[Backend, ...]]:
    by_node: dict[str, list[_Endpoint]] = {}
    for item in endpoints:
        by_node.setdefault(item.node, []).append(item)
    return {node: _chosen(own) for node, own in by_node.items() if node}


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """A backend that is ready, or terminating and serving."""

    backend: Backend
    node: str
    is_ready: bool


def _numbers(item: JsonObject) -> Mapping[str, int]:
    """The ports of a slice by name; of equal names, the first."""
    return {get_str(port, "name"): get_int(port, "port") for port in reversed(get_list(item, "ports"))}


def _endpoints(
    slices: Sequence[tuple[JsonObject, Mapping[str, int]]], port_name: str, version: int
) -> list[_Endpoint]:
    """The endpoints of a port; each slice comes with its ports by name."""
    found = []
    for item, numbers in slices:
        if get_str(item, "addressType", default="IPv4") != f"IPv{version}":
            continue
        number = numbers.get(port_name, 0)
        if not number:
            continue
        for endpoint in get_list(item, "endpoints"):
            conditions = get_object(endpoint, "conditions")
            is_ready = get_bool(conditions, "ready", default=True)
            is_ending = get_bool(conditions, "serving") and get_bool(conditions, "terminating")
            if is_ready or is_ending:
                node = get_str(endpoint, "nodeName")
                addresses = _of(version, get_list(endpoint, "addresses"))
                backends = [Backend(each, number) for each in addresses if is_remote(each)]
                found += [_Endpoint(backend, node, is_ready) for backend in backends]
    return found


def _of(version: int, texts: Iterable[str]) -> tuple[str, ...]:
    """The addresses of a family, each once, as they are usually written."""
    found = [parse(text) for text in texts]
    return tuple(dict.fromkeys(str(item) for item in found if item is not None and item.version == version))


def _bound(text: str, version: int) -> str | None:
    """The address to which a host port is bound, as it is usually written: one in two spellings would be two
    keys, and the kernel refuses a table with both. Empty for every address, None for one of another family.
    """
    address = parse(text)
    if not text or (address is not None and address.is_unspecified):
        return ""
    return str(address) if address is not None and address.version == version else None


def host_ports(pods: Iterable[JsonObject], version: int = 4) -> list[HostPort]:
    """Host ports of running pods that have an address of their own, of IPv4 or IPv6."""
    found = []
    for pod in pods:
        given = [get_str(entry, "ip") for entry in get_list(pod, "status", "podIPs")]
        address = next(iter(_of(version, given or [get_str(pod, "status", "podIP")])), "")
        if (
            not is_remote(address)
            or get_bool(pod, "spec", "hostNetwork")
            or get_str(pod, "status", "phase") != "Running"
        ):
            continue
        for container in get_list(pod, "spec", "containers"):
            for port in get_list(container, "ports"):
                if get_int(port, "hostPort"):
                    backend = Backend(address, get_int(port, "containerPort"))
                    protocol = get_str(port, "protocol", default="TCP").lower()
                    node = get_str(pod, "spec", "nodeName")
                    bound = _bound(get_str(port, "hostIP"), version)
                    if bound is not None:
                        found.append(HostPort(node, protocol, get_int(port, "hostPort"), backend, bound))
    return sorted(found, key=lambda item: (item.node, item.protocol, item.port, item.address))
