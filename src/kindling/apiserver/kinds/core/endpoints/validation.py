"""Endpoints and EndpointSlices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindling.apiserver.kinds.machinery.checks import (
    address,
    messages,
    one_of,
    parse_address,
    port,
    remote_address,
)
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
MAX_ZONES = 8


def validate_endpoints(endpoints: JsonObject) -> list[FieldError]:
    """Each subset has addresses; ports are named when there are several."""
    found: list[FieldError] = []
    for position, subset in enumerate(get_list(endpoints, "subsets")):
        here = FieldPath("subsets").index(position)
        ready, waiting = get_list(subset, "addresses"), get_list(subset, "notReadyAddresses")
        if not ready and not waiting:
            found.append(required(here, "must specify `addresses` or `notReadyAddresses`"))
        for field, addresses in (("addresses", ready), ("notReadyAddresses", waiting)):
            for number, item in enumerate(addresses):
                found += _endpoint_address(item, here.child(field).index(number))
        ports = get_list(subset, "ports")
        for number, item in enumerate(ports):
            found += _endpoint_port(item, here.child("ports").index(number), named=len(ports) > 1)
    return found


def _endpoint_address(item: JsonObject, path: FieldPath) -> list[FieldError]:
    value = item.get("ip", "")
    found = address(path.child("ip"), value)
    if item.get("hostname"):
        found += messages(path.child("hostname"), item["hostname"], names.is_dns1123_label)
    if item.get("nodeName"):
        found += messages(path.child("nodeName"), item["nodeName"], names.is_dns1123_subdomain)
    return found + remote_address(path.child("ip"), value)


def _endpoint_port(item: JsonObject, path: FieldPath, *, named: bool) -> list[FieldError]:
    found: list[FieldError] = []
    name = item.get("name", "")
    if named and not name:
        found.append(required(path.child("name")))
    elif name:
        found += messages(path.child("name"), name, names.is_dns1123_label)
    found += port(path.child("port"), item.get("port", 0))
    found += one_of(path.child("protocol"), item.get("protocol", ""), PROTOCOLS)
    if item.get("appProtocol"):
        found += messages(path.child("appProtocol"), item["appProtocol"], names.is_qualified_name)
    return found


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
    if endpoint.get("nodeName") is not None:
        found += messages(path.child("nodeName"), endpoint["nodeName"], names.is_dns1123_subdomain)
    if endpoint.get("hostname") is not None:
        found += messages(path.child("hostname"), endpoint["hostname"], names.is_dns1123_label)
    zones = get_list(endpoint, "hints", "forZones")
    if len(zones) > MAX_ZONES:
        found.append(too_many(path.child("hints", "forZones"), len(zones), MAX_ZONES))
    seen: set[str] = set()
    for position, zone in enumerate(zones):
        here = path.child("hints", "forZones").index(position)
        if zone.get("name") in seen:
            found.append(duplicate(here, zone.get("name")))
        seen.add(zone.get("name", ""))
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
    found: list[FieldError] = []
    if parsed is None or f"IPv{parsed.version}" != kind:
        found.append(invalid(all_path, value, f"must be an {kind} address"))
    if parsed is not None:
        found += remote_address(path, value)
    return found


def _slice_ports(ports: list[JsonObject]) -> list[FieldError]:
    found: list[FieldError] = []
    if len(ports) > MAX_PORTS:
        return [too_many("ports", len(ports), MAX_PORTS)]
    seen: set[str] = set()
    for position, item in enumerate(ports):
        here = FieldPath("ports").index(position)
        name = item.get("name") or ""
        if name:
            found += messages(here.child("name"), name, names.is_dns1123_label)
        if name in seen:
            found.append(duplicate(here.child("name"), name))
        seen.add(name)
        if item.get("port") is not None:
            found += port(here.child("port"), item["port"])
        protocol = item.get("protocol")
        if not protocol:
            found.append(required(here.child("protocol")))
        else:
            found += one_of(here.child("protocol"), protocol, PROTOCOLS)
        if item.get("appProtocol") is not None:
            found += messages(here.child("appProtocol"), item["appProtocol"], names.is_qualified_name)
    return found


def validate_slice_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """The type of addresses stays."""
    found = validate_slice(new)
    if new.get("addressType") != old.get("addressType"):
        found.append(invalid("addressType", new.get("addressType"), "field is immutable"))
    return found


def slice_warnings(obj: JsonObject, old: JsonObject | None) -> list[str]:
    """Deprecated address types."""
    if obj.get("addressType") == "FQDN" and (old is None or old.get("addressType") != "FQDN"):
        return ["spec.addressType: FQDN endpoints are deprecated"]
    return []
