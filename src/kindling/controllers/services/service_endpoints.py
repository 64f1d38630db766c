"""The endpoints of a Service: the pure part of Endpoints and EndpointSlices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from kindling.controllers import pods as pod_facts
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta

Family = Literal["IPv4", "IPv6"]


def is_headless(service: JsonObject) -> bool:
    """Whether the service is headless (clusterIP None)."""
    return get_str(service, "spec", "clusterIP") == "None"


def is_selected(service: JsonObject) -> bool:
    """Whether the service has a selector, so that controllers make its endpoints."""
    return bool(get_object(service, "spec", "selector")) and (
        get_str(service, "spec", "type") != "ExternalName"
    )


def publishes_unready(service: JsonObject) -> bool:
    """Whether pods count as ready from the start."""
    return get_object(service, "spec").get("publishNotReadyAddresses") is True


def families(service: JsonObject) -> list[Family]:
    """The address families of the service."""
    return get_list(service, "spec", "ipFamilies") or ["IPv4"]


def addresses(pod: JsonObject, family: Family) -> list[str]:
    """The pod's addresses of one family."""
    found = [get_str(entry, "ip") for entry in get_list(pod, "status", "podIPs")]
    if not found and get_str(pod, "status", "podIP"):
        found = [get_str(pod, "status", "podIP")]
    return [address for address in found if address and (":" in address) == (family == "IPv6")]


def target_port(service_port: JsonObject, pod: JsonObject) -> int | None:
    """The number of the pod's port that a service port targets; None if the pod has no such port."""
    target = service_port.get("targetPort")
    protocol = service_port.get("protocol", "TCP")
    if not target:
        return int(service_port["port"])
    if isinstance(target, int):
        return target
    containers = [
        *get_list(pod, "spec", "containers"),
        *(item for item in get_list(pod, "spec", "initContainers") if item.get("restartPolicy") == "Always"),
    ]
    for container in containers:
        for port in get_list(container, "ports"):
            if port.get("name") == target and port.get("protocol", "TCP") == protocol:
                return int(port["containerPort"])
    return None


def ports(service: JsonObject, pod: JsonObject) -> list[JsonObject]:
    """The endpoint ports of a pod, in the order of the service's ports; those it lacks are left out."""
    result = []
    for service_port in get_list(service, "spec", "ports"):
        number = target_port(service_port, pod)
        if number is None:
            continue
        port: JsonObject = {"port": number, "protocol": service_port.get("protocol", "TCP")}
        if service_port.get("name"):
            port["name"] = service_port["name"]
        if service_port.get("appProtocol"):
            port["appProtocol"] = service_port["appProtocol"]
        result.append(port)
    return result


def hostname(service: JsonObject, pod: JsonObject) -> str:
    """The name of the pod below the service's, where it has one."""
    name = get_str(pod, "spec", "hostname")
    subdomain = get_str(pod, "spec", "subdomain")
    same = subdomain == meta.name(service) and meta.namespace(pod) == meta.namespace(service)
    return name if name and same else ""


def reference(pod: JsonObject) -> JsonObject:
    """The reference to a pod in an endpoint."""
    return {
        "kind": "Pod",
        "namespace": meta.namespace(pod),
        "name": meta.name(pod),
        "uid": meta.uid(pod),
    }


def includes(pod: JsonObject, *, terminating: bool) -> bool:
    """Whether the pod is an endpoint at all: it has an address and has not ended."""
    if pod_facts.is_finished(pod) or not (addresses(pod, "IPv4") or addresses(pod, "IPv6")):
        return False
    return terminating or not meta.is_being_deleted(pod)


def subsets(service: JsonObject, pods: Iterable[JsonObject]) -> list[JsonObject]:
    """The subsets of the service's Endpoints: addresses grouped by the ports they offer."""
    family = families(service)[0]
    groups: dict[tuple[tuple[str, object], ...], JsonObject] = {}
    unready_ok = publishes_unready(service)
    for pod in sorted(pods, key=meta.name):
        found = addresses(pod, family)
        if not includes(pod, terminating=unready_ok) or not found:
            continue
        offered = ports(service, pod)
        if not offered and not (is_headless(service) and not get_list(service, "spec", "ports")):
            continue
        entry: JsonObject = {"ip": found[0]}
        if hostname(service, pod):
            entry["hostname"] = hostname(service, pod)
        if get_str(pod, "spec", "nodeName"):
            entry["nodeName"] = get_str(pod, "spec", "nodeName")
        entry["targetRef"] = reference(pod)
        ready = unready_ok or pod_facts.is_ready(pod)
        if not ready and get_str(pod, "spec", "restartPolicy") == "Never" and pod_facts.is_finished(pod):
            continue
        key = tuple(
            (str(port.get("name", "")), (port["port"], port["protocol"], port.get("appProtocol")))
            for port in offered
        )
        group = groups.setdefault(key, {"ports": offered})
        group.setdefault("addresses" if ready else "notReadyAddresses", []).append(entry)
    return [_subset(groups[key]) for key in sorted(groups, key=str)]


def _subset(group: JsonObject) -> JsonObject:
    result: JsonObject = {}
    for name in ("addresses", "notReadyAddresses"):
        if group.get(name):
            result[name] = sorted(group[name], key=lambda entry: (entry["ip"], entry["targetRef"]["uid"]))
    if group["ports"]:
        result["ports"] = group["ports"]
    return result


def slice_endpoint(service: JsonObject, pod: JsonObject, family: Family, zone: str) -> JsonObject:
    """The endpoint of a pod in a slice."""
    serving = pod_facts.is_ready(pod)
    terminating = meta.is_being_deleted(pod)
    endpoint: JsonObject = {
        "addresses": addresses(pod, family)[:1],
        "conditions": {
            "ready": publishes_unready(service) or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
    }
    if hostname(service, pod):
        endpoint["hostname"] = hostname(service, pod)
    if get_str(pod, "spec", "nodeName"):
        endpoint["nodeName"] = get_str(pod, "spec", "nodeName")
    endpoint["targetRef"] = reference(pod)
    if zone:
        endpoint["zone"] = zone
    return endpoint


def pods_of(service: JsonObject, pods: Sequence[JsonObject]) -> list[JsonObject]:
    """The pods that the service's selector matches."""
    wanted = get_object(service, "spec", "selector")
    return [pod for pod in pods if wanted.items() <= meta.labels(pod).items()]
