"""EndpointSlices: addresses of one type, ports with unique names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kindling.apiserver.kinds.machinery.checks import address, messages, parse_address, port, remote_address
from kindling.apiserver.kinds.machinery.fields import check_fields, choice, given, may, must, named
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_many,
)

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
PROTOCOLS = ("SCTP", "TCP", "UDP")
MAX_ENDPOINTS = 1000
MAX_ADDRESSES = 100
MAX_PORTS = 20000
MAX_HINTS = 8


_HINTS = {"forZones": names.is_label_value, "forNodes": names.is_dns1123_subdomain}
"""What may hint at an endpoint's users, and how their names are judged."""


def validate_slice(obj: JsonObject) -> Iterator[FieldError]:
    """Addresses of one type, ports with unique names."""
    kind = obj.get("addressType", "")
    if not kind:
        yield required("addressType")
    elif kind not in ADDRESS_TYPES:
        yield not_supported("addressType", kind, ADDRESS_TYPES)
    endpoints = obj.get("endpoints") or []
    if len(endpoints) > MAX_ENDPOINTS:
        yield too_many("endpoints", len(endpoints), MAX_ENDPOINTS)
        return
    for position, endpoint in enumerate(endpoints):
        yield from _slice_endpoint(endpoint, kind, FieldPath("endpoints").index(position))
    yield from _slice_ports(obj.get("ports") or [])


def _slice_endpoint(endpoint: JsonObject, kind: str, path: FieldPath) -> Iterator[FieldError]:
    addresses = endpoint.get("addresses") or []
    at = path.child("addresses")
    if not addresses:
        yield required(at, "must contain at least 1 address")
    elif len(addresses) > MAX_ADDRESSES:
        yield too_many(at, len(addresses), MAX_ADDRESSES)
    for position, value in enumerate(addresses):
        yield from _slice_address(value, kind, at, at.index(position))
    yield from check_fields(endpoint, path, given("nodeName", named(names.is_dns1123_subdomain)))
    yield from check_fields(endpoint, path, given("hostname", named(names.is_dns1123_label)))
    for field, rule in _HINTS.items():
        hints, here = get_list(endpoint, "hints", field), path.child("hints", field)
        if len(hints) > MAX_HINTS:
            yield too_many(here, len(hints), MAX_HINTS)
            continue
        known: set[str] = set()
        for position, hint in enumerate(hints):
            name = hint.get("name", "")
            if name in known:
                yield duplicate(here.index(position).child("name"), name)
            known.add(name)
            yield from messages(here.index(position).child("name"), name, rule)
    if get_object(endpoint, "deprecatedTopology"):
        yield from _topology(endpoint["deprecatedTopology"], path.child("deprecatedTopology"))


def _topology(topology: Mapping[str, Any], path: FieldPath) -> Iterator[FieldError]:
    if "kubernetes.io/hostname" in topology:
        yield forbidden(path.key("kubernetes.io/hostname"), "may not be set as it is mapped to nodeName")
    if "topology.kubernetes.io/zone" in topology:
        yield invalid(path, "topology.kubernetes.io/zone", "may not be set as it is mapped to zone")


def _slice_address(value: str, kind: str, all_path: FieldPath, path: FieldPath) -> Iterator[FieldError]:
    if kind == "FQDN":
        yield from messages(path, value, names.is_dns1123_subdomain)
        return
    if kind not in ("IPv4", "IPv6"):
        return
    parsed = parse_address(value)
    if parsed is None:
        yield from address(path, value)
        return
    if f"IPv{parsed.version}" != kind:
        yield invalid(all_path, value, f"must be an {kind} address")
    yield from remote_address(path, value)


def _slice_ports(ports: list[JsonObject]) -> Iterator[FieldError]:
    if len(ports) > MAX_PORTS:
        yield too_many("ports", len(ports), MAX_PORTS)
        return
    seen: set[str] = set()
    for position, item in enumerate(ports):
        here = FieldPath("ports").index(position)
        name = item.get("name") or ""
        yield from check_fields(item, here, may("name", named(names.is_dns1123_label)))
        if name in seen:
            yield duplicate(here.child("name"), name)
        seen.add(name)
        yield from check_fields(item, here, given("port", port))
        yield from check_fields(
            item,
            here,
            must("protocol", choice(*PROTOCOLS)),
            given("appProtocol", named(names.is_qualified_name)),
        )


def slice_warnings(obj: JsonObject, old: JsonObject | None) -> list[str]:
    """Deprecated address types."""
    if obj.get("addressType") == "FQDN" and (old is None or old.get("addressType") != "FQDN"):
        return ["spec.addressType: FQDN endpoints are deprecated"]
    return []
