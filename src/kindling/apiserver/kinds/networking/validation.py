"""Objects of networking.k8s.io."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from kindling.apiserver.kinds.machinery.checks import (
    address,
    cidr,
    immutable,
    messages,
    one_of,
    parse_address,
    parse_network,
    port,
)
from kindling.apiserver.kinds.machinery.fields import check_fields, choice, given, may, must, named
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    Verbatim,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from kubecore.objects.selectors import validate_label_selector_object

CLASS_ANNOTATION = "kubernetes.io/ingress.class"
PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_SPEC = FieldPath("spec")
_BAD_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_BAD_SUFFIXES = ("/..", "/.")
PROTOCOLS = ("SCTP", "TCP", "UDP")


def validate_ingress(obj: JsonObject, *, create: bool) -> Iterator[FieldError]:
    """Rules or a default backend; hosts, paths and certificates."""
    spec = get_object(obj, "spec")
    annotations = get_object(obj, "metadata", "annotations")
    if create and CLASS_ANNOTATION in annotations and spec.get("ingressClassName") is not None:
        at = FieldPath("annotations").child(CLASS_ANNOTATION)
        yield invalid(at, annotations[CLASS_ANNOTATION], "can not be set when the class field is also set")
    rules, backend = get_list(spec, "rules"), spec.get("defaultBackend")
    if not rules and backend is None:
        yield invalid(_SPEC, Verbatim("null"), "either `defaultBackend` or `rules` must be specified")
    if isinstance(backend, dict):
        yield from _validate_backend(backend, _SPEC.child("defaultBackend"))
    for position, rule in enumerate(rules):
        yield from _validate_rule(rule, _SPEC.child("rules").index(position))
    for position, tls in enumerate(get_list(spec, "tls")):
        for number, host in enumerate(get_list(tls, "hosts")):
            at = _SPEC.child("tls").index(position).child("hosts").index(number)
            yield from _host(host, at)
        at = _SPEC.child("tls").index(position)
        yield from check_fields(tls, at, may("secretName", named(names.is_dns1123_subdomain)))
    yield from check_fields(spec, _SPEC, given("ingressClassName", named(names.is_dns1123_subdomain)))


def _host(host: str, path: FieldPath) -> list[FieldError]:
    check = names.is_wildcard_dns1123_subdomain if "*" in host else names.is_dns1123_subdomain
    return messages(path, host, check)


def _validate_rule(rule: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    host = rule.get("host", "")
    if host:
        if parse_address(host) is not None:
            yield invalid(path.child("host"), host, "must be a DNS name, not an IP address")
        else:
            yield from _host(host, path.child("host"))
    http = rule.get("http")
    if not isinstance(http, dict):
        return
    paths = http.get("paths") or []
    at = path.child("http", "paths")
    if not paths:
        yield required(at)
    for position, item in enumerate(paths):
        yield from _validate_path(item, at.index(position))


def _validate_path(item: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    kind, value = item.get("pathType"), item.get("path", "")
    if kind is None:
        yield required(path.child("pathType"), "pathType must be specified")
        return
    at = path.child("path")
    if kind in ("Exact", "Prefix"):
        if not value.startswith("/"):
            yield invalid(at, value, "must be an absolute path")
        if value:
            for sequence in _BAD_SEQUENCES:
                if sequence in value:
                    yield invalid(at, value, f"must not contain '{sequence}'")
            for suffix in _BAD_SUFFIXES:
                if value.endswith(suffix):
                    yield invalid(at, value, f"cannot end with '{suffix}'")
    elif kind == "ImplementationSpecific":
        if value and not value.startswith("/"):
            yield invalid(at, value, "must be an absolute path")
    else:
        yield not_supported(path.child("pathType"), kind, PATH_TYPES)
    yield from _validate_backend(get_object(item, "backend"), path.child("backend"))


def _validate_backend(backend: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield invalid(path, "", "cannot set both resource and service backends")
        return
    if resource is not None:
        yield from (
            required(path.child("resource", field)) for field in ("kind", "name") if not resource.get(field)
        )
        return
    if not isinstance(service, dict):
        yield invalid(path, "", "resource or service backend is required")
        return
    name = service.get("name", "")
    if not name:
        yield required(path.child("service", "name"))
    else:
        yield from messages(path.child("service", "name"), name, names.is_dns1123_label)
    target = get_object(service, "port")
    if target.get("name") and target.get("number"):
        yield invalid(path, "", "cannot set both port name & port number")
    elif target.get("name"):
        yield from messages(path.child("service", "port", "name"), target["name"], names.is_port_name)
    elif target.get("number"):
        yield from port(path.child("service", "port", "number"), target["number"])
    else:
        yield required(path, "port name or number is required")


def validate_load_balancer(balancer: Mapping[str, Any]) -> Iterator[FieldError]:
    """Addresses in a status: IPs or host names."""
    for position, point in enumerate(balancer.get("ingress") or ()):
        at = FieldPath("status", "loadBalancer", "ingress").index(position)
        yield from check_fields(point, at, may("ip", address))
        host = point.get("hostname")
        if host:
            yield from messages(at.child("hostname"), host, names.is_dns1123_subdomain)
            if parse_address(host) is not None:
                yield invalid(at.child("hostname"), host, "must be a DNS name, not an IP address")


def ingress_warnings(obj: JsonObject, old: JsonObject | None) -> list[str]:
    """The annotation that the class field replaced."""
    if CLASS_ANNOTATION in get_object(obj, "metadata", "annotations"):
        before = get_object(old, "metadata", "annotations") if old else {}
        if CLASS_ANNOTATION not in before:
            return [
                f"annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"
            ]
    return []


def validate_ingress_class(obj: JsonObject) -> Iterator[FieldError]:
    """A controller, and parameters of one scope."""
    spec = get_object(obj, "spec")
    controller = spec.get("controller", "")
    at = _SPEC.child("controller")
    if len(controller) > 250:
        yield too_long(at, 250)
    yield from _domain_prefixed_path(controller, at)
    parameters = spec.get("parameters")
    if isinstance(parameters, dict):
        yield from _validate_parameters(parameters, _SPEC.child("parameters"))


def _domain_prefixed_path(value: str, path: FieldPath) -> list[FieldError]:
    if not value:
        return [required(path)]
    host, slash, rest = value.partition("/")
    if not slash or not host or not rest:
        return [invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    return messages(path, host, names.is_dns1123_subdomain)


def _validate_parameters(parameters: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    yield from check_fields(parameters, path, may("apiGroup", named(names.is_dns1123_subdomain)))
    for field in ("kind", "name"):
        yield from check_fields(
            parameters, path, must(field, named(names.is_path_segment_name), f"{field} is required")
        )
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        yield required(path.child("scope"))
        return
    if scope not in ("Cluster", "Namespace"):
        yield not_supported(path.child("scope"), scope, ["Cluster", "Namespace"])
    if scope == "Namespace" and namespace is not None:
        yield from messages(path.child("namespace"), namespace, names.is_dns1123_label)
    elif scope == "Namespace":
        yield required(path.child("namespace"), "`parameters.scope` is set to 'Namespace'")
    if scope == "Cluster" and namespace is not None:
        yield forbidden(path.child("namespace"), "`parameters.scope` is set to 'Cluster'")


def validate_network_policy(obj: JsonObject) -> Iterator[FieldError]:
    """Selectors, peers and ports."""
    spec = get_object(obj, "spec")
    yield from validate_label_selector_object(spec.get("podSelector"), _SPEC.child("podSelector"))
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for position, rule in enumerate(get_list(spec, direction)):
            at = _SPEC.child(direction).index(position)
            for number, item in enumerate(get_list(rule, "ports")):
                yield from _validate_policy_port(item, at.child("ports").index(number))
            for number, peer in enumerate(get_list(rule, peers)):
                yield from _validate_peer(peer, at.child(peers).index(number))
    types = get_list(spec, "policyTypes")
    if len(types) > 2:
        yield invalid(_SPEC.child("policyTypes"), types, "may not specify more than two policyTypes")
        return
    for position, kind in enumerate(types):
        yield from one_of(_SPEC.child("policyTypes").index(position), kind, ("Ingress", "Egress"))


def _validate_policy_port(item: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    number, end = item.get("port"), item.get("endPort")
    yield from check_fields(item, path, given("protocol", choice(*PROTOCOLS)))
    if number is None:
        if end is not None:
            yield invalid(path.child("endPort"), end, "may not be specified when `port` is not specified")
    elif isinstance(number, str):
        if end is not None:
            yield invalid(path.child("endPort"), end, "may not be specified when `port` is non-numeric")
        yield from messages(path.child("port"), number, names.is_port_name)
    else:
        yield from port(path.child("port"), number)
        if end is not None:
            if end < number:
                yield invalid(path.child("endPort"), number, "must be greater than or equal to `port`")
            yield from port(path.child("endPort"), end)


def _validate_peer(peer: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    count = 0
    for field in ("podSelector", "namespaceSelector"):
        if peer.get(field) is not None:
            count += 1
            yield from validate_label_selector_object(peer[field], path.child(field))
    block = peer.get("ipBlock")
    if isinstance(block, dict):
        count += 1
        yield from _validate_block(block, path.child("ipBlock"))
        if count > 1:
            yield forbidden(path, "may not specify both ipBlock and another peer")
    if not count:
        yield required(path, "must specify a peer")


def _validate_block(block: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    whole = block.get("cidr", "")
    if not whole:
        yield required(path.child("cidr"))
        return
    yield from cidr(path.child("cidr"), whole)
    outer = parse_network(whole)
    for position, part in enumerate(get_list(block, "except")):
        at = path.child("except").index(position)
        yield from cidr(at, part)
        inner = parse_network(part)
        if outer is None or inner is None:
            continue
        strict = inner.version == outer.version and inner.prefixlen > outer.prefixlen
        if not strict or inner.network_address not in outer:
            yield invalid(at, part, "must be a strict subset of `cidr`")


def network_policy_warnings(obj: JsonObject) -> list[str]:
    """Warnings about CIDR blocks with bits set beyond their prefix."""
    found = []
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for position, rule in enumerate(get_list(obj, "spec", direction)):
            for number, peer in enumerate(get_list(rule, peers)):
                block = get_object(peer, "ipBlock")
                at = f"spec.{direction}[{position}].{peers}[{number}].ipBlock"
                if block:
                    found += _block_warning(block.get("cidr"), f"{at}.cidr")
                    for order, part in enumerate(get_list(block, "except")):
                        found += _block_warning(part, f"{at}.except[{order}]")
    return found


def _block_warning(value: Any, at: str) -> list[str]:
    network = parse_network(value)
    if network is None or ipaddress.ip_interface(value).ip == network.network_address:
        return []
    host = f"{ipaddress.ip_interface(value).ip}/{network.max_prefixlen}"
    return [f'{at}: CIDR value "{value}" is ambiguous in this context (should be "{network}" or "{host}"?)']


def validate_service_cidr(obj: JsonObject) -> Iterator[FieldError]:
    """One or two ranges, one of each family."""
    ranges, at = get_list(obj, "spec", "cidrs"), _SPEC.child("cidrs")
    if not ranges:
        yield required(at, "at least one CIDR required")
        return
    if len(ranges) > 2:
        yield invalid(at, {"CIDRs": ranges}, "may only hold up to 2 values")
        return
    yield from (error for position, value in enumerate(ranges) for error in cidr(at.index(position), value))
    versions = [network.version for network in map(parse_network, ranges) if network is not None]
    if len(versions) == 2 and versions[0] == versions[1]:
        yield invalid(
            at,
            ranges,
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        )


def validate_service_cidr_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """The ranges cannot be changed."""
    return immutable(_SPEC.child("cidrs"), get_list(new, "spec", "cidrs"), get_list(old, "spec", "cidrs"))


def address_name_problems(name: str) -> list[str]:
    """The name of an IPAddress: the address itself, as it is usually written."""
    parsed = parse_address(name)
    if parsed is None:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    return [] if str(parsed) == name else [f'must be in canonical form ("{parsed}")']


def validate_ip_address(obj: JsonObject) -> list[FieldError]:
    """The address names the object that uses it."""
    parent, at = get_object(obj, "spec").get("parentRef"), _SPEC.child("parentRef")
    if not isinstance(parent, dict):
        return [required(at)]
    return check_fields(
        parent,
        at,
        may("group", named(names.is_dns1123_subdomain)),
        must("resource", named(names.is_path_segment_name)),
        must("name", named(names.is_path_segment_name)),
        may("namespace", named(names.is_path_segment_name)),
    )
