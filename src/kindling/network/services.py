"""Services and their endpoints, as the proxy and the resolver need them; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kubecore.json import JsonObject, get_bool, get_int, get_list, get_object, get_str

SERVICE_NAME_LABEL = "kubernetes.io/service-name"


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


@dataclass(frozen=True, slots=True)
class HostPort:
    """A pod's port that its node forwards."""

    node: str
    protocol: str
    port: int
    backend: Backend
    address: str = ""
    """The node's address to which the port is bound; empty for the one that others know."""


def service_ports(services: Iterable[JsonObject], slices: Iterable[JsonObject]) -> list[ServicePort]:
    """All ports of all services that have an address, in a stable order."""
    by_service: dict[tuple[str, str], list[JsonObject]] = {}
    for item in slices:
        name = get_object(item, "metadata", "labels").get(SERVICE_NAME_LABEL, "")
        by_service.setdefault((get_str(item, "metadata", "namespace"), name), []).append(item)
    found = []
    for service in services:
        key = (get_str(service, "metadata", "namespace"), get_str(service, "metadata", "name"))
        spec = get_object(service, "spec")
        if get_str(spec, "clusterIP") in ("", "None"):
            continue
        addresses = [
            ip for ip in get_list(spec, "clusterIPs") or [get_str(spec, "clusterIP")] if ":" not in ip
        ]
        addresses += [ip for ip in get_list(spec, "externalIPs") if ":" not in ip]
        addresses += [
            get_str(entry, "ip")
            for entry in get_list(service, "status", "loadBalancer", "ingress")
            if get_str(entry, "ip")
        ]
        for port in get_list(spec, "ports"):
            found.append(
                ServicePort(
                    name=f"{key[0]}/{key[1]}:{get_str(port, 'name')}",
                    protocol=get_str(port, "protocol", default="TCP").lower(),
                    addresses=tuple(addresses),
                    port=get_int(port, "port"),
                    node_port=get_int(port, "nodePort"),
                    backends=_backends(by_service.get(key, ()), get_str(port, "name")),
                    sticky=get_str(spec, "sessionAffinity") == "ClientIP",
                )
            )
    return sorted(found, key=lambda item: item.name)


def _backends(slices: Sequence[JsonObject], port_name: str) -> tuple[Backend, ...]:
    """Ready backends; those that still serve while they end when there is no other (as kube-proxy does)."""
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
            made = {Backend(address, number) for address in get_list(endpoint, "addresses")}
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
            not address
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
                    if ":" not in bound:
                        found.append(HostPort(node, protocol, get_int(port, "hostPort"), backend, bound))
    return sorted(found, key=lambda item: (item.node, item.protocol, item.port, item.address))
