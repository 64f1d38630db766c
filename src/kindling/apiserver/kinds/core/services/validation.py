"""Services: types, ports, addresses, policies; what may change; warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.address_forms import address_warnings, cidr_warnings
from kindling.apiserver.kinds.machinery.checks import (
    address,
    are_repeats,
    cidr,
    not_an_address,
    one_of,
    parse_address,
    port,
    port_or_name,
    remote_address,
)
from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)

from .families import FAMILIES, PREFER, REQUIRE, SINGLE, unchangeable

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
EXPOSED = ("NodePort", "LoadBalancer")
MAX_AFFINITY_SECONDS = 86400
_SPEC = FieldPath("spec")
_ONLY_BALANCED = "may only be used when `type` is 'LoadBalancer'"
_NOT_EXTERNAL = "may not be set for ExternalName services"
_FOR_LOCAL = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
_INTERNAL_PORT = {"Name": "", "Protocol": "", "AppProtocol": None, "Port": 0, "TargetPort": 0, "NodePort": 0}
_BALANCED, _EXTERNAL = f.equals("type", "LoadBalancer"), f.equals("type", "ExternalName")


def _not_headless(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    kind = spec.get("type")
    if kind in EXPOSED and spec.get("clusterIP") == "None":
        text = f"may not be set to 'None' for {kind} services"
        yield invalid(path.child("clusterIPs").index(0), "None", text)


def _not_kubelet(path: FieldPath, item: JsonObject) -> Iterator[FieldError]:
    if item.get("port") == 10250:
        text = "may not expose port 10250 externally since it is used by kubelet"
        yield invalid(path, internal_form(item, _INTERNAL_PORT), text)


def _without_dot(path: FieldPath, name: str) -> Iterable[FieldError]:
    return f.SUBDOMAIN(path, name.removesuffix("."))


def _ports(path: FieldPath, ports: list[JsonObject]) -> Iterator[FieldError]:
    seen_names: set[str] = set()
    seen: set[tuple[Any, Any]] = set()
    for position, item in enumerate(ports):
        here, name = path.index(position), item.get("name", "")
        yield from f.check_fields(
            item, here, f.must("name", f.LABEL) if len(ports) > 1 else f.may("name", f.LABEL)
        )
        if name and name in seen_names:
            yield duplicate(here.child("name"), name)
        seen_names.add(name)
        yield from f.check_fields(item, here, *_PORT)
        shown = {"protocol": item.get("protocol", ""), "port": item.get("port")}
        key = (shown["protocol"], shown["port"])
        if key in seen:
            yield duplicate(here, internal_form(shown, _INTERNAL_PORT))
        seen.add(key)


_PORT = (
    f.always("port", 0, port),
    f.must("protocol", f.PROTOCOL),
    f.always("targetPort", 0, port_or_name),
    f.given("appProtocol", f.QUALIFIED),
)


def _node_ports(path: FieldPath, ports: list[JsonObject]) -> Iterator[FieldError]:
    seen: set[tuple[Any, Any]] = set()
    for position, item in enumerate(ports):
        key = (item.get("protocol"), item.get("nodePort"))
        if key[1] and key in seen:
            yield duplicate(path.index(position).child("nodePort"), key[1])
        seen.add(key)


_AFFINITY_TEXT = f"must be greater than 0 and less than {MAX_AFFINITY_SECONDS}"
_SECONDS = f.between(1, MAX_AFFINITY_SECONDS, _AFFINITY_TEXT)
_AFFINITY = (
    f.must("sessionAffinity", f.choice("ClientIP", "None")),
    f.when(
        f.equals("sessionAffinity", "ClientIP"),
        f.given("sessionAffinityConfig", f.part("clientIP", f.always("timeoutSeconds", 0, _SECONDS))),
    ),
    f.when(
        f.equals("sessionAffinity", "None"),
        f.absent("must not be set when session affinity is None", "sessionAffinityConfig"),
    ),
)


def _cluster_ips(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    values, families = get_list(spec, "clusterIPs"), get_list(spec, "ipFamilies")
    first = spec.get("clusterIP", "")
    at = path.child("clusterIPs")
    if first and not values:
        yield required(at)
    elif first and first != values[0]:
        yield invalid(at, values, "first value must match `clusterIP`")
    elif values and not first:
        yield invalid(at, values, "must be empty when `clusterIP` is not specified")
    for position, (family, is_repeat) in enumerate(zip(families, are_repeats(families), strict=True)):
        if family not in FAMILIES:
            yield not_supported(path.child("ipFamilies").index(position), family, list(FAMILIES))
        if is_repeat:
            yield duplicate(path.child("ipFamilies").index(position), family)
    if spec.get("ipFamilyPolicy") is not None:
        yield from one_of(path.child("ipFamilyPolicy"), spec["ipFamilyPolicy"], (PREFER, REQUIRE, SINGLE))
    problems = list(_each_address(at, values))
    yield from problems
    if len(values) > 2:
        yield invalid(at, values, "may only hold up to 2 values")
    if problems or first == "None":
        return
    versions = [parsed.version for parsed in map(parse_address, values) if parsed is not None]
    if len(versions) > 1 and len(set(versions)) == 1:
        yield invalid(at, values, "may specify no more than one IP for each IP family")
    for position, (value, version, family) in enumerate(zip(values, versions, families, strict=False)):
        if f"IPv{version}" != family and family in FAMILIES:
            text = f"expected an {family} value as indicated by `ipFamilies[{position}]`"
            yield invalid(at.index(position), value, text)


def _each_address(at: FieldPath, values: list[str]) -> Iterator[FieldError]:
    for position, value in enumerate(values):
        if value != "None" or position:
            yield from address(at.index(position), value)
        elif len(values) > 1:
            yield invalid(at, values, "'None' must be the first and only value")


def validate_addresses(service: JsonObject) -> Iterator[FieldError]:
    """The addresses and families that a service asks for, whatever the cluster has."""
    spec = get_object(service, "spec")
    if not _EXTERNAL(spec):
        yield from _cluster_ips(_SPEC, spec)


def _source_ranges(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    ranges, at = get_list(spec, "loadBalancerSourceRanges"), path.child("LoadBalancerSourceRanges")
    if ranges and spec.get("type") != "LoadBalancer":
        yield forbidden(at, _ONLY_BALANCED)
        return
    for position, value in enumerate(ranges):
        yield from cidr(at.index(position), value.strip())


def _external_policy(path: FieldPath, spec: JsonObject) -> Iterable[FieldError]:
    kind, policy = spec.get("type"), spec.get("externalTrafficPolicy", "")
    accessible = kind in EXPOSED or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    if policy and not accessible:
        text = "may only be set for externally-accessible services"
        return [invalid(path.child("externalTrafficPolicy"), policy, text)]
    return f.check_fields(spec, path, f.must("externalTrafficPolicy", _NEAR)) if accessible else ()


def _health_check(path: FieldPath, spec: JsonObject) -> Iterable[FieldError]:
    number = spec.get("healthCheckNodePort")
    if not number or (_BALANCED(spec) and spec.get("externalTrafficPolicy") == "Local"):
        return f.check_fields(spec, path, f.may("healthCheckNodePort", port))
    return [invalid(path.child("healthCheckNodePort"), number, _FOR_LOCAL)]


def _external_address(path: FieldPath, value: str) -> list[FieldError]:
    return address(path, value) or remote_address(path, value)


_NEAR = f.choice("Cluster", "Local")
_LOAD_BALANCER_CLASS: tuple[f.Row, ...] = (
    f.unless(_BALANCED, f.absent(_ONLY_BALANCED, "loadBalancerClass")),
    f.when(_BALANCED, f.given("loadBalancerClass", f.QUALIFIED)),
)
validate_service = f.spec(
    f.unless(lambda spec: spec.get("clusterIP") == "None" or _EXTERNAL(spec), f.must("ports")),
    f.when(_BALANCED, f.may("ports", f.items(_not_kubelet))),
    _not_headless,
    f.when(
        _EXTERNAL,
        f.never(_NOT_EXTERNAL, "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"),
        f.must("externalName", _without_dot),
    ),
    f.may("ports", _ports),
    f.may("selector", f.labels),
    *_AFFINITY,
    f.unless(_EXTERNAL, _cluster_ips),
    f.may("externalIPs", f.items(_external_address)),
    f.must("type", f.choice(*TYPES)),
    f.when(
        f.equals("type", "ClusterIP"),
        f.may("ports", f.items(f.never("may not be used when `type` is 'ClusterIP'", "nodePort"))),
    ),
    f.may("ports", _node_ports),
    _source_ranges,
    f.unless(_BALANCED, f.absent(_ONLY_BALANCED, "allocateLoadBalancerNodePorts")),
    *_LOAD_BALANCER_CLASS,
    _external_policy,
    _health_check,
    f.when(f.equals("type", "ClusterIP", *EXPOSED), f.must("internalTrafficPolicy", given=True)),
    f.given("internalTrafficPolicy", _NEAR),
    f.given("trafficDistribution", f.choice("PreferClose", "PreferSameNode", "PreferSameZone")),
)
"""All rules of a service except the allocation of its addresses."""


def validate_service_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """On updates, clusterIP is immutable unless the type changes accordingly."""
    spec, before = get_object(new, "spec"), get_object(old, "spec")
    yield from unchangeable(spec, before)
    wanted = spec.get("loadBalancerClass")
    if before.get("type") == spec.get("type") == "LoadBalancer" and wanted != before.get("loadBalancerClass"):
        yield invalid(_SPEC.child("loadBalancerClass"), wanted, "may not change once set")
    # Judged with the change and with the whole service: the server reports the findings of both.
    yield from f.check_fields(spec, _SPEC, *_LOAD_BALANCER_CLASS)
    yield from validate_service(new)


def _has_ip(point: JsonObject) -> bool:
    return bool(point.get("ip"))


_POINTS = f.items(
    f.may("ip", address),
    f.when(_has_ip, f.given("ipMode", f.choice("Proxy", "VIP"))),
    f.unless(_has_ip, f.absent("may not be specified when `ip` is not set", "ipMode")),
    f.may("hostname", f.SUBDOMAIN, not_an_address),
)


def validate_service_status(service: JsonObject, old: JsonObject) -> Iterable[FieldError]:
    """The status: load balancer addresses (only services of that type may have some), and conditions."""
    balancer: f.Row = f.may("ingress", _POINTS)
    if not _BALANCED(get_object(service, "spec")):
        balancer = f.never("may only be used when `spec.type` is 'LoadBalancer'", "ingress")
    return f.status(f.part("loadBalancer", balancer))(service, old)


def _form_warnings(spec: JsonObject) -> Iterator[str]:
    """Addresses that are not in canonical form."""
    shared = ("externalIPs",) if spec.get("clusterIP") == "None" else ("clusterIPs", "externalIPs")
    for field in shared:
        for position, value in enumerate(get_list(spec, field)):
            yield from address_warnings(_SPEC.child(field).index(position), value)
    yield from address_warnings(_SPEC.child("loadBalancerIP"), spec.get("loadBalancerIP"))
    for position, block in enumerate(get_list(spec, "loadBalancerSourceRanges")):
        yield from cidr_warnings(_SPEC.child("loadBalancerSourceRanges").index(position), block)


def service_warnings(service: JsonObject, old: JsonObject | None) -> Iterator[str]:
    """Deprecated and pointless settings."""
    spec = get_object(service, "spec")
    before = get_object(old, "spec") if old else {}
    annotations = get_object(service, "metadata", "annotations")
    if "service.kubernetes.io/topology-aware-hints" in annotations:
        yield (
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, "
            "please use service.kubernetes.io/topology-mode instead"
        )
    yield from _form_warnings(spec)
    if spec.get("externalIPs") and spec.get("externalIPs") != before.get("externalIPs"):
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.get("type") == "ExternalName" and spec.get("externalIPs"):
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if spec.get("type") != "ExternalName" and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("clusterIP") == "None":
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if spec.get("externalIPs"):
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity") not in (None, "None"):
            yield "spec.SessionAffinity is ignored for headless services"
    if (
        spec.get("trafficDistribution") == "PreferClose"
        and before.get("trafficDistribution") != "PreferClose"
    ):
        yield "spec.trafficDistribution: PreferClose is deprecated; use PreferSameZone"
