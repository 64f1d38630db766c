"""EndpointSlices: addresses of one type, ports with unique names."""

from __future__ import annotations

from collections.abc import Mapping
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


def validate_slice(obj: JsonObject) -> list[FieldError]:
    """Addresses of one type, ports with unique names."""
    kind = obj.get("addressType", "")
    found: list[FieldError] = []
    if not kind:
        found.append(required("addressType"))
    elif kind not in ADDRESS_TYPES:
        found.append(not_supported("addressType", kind, ADDRESS_TYPES))
    endpoints = obj.get("endpoints") or []
    if len(endpoints) > MAX_ENDPOINTS:
        found.append(too_many("endpoints", len(endpoints), MAX_ENDPOINTS))
        return found
    for position, endpoint in enumerate(endpoints):
        found += _slice_endpoint(endpoint, kind, FieldPath("endpoints").index(position))
    return found + _slice_ports(obj.get("ports") or [])


def _slice_endpoint(endpoint: JsonObject, kind: str, path: FieldPath) -> list[FieldError]:
    found: list[FieldError] = []
    addresses = endpoint.get("addresses") or []
    at = path.child("addresses")
    if not addresses:
        found.append(required(at, "must contain at least 1 address"))
    elif len(addresses) > MAX_ADDRESSES:
        found.append(too_many(at, len(addresses), MAX_ADDRESSES))
    for position, value in enumerate(addresses):
        found += _slice_address(value, kind, at, at.index(position))
    found += check_fields(endpoint, path, given("nodeName", named(names.is_dns1123_subdomain)))
    found += check_fields(endpoint, path, given("hostname", named(names.is_dns1123_label)))
    for field, rule in _HINTS.items():
        hints, here = get_list(endpoint, "hints", field), path.child("hints", field)
        if len(hints) > MAX_HINTS:
            found.append(too_many(here, len(hints), MAX_HINTS))
            continue
        known: set[str] = set()
        for position, hint in enumerate(hints):
            name = hint.get("name", "")
            if name in known:
                found.append(duplicate(here.index(position).child("name"), name))
            known.add(name)
            found += messages(here.index(position).child("name"), name, rule)
    if get_object(endpoint, "deprecatedTopology"):
        found += _topology(endpoint["deprecatedTopology"], path.child("deprecatedTopology"))
    return found


def _topology(topology: Mapping[str, Any], path: FieldPath) -> list[FieldError]:
    found: list[FieldError] = []
    if "kubernetes.io/hostname" in topology:
        found.append(
            forbidden(path.key("kubernetes.io/hostname"), "may not be set as it is mapped to nodeName")
        )
    if "topology.kubernetes.io/zone" in topology:
        found.append(invalid(path, "topology.kubernetes.io/zone", "may not be set as it is mapped to zone"))
    return found


def _slice_address(value: str, kind: str, all_path: FieldPath, path: FieldPath) -> list[FieldError]:
    if kind == "FQDN":
        return messages(path, value, names.is_dns1123_subdomain)
    if kind not in ("IPv4", "IPv6"):
        return []
    parsed = parse_address(value)
    if parsed is None:
        return address(path, value)
    found: list[FieldError] = []
    if f"IPv{parsed.version}" != kind:
        found.append(invalid(all_path, value, f"must be an {kind} address"))
    return found + remote_address(path, value)


def _slice_ports(ports: list[JsonObject]) -> list[FieldError]:
    found: list[FieldError] = []
    if len(ports) > MAX_PORTS:
        return [too_many("ports", len(ports), MAX_PORTS)]
    seen: set[str] = set()
    for position, item in enumerate(ports):
        here = FieldPath("ports").index(position)
        name = item.get("name") or ""
        found += check_fields(item, here, may("name", named(names.is_dns1123_label)))
        if name in seen:
            found.append(duplicate(here.child("name"), name))
        seen.add(name)
        found += check_fields(item, here, given("port", port))
        found += check_fields(
            item,
            here,
            must("protocol", choice(*PROTOCOLS)),
            given("appProtocol", named(names.is_qualified_name)),
        )
    return found


def slice_warnings(obj: JsonObject, old: JsonObject | None) -> list[str]:
    """Deprecated address types."""
    if obj.get("addressType") == "FQDN" and (old is None or old.get("addressType") != "FQDN"):
        return ["spec.addressType: FQDN endpoints are deprecated"]
    return []
