"""Services: types, ports, addresses, policies; what may change; warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kindling.apiserver.kinds.machinery.checks import (
    CIDR,
    address,
    in_range,
    messages,
    one_of,
    parse_address,
    parse_network,
    port,
    port_or_name,
    remote_address,
)
from kindling.apiserver.kinds.machinery.fields import check_fields, choice, given, must, named
from kubecore.json import JsonObject, get_int, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kubecore.objects.selectors import validate_labels

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
EXPOSED = ("NodePort", "LoadBalancer")
PROTOCOLS = ("SCTP", "TCP", "UDP")
MAX_AFFINITY_SECONDS = 86400
_SPEC = FieldPath("spec")
_DEFAULT_AFFINITY_SECONDS = 10800


def validate_service(service: JsonObject) -> Iterator[FieldError]:
    """All rules of a service except the allocation of its addresses."""
    spec = get_object(service, "spec")
    kind, headless = spec.get("type", ""), spec.get("clusterIP") == "None"
    ports = get_list(spec, "ports")
    if not ports and not headless and kind != "ExternalName":
        yield required(_SPEC.child("ports"))
    yield from _validate_type(spec, kind, ports)
    yield from _validate_ports(ports)
    if spec.get("selector"):
        yield from validate_labels(spec["selector"], _SPEC.child("selector"))
    yield from _validate_affinity(spec)
    yield from _validate_cluster_ips(spec)
    for position, value in enumerate(get_list(spec, "externalIPs")):
        at = _SPEC.child("externalIPs").index(position)
        yield from address(at, value) or remote_address(at, value)
    if kind not in TYPES:
        yield not_supported(_SPEC.child("type"), kind, TYPES) if kind else required(_SPEC.child("type"))
    if kind == "ClusterIP":
        for position, item in enumerate(ports):
            if item.get("nodePort"):
                at = _SPEC.child("ports").index(position).child("nodePort")
                yield forbidden(at, "may not be used when `type` is 'ClusterIP'")
    yield from _validate_node_ports(ports)
    yield from _validate_source_ranges(spec, kind)
    yield from _validate_load_balancer(spec, kind)
    yield from _validate_policies(spec, kind)


def _validate_type(spec: JsonObject, kind: str, ports: list[JsonObject]) -> Iterator[FieldError]:
    if kind == "LoadBalancer":
        for position, item in enumerate(ports):
            if item.get("port") == 10250:
                text = "may not expose port 10250 externally since it is used by kubelet"
                yield invalid(_SPEC.child("ports").index(position), _port_dump(item), text)
        if spec.get("clusterIP") == "None":
            text = "may not be set to 'None' for LoadBalancer services"
            yield invalid(_SPEC.child("clusterIPs").index(0), "None", text)
    elif kind == "NodePort":
        if spec.get("clusterIP") == "None":
            text = "may not be set to 'None' for NodePort services"
            yield invalid(_SPEC.child("clusterIPs").index(0), "None", text)
    elif kind == "ExternalName":
        for field in ("clusterIP", "clusterIPs"):
            if spec.get(field):
                yield forbidden(_SPEC.child(field), "may not be set for ExternalName services")
        for field in ("ipFamilies", "ipFamilyPolicy"):
            if spec.get(field):
                yield forbidden(_SPEC.child(field), "may not be set for ExternalName services")
        name = spec.get("externalName", "")
        if name:
            yield from messages(
                _SPEC.child("externalName"), name.removesuffix("."), names.is_dns1123_subdomain
            )
        else:
            yield required(_SPEC.child("externalName"))


def _port_dump(item: Mapping[str, Any]) -> JsonObject:
    return {
        "Name": item.get("name", ""),
        "Protocol": item.get("protocol", ""),
        "AppProtocol": item.get("appProtocol"),
        "Port": item.get("port", 0),
        "TargetPort": item.get("targetPort", 0),
        "NodePort": item.get("nodePort", 0),
    }


def _validate_ports(ports: list[JsonObject]) -> Iterator[FieldError]:
    seen_names: set[str] = set()
    seen: set[tuple[Any, Any]] = set()
    for position, item in enumerate(ports):
        here = _SPEC.child("ports").index(position)
        name, protocol = item.get("name", ""), item.get("protocol", "")
        if len(ports) > 1 and not name:
            yield required(here.child("name"))
        elif name:
            yield from messages(here.child("name"), name, names.is_dns1123_label)
            if name in seen_names:
                yield duplicate(here.child("name"), name)
            seen_names.add(name)
        yield from port(here.child("port"), item.get("port", 0))
        yield from check_fields(item, here, must("protocol", choice(*PROTOCOLS)))
        yield from port_or_name(here.child("targetPort"), item.get("targetPort", 0))
        yield from check_fields(item, here, given("appProtocol", named(names.is_qualified_name)))
        key = (protocol, item.get("port"))
        if key in seen:
            yield duplicate(here, _port_dump({"protocol": protocol, "port": item.get("port")}))
        seen.add(key)


def _validate_node_ports(ports: list[JsonObject]) -> Iterator[FieldError]:
    seen: set[tuple[Any, Any]] = set()
    for position, item in enumerate(ports):
        if not item.get("nodePort"):
            continue
        key = (item.get("protocol"), item["nodePort"])
        if key in seen:
            yield duplicate(_SPEC.child("ports").index(position).child("nodePort"), item["nodePort"])
        seen.add(key)


def _validate_affinity(spec: JsonObject) -> Iterator[FieldError]:
    affinity = spec.get("sessionAffinity", "")
    if not affinity:
        yield required(_SPEC.child("sessionAffinity"))
        return
    yield from one_of(_SPEC.child("sessionAffinity"), affinity, ("ClientIP", "None"))
    config = spec.get("sessionAffinityConfig")
    if affinity == "ClientIP" and isinstance(config, dict):
        seconds = get_object(config, "clientIP").get("timeoutSeconds", 0)
        at = _SPEC.child("sessionAffinityConfig", "clientIP", "timeoutSeconds")
        if not 0 < seconds <= MAX_AFFINITY_SECONDS:
            yield invalid(at, seconds, f"must be greater than 0 and less than {MAX_AFFINITY_SECONDS}")
    elif affinity == "None" and config is not None:
        yield forbidden(_SPEC.child("sessionAffinityConfig"), "must not be set when session affinity is None")


def _validate_cluster_ips(spec: JsonObject) -> Iterator[FieldError]:
    values = get_list(spec, "clusterIPs")
    first = spec.get("clusterIP", "")
    at = _SPEC.child("clusterIPs")
    if spec.get("type") == "ExternalName":
        return
    if values and first != values[0]:
        yield invalid(at, values, "first value must match `clusterIP`")
    if len(values) > 2:
        yield invalid(at, values, "may only hold up to 2 values")
    for position, value in enumerate(values):
        if value == "None":
            if len(values) > 1:
                yield invalid(at, values, "'None' must be the first and only value")
            continue
        if value:
            yield from address(at.index(position), value)
    families = get_list(spec, "ipFamilies")
    for position, family in enumerate(families):
        if family not in ("IPv4", "IPv6"):
            yield not_supported(_SPEC.child("ipFamilies").index(position), family, ["IPv4", "IPv6"])
        elif family == "IPv6" and first != "None":
            # One address family is configured: IPv4.
            yield invalid(_SPEC.child("ipFamilies").index(position), family, "not configured on this cluster")
    policy = spec.get("ipFamilyPolicy")
    if policy is not None:
        allowed = ("PreferDualStack", "RequireDualStack", "SingleStack")
        yield from one_of(_SPEC.child("ipFamilyPolicy"), policy, allowed)
        if policy == "RequireDualStack" and first != "None":
            text = "this cluster is not configured for dual-stack services"
            yield invalid(_SPEC.child("ipFamilyPolicy"), policy, text)
    for position, (value, family) in enumerate(zip(values, families, strict=False)):
        parsed = parse_address(value)
        if parsed is not None and f"IPv{parsed.version}" != family:
            text = f"expected an {family} value as indicated by `ipFamilies[{position}]`"
            yield invalid(at.index(position), value, text)


def _validate_source_ranges(spec: JsonObject, kind: str) -> list[FieldError]:
    ranges = get_list(spec, "loadBalancerSourceRanges")
    at = _SPEC.child("LoadBalancerSourceRanges")
    if not ranges:
        return []
    if kind != "LoadBalancer":
        return [forbidden(at, "may only be used when `type` is 'LoadBalancer'")]
    return [
        invalid(at.index(position), value, CIDR)
        for position, value in enumerate(ranges)
        if parse_network(str(value).strip()) is None
    ]


def _validate_load_balancer(spec: JsonObject, kind: str) -> Iterator[FieldError]:
    if spec.get("allocateLoadBalancerNodePorts") is not None and kind != "LoadBalancer":
        text = "may only be used when `type` is 'LoadBalancer'"
        yield forbidden(_SPEC.child("allocateLoadBalancerNodePorts"), text)
    if spec.get("loadBalancerClass") is not None:
        at = _SPEC.child("loadBalancerClass")
        if kind != "LoadBalancer":
            yield forbidden(at, "may only be used when `type` is 'LoadBalancer'")
        else:
            yield from messages(at, spec["loadBalancerClass"], names.is_qualified_name)


def _validate_policies(spec: JsonObject, kind: str) -> Iterator[FieldError]:
    external = spec.get("externalTrafficPolicy", "")
    accessible = kind in EXPOSED or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    at = _SPEC.child("externalTrafficPolicy")
    if external:
        if not accessible:
            yield invalid(at, external, "may only be set for externally-accessible services")
        else:
            yield from one_of(at, external, ("Cluster", "Local"))
    elif accessible:
        yield required(at)
    check = spec.get("healthCheckNodePort")
    if check:
        needed = kind == "LoadBalancer" and external == "Local"
        here = _SPEC.child("healthCheckNodePort")
        if not needed:
            text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            yield invalid(here, check, text)
        else:
            yield from in_range(here, check, 1, 65535)
    internal = spec.get("internalTrafficPolicy")
    if internal is None:
        if kind in ("ClusterIP", *EXPOSED):
            yield required(_SPEC.child("internalTrafficPolicy"))
    else:
        yield from one_of(_SPEC.child("internalTrafficPolicy"), internal, ("Cluster", "Local"))
    yield from check_fields(
        spec, _SPEC, given("trafficDistribution", choice("PreferClose", "PreferSameNode", "PreferSameZone"))
    )


def validate_service_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A change: the address stays unless the type says otherwise."""
    spec, before = get_object(new, "spec"), get_object(old, "spec")
    kept = "ExternalName" not in (spec.get("type"), before.get("type"))
    if kept and before.get("clusterIP"):
        known, given = get_list(before, "clusterIPs"), get_list(spec, "clusterIPs")
        if given[:1] != known[:1]:
            yield invalid(_SPEC.child("clusterIPs").index(0), given, "may not change once set")
    families, known_families = get_list(spec, "ipFamilies"), get_list(before, "ipFamilies")
    if kept and families and known_families and families[0] != known_families[0]:
        yield invalid(_SPEC.child("ipFamilies").index(0), families, "may not change once set")
    wanted = spec.get("loadBalancerClass")
    if before.get("type") == spec.get("type") == "LoadBalancer" and wanted != before.get("loadBalancerClass"):
        yield invalid(_SPEC.child("loadBalancerClass"), wanted, "may not change once set")
    yield from validate_service(new)


