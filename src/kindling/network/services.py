"""Services and their endpoints, as the proxy and the resolver need them; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kindling.network.external import ExternalRanges, ipv4, is_remote
from kubecore.json import JsonObject, get_bool, get_int, get_list, get_object, get_str
from kubecore.objects import meta

SERVICE_NAME_LABEL = "kubernetes.io/service-name"

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
    sticky: bool
    external: tuple[str, ...] = ()
    """Addresses from outside the cluster that lead here, as far as they take effect."""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A pod's port that its node forwards."""

    node: str
    protocol: str
    port: int
    backend: Backend
    address: str = ""
    """The node's address to which the port is bound; empty for the one that others know."""


def service_ports(
    services: Iterable[JsonObject], slices: Iterable[JsonObject], ranges: ExternalRanges
) -> list[ServicePort]:
    """All ports of all services that have an address, the oldest service's first."""
    by_service: dict[tuple[str, str], list[JsonObject]] = {}
    for item in slices:
        name = get_object(item, "metadata", "labels").get(SERVICE_NAME_LABEL, "")
        by_service.setdefault((meta.namespace(item), name), []).append(item)
    found = []
    for service in sorted(services, key=_age):
        key = (meta.namespace(service), meta.name(service))
        spec = get_object(service, "spec")
        if get_str(spec, "clusterIP") in ("", "None"):
            continue
        addresses = get_list(spec, "clusterIPs") or [get_str(spec, "clusterIP")]
        claimed = [address for address in external_addresses(service) if ranges.admits(address)]
        for port in get_list(spec, "ports"):
            found.append(
                ServicePort(
                    name=f"{key[0]}/{key[1]}:{get_str(port, 'name')}",
                    protocol=get_str(port, "protocol", default="TCP").lower(),
                    addresses=tuple(address for address in addresses if ipv4(address)),
                    port=get_int(port, "port"),
                    node_port=get_int(port, "nodePort"),
                    backends=_backends(by_service.get(key, ()), get_str(port, "name")),
                    sticky=get_str(spec, "sessionAffinity") == "ClientIP",
                    external=tuple(dict.fromkeys(claimed)),
                )
            )
    return found


def _age(service: JsonObject) -> tuple[str, str, str]:
    created = get_str(service, "metadata", "creationTimestamp")
    return (created, meta.namespace(service), meta.name(service))


def assign_external(
    ports: Sequence[ServicePort], before: Mapping[ExternalKey, str]
) -> dict[ExternalKey, str]:
    """The service port (by name) that each external address belongs to, where several claim it.

    The port that had the address `before` keeps it while it claims it: adding an address to a service never
    takes it from another service. Otherwise it goes to the oldest service.
    """
    claims: dict[ExternalKey, list[str]] = {}
    for item in ports:
        for address in item.external:
            claims.setdefault((address, item.protocol, item.port), []).append(item.name)
    return {
        key: before[key] if before.get(key) in claimants else claimants[0]
        for key, claimants in claims.items()
    }


def external_addresses(service: JsonObject) -> list[str]:
    """The external addresses that a service claims, whether or not they take effect."""
    points = get_list(service, "status", "loadBalancer", "ingress")
    named = get_list(service, "spec", "externalIPs") + [get_str(point, "ip") for point in points]
    return [address for address in named if address]


def _backends(slices: Sequence[JsonObject], port_name: str) -> tuple[Backend, ...]:
    """Ready backends; if there are none, terminating ones that still serve (as in kube-proxy)."""
    ready: set[Backend] = set()
    serving: set[Backend] = set()
    for item in slices:
        if get_str(item, "addressType", default="IPv4") != "IPv4":
            continue
        number = next(
            (get_int(p, "port") for p in get_list(item, "ports") if get_str(p, "name") == port_name), 0
        )
        if not number:
            continue
        for endpoint in get_list(item, "endpoints"):
            conditions = get_object(endpoint, "conditions")
            made = {Backend(each, number) for each in get_list(endpoint, "addresses") if is_remote(each)}
            if get_bool(conditions, "ready", default=True):
                ready |= made
            elif get_bool(conditions, "serving") and get_bool(conditions, "terminating"):
                serving |= made
    return tuple(sorted(ready or serving))


def host_ports(pods: Iterable[JsonObject]) -> list[HostPort]:
    """Host ports of running pods that have an address of their own."""
    found = []
    for pod in pods:
        address = get_str(pod, "status", "podIP")
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
                    bound = get_str(port, "hostIP")
                    bound = "" if bound in ("0.0.0.0", "::") else bound
                    if not bound or ipv4(bound):
                        found.append(HostPort(node, protocol, get_int(port, "hostPort"), backend, bound))
    return sorted(found, key=lambda item: (item.node, item.protocol, item.port, item.address))
