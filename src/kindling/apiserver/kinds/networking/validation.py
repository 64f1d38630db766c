"""Objects of networking.k8s.io."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.address_forms import cidr_warnings
from kindling.apiserver.kinds.machinery.checks import (
    address,
    canonical_cidr,
    cidr,
    domain_prefixed_path,
    immutable,
    messages,
    not_an_address,
    parse_address,
    parse_network,
    port,
)
from kindling.apiserver.kinds.machinery.internal import internal_form
from kindling.network.policy_readings import MAX_PARTS
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    Verbatim,
    forbidden,
    invalid,
    not_supported,
    required,
)

CLASS_ANNOTATION = "kubernetes.io/ingress.class"
PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_CIDRS = FieldPath("spec", "cidrs")
_BAD_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_BAD_SUFFIXES = ("/..", "/.")
_ONE_OF_EACH = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"


def _host(path: FieldPath, host: str) -> list[FieldError]:
    check = names.is_wildcard_dns1123_subdomain if "*" in host else names.is_dns1123_subdomain
    return messages(path, host, check)


def _rules_or_backend(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    if not get_list(spec, "rules") and spec.get("defaultBackend") is None:
        yield invalid(path, Verbatim("null"), "either `defaultBackend` or `rules` must be specified")


def _path(path: FieldPath, item: JsonObject) -> Iterator[FieldError]:
    kind, value, at = item.get("pathType"), item.get("path", ""), path.child("path")
    if kind is None:
        yield required(path.child("pathType"), "pathType must be specified")
        return
    if kind not in PATH_TYPES:
        yield not_supported(path.child("pathType"), kind, PATH_TYPES)
    elif not value.startswith("/") and (value or kind != "ImplementationSpecific"):
        yield invalid(at, value, "must be an absolute path")
    if kind in ("Exact", "Prefix"):
        for sequence in _BAD_SEQUENCES:
            if sequence in value:
                yield invalid(at, value, f"must not contain '{sequence}'")
        for suffix in _BAD_SUFFIXES:
            if value.endswith(suffix):
                yield invalid(at, value, f"cannot end with '{suffix}'")
    yield from _backend(path.child("backend"), get_object(item, "backend"))


def _backend(path: FieldPath, backend: JsonObject) -> Iterator[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from f.check_fields(resource, path.child("resource"), *f.needed("kind", "name"))
    elif service is None:
        yield invalid(path, "", "resource or service backend is required")
    else:
        yield from f.check_fields(service, path.child("service"), f.must("name", f.LABEL))
        yield from _backend_port(path, get_object(service, "port"))


def _backend_port(path: FieldPath, target: JsonObject) -> Iterable[FieldError]:
    name, number = target.get("name"), target.get("number")
    if name and number:
        return [invalid(path, "", "cannot set both port name & port number")]
    if not name and not number:
        return [required(path, "port name or number is required")]
    return f.check_fields(
        target, path.child("service", "port"), f.may("name", f.PORT_NAME), f.may("number", port)
    )


validate_ingress = f.spec(
    _rules_or_backend,
    f.given("defaultBackend", _backend),
    f.may(
        "rules",
        f.items(
            f.may("host", lambda path, host: not_an_address(path, host) or _host(path, host)),
            f.given("http", f.must("paths", f.items(_path))),
        ),
    ),
    f.may("tls", f.items(f.may("hosts", f.items(_host)), f.may("secretName", f.SUBDOMAIN))),
    f.given("ingressClassName", f.SUBDOMAIN),
)
"""Rules or a default backend; hosts, paths and certificates."""


def validate_new_ingress(obj: JsonObject) -> Iterator[FieldError]:
    """A new ingress: the deprecated annotation may not stand beside the class field."""
    annotations = get_object(obj, "metadata", "annotations")
    if CLASS_ANNOTATION in annotations and get_object(obj, "spec").get("ingressClassName") is not None:
        at = FieldPath("annotations").child(CLASS_ANNOTATION)
        yield invalid(at, annotations[CLASS_ANNOTATION], "can not be set when the class field is also set")
    yield from validate_ingress(obj)


validate_ingress_status = f.status(
    f.part(
        "loadBalancer",
        f.may("ingress", f.items(f.may("ip", address), f.may("hostname", f.SUBDOMAIN, not_an_address))),
    )
)
"""Addresses of load balancers: IPs or host names."""


def ingress_warnings(obj: JsonObject, old: JsonObject | None) -> list[str]:
    """The annotation that the class field replaced."""
    if CLASS_ANNOTATION in get_object(obj, "metadata", "annotations"):
        before = get_object(old, "metadata", "annotations") if old else {}
        if CLASS_ANNOTATION not in before:
            return [
                f"annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"
            ]
    return []


def _scope(path: FieldPath, parameters: JsonObject) -> Iterator[FieldError]:
    scope, namespace, at = parameters.get("scope"), parameters.get("namespace"), path.child("namespace")
    if scope is None:
        yield required(path.child("scope"))
    elif scope not in ("Cluster", "Namespace"):
        yield not_supported(path.child("scope"), scope, ["Cluster", "Namespace"])
    elif scope == "Cluster" and namespace is not None:
        yield forbidden(at, "`parameters.scope` is set to 'Cluster'")
    elif scope == "Namespace" and namespace is None:
        yield required(at, "`parameters.scope` is set to 'Namespace'")
    elif scope == "Namespace":
        yield from f.LABEL(at, namespace)


validate_ingress_class = f.spec(
    f.always("controller", "", f.shorter(250), domain_prefixed_path),
    f.given(
        "parameters",
        f.may("apiGroup", f.SUBDOMAIN),
        f.must("kind", f.PATH_SEGMENT, detail="kind is required"),
        f.must("name", f.PATH_SEGMENT, detail="name is required"),
        _scope,
    ),
)
"""A controller, and parameters of one scope."""


def validate_ingress_class_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """The controller stays; that is judged before the rest."""
    controller, before = (get_str(obj, "spec", "controller") for obj in (new, old))
    yield from immutable(FieldPath("spec", "controller"), controller, before)
    yield from validate_ingress_class(new)


def _policy_port(path: FieldPath, item: JsonObject) -> Iterator[FieldError]:
    number, end, at = item.get("port"), item.get("endPort"), path.child("endPort")
    if end is not None and number is None:
        yield invalid(at, end, "may not be specified when `port` is not specified")
    if end is not None and isinstance(number, str):
        yield invalid(at, end, "may not be specified when `port` is non-numeric")
    if isinstance(number, str):
        yield from f.PORT_NAME(path.child("port"), number)
    elif number is not None:
        yield from port(path.child("port"), number)
        if end is not None and end < number:
            yield invalid(at, number, "must be greater than or equal to `port`")
        if end is not None:
            yield from port(at, end)


def _peer(path: FieldPath, peer: JsonObject) -> Iterator[FieldError]:
    fields = [
        field for field in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(field) is not None
    ]
    yield from f.check_fields(
        peer,
        path,
        f.given("podSelector", f.selector),
        f.given("namespaceSelector", f.selector),
        f.given("ipBlock", _block),
    )
    if "ipBlock" in fields and len(fields) > 1:
        yield forbidden(path, "may not specify both ipBlock and another peer")
    if not fields:
        yield required(path, "must specify a peer")


def _block(path: FieldPath, block: JsonObject) -> Iterator[FieldError]:
    yield from f.check_fields(block, path, f.must("cidr", cidr))
    if not block.get("cidr"):
        return
    outer = parse_network(block["cidr"])
    for position, part_of_it in enumerate(get_list(block, "except")):
        at, inner = path.child("except").index(position), parse_network(part_of_it)
        yield from cidr(at, part_of_it)
        if outer is None or inner is None:
            continue
        strict = inner.version == outer.version and inner.prefixlen > outer.prefixlen
        if not strict or inner.network_address not in outer:
            yield invalid(at, part_of_it, "must be a strict subset of `cidr`")


def _policy_types(path: FieldPath, types: list[str]) -> Iterable[FieldError]:
    if len(types) > 2:
        return [invalid(path, types, "may not specify more than two policyTypes")]
    return f.items(f.choice("Ingress", "Egress"))(path, types)


_POLICY_PORTS = f.may("ports", f.items(f.given("protocol", f.PROTOCOL), _policy_port))
validate_network_policy = f.spec(
    f.given("podSelector", f.selector),
    f.may("ingress", f.items(_POLICY_PORTS, f.may("from", f.items(_peer)))),
    f.may("egress", f.items(_POLICY_PORTS, f.may("to", f.items(_peer)))),
    f.may("policyTypes", _policy_types),
)
"""Selectors, peers and ports."""


def network_policy_warnings(obj: JsonObject, old: JsonObject | None) -> Iterator[str]:
    """Warnings about blocks that are not in canonical form, and about policies that nodes refuse."""
    rules = get_list(obj, "spec", "ingress") + get_list(obj, "spec", "egress")
    size = sum(1 + sum(len(get_list(rule, part)) for part in ("from", "to", "ports")) for rule in rules)
    if size > MAX_PARTS:
        yield (
            f"spec: {size} rules, peers and ports are more than the {MAX_PARTS} that nodes enforce for a "
            "namespace, so this policy allows nothing"
        )
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for position, rule in enumerate(get_list(obj, "spec", direction)):
            for number, peer in enumerate(get_list(rule, peers)):
                block = get_object(peer, "ipBlock")
                at = FieldPath("spec", direction).index(position).child(peers).index(number).child("ipBlock")
                yield from cidr_warnings(at.child("cidr"), block.get("cidr"))
                for order, part in enumerate(get_list(block, "except")):
                    yield from cidr_warnings(at.child("except").index(order), part)


def validate_service_cidr(obj: JsonObject) -> Iterator[FieldError]:
    """One or two ranges, one of each family."""
    ranges = get_list(obj, "spec", "cidrs")
    if not ranges:
        yield required(_CIDRS, "at least one CIDR required")
    if len(ranges) > 2:
        yield invalid(_CIDRS, {"CIDRs": ranges}, "may only hold up to 2 values")
        return
    yield from f.items(canonical_cidr)(_CIDRS, ranges)
    versions = [network.version for network in map(parse_network, ranges) if network is not None]
    if len(versions) == 2 and versions[0] == versions[1]:
        yield invalid(_CIDRS, ranges, _ONE_OF_EACH)


def validate_ip_address_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Who has an address stays."""
    shown, before = (
        internal_form(get_object(each, "spec").get("parentRef"), _INTERNAL_PARENT) for each in (new, old)
    )
    yield from immutable(FieldPath("spec", "parentRef"), shown, before)


_INTERNAL_PARENT = {"Group": "", "Resource": "", "Namespace": "", "Name": ""}


def validate_service_cidr_update(new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
    """The ranges cannot be changed; only a second one, of the other family, can be added."""
    ranges, before = get_list(new, "spec", "cidrs"), get_list(old, "spec", "cidrs")
    if len(before) == 1 and len(ranges) == 2 and ranges[0] == before[0]:
        return validate_service_cidr(new)
    return immutable(_CIDRS, ranges, before)


def address_name_problems(name: str) -> list[str]:
    """The name of an IPAddress: the address itself, as it is usually written."""
    parsed = parse_address(name)
    if parsed is None:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    return [] if str(parsed) == name else [f'must be in canonical form ("{parsed}")']


validate_ip_address = f.spec(
    f.must(
        "parentRef",
        f.may("group", f.SUBDOMAIN),
        f.must("resource", f.PATH_SEGMENT),
        f.must("name", f.PATH_SEGMENT),
        f.may("namespace", f.PATH_SEGMENT),
        given=True,
    )
)
"""The address names the object that uses it."""