def validate_service_status(service: JsonObject) -> Iterator[FieldError]:
    """Addresses of load balancers (of services that are none: nothing), and conditions."""
    status, path = get_object(service, "status"), FieldPath("status")
    points = get_list(status, "loadBalancer", "ingress")
    at = path.child("loadBalancer", "ingress")
    if points and get_object(service, "spec").get("type") != "LoadBalancer":
        yield forbidden(at, 'may only be used when `spec.type` is "LoadBalancer"')
        return
    for position, point in enumerate(points):
        here = at.index(position)
        if point.get("ip"):
            yield from address(here.child("ip"), point["ip"])
            yield from check_fields(point, here, given("ipMode", choice("Proxy", "VIP")))
        elif point.get("ipMode") is not None:
            yield forbidden(here.child("ipMode"), "may not be specified when `ip` is not set")
        host = point.get("hostname")
        if host:
            yield from messages(here.child("hostname"), host, names.is_dns1123_subdomain)
            if parse_address(host) is not None:
                yield invalid(here.child("hostname"), host, "must be a DNS name, not an IP address")


def service_warnings(service: JsonObject, old: JsonObject | None) -> list[str]:
    """Deprecated and pointless settings."""
    spec = get_object(service, "spec")
    before = get_object(old, "spec") if old else {}
    annotations = get_object(service, "metadata", "annotations")
    found = []
    if "service.kubernetes.io/topology-aware-hints" in annotations:
        found.append(
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, "
            "please use service.kubernetes.io/topology-mode instead"
        )
    if spec.get("externalIPs") and spec.get("externalIPs") != before.get("externalIPs"):
        found.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    if spec.get("type") == "ExternalName" and spec.get("externalIPs"):
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if spec.get("type") != "ExternalName" and spec.get("externalName"):
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("clusterIP") == "None":
        if spec.get("loadBalancerIP"):
            found.append("spec.loadBalancerIP is ignored for headless services")
        if spec.get("externalIPs"):
            found.append("spec.externalIPs is ignored for headless services")
        if spec.get("sessionAffinity") not in (None, "None"):
            found.append("spec.SessionAffinity is ignored for headless services")
    if (
        spec.get("trafficDistribution") == "PreferClose"
        and before.get("trafficDistribution") != "PreferClose"
    ):
        found.append("spec.trafficDistribution: PreferClose is deprecated; use PreferSameZone")
    if _affinity_seconds(spec) not in (_DEFAULT_AFFINITY_SECONDS, _affinity_seconds(before)):
        found.append(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds has no effect: affinity does not end with "
            "time here; clients stay with their endpoint until the service's endpoints change"
        )
    return found


def _affinity_seconds(spec: JsonObject) -> int:
    return get_int(
        spec, "sessionAffinityConfig", "clientIP", "timeoutSeconds", default=_DEFAULT_AFFINITY_SECONDS
    )
