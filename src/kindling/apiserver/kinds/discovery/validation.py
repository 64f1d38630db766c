"""EndpointSlices: addresses of one type, ports with unique names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kindling.apiserver.kinds.machinery.checks import address, parse_address, port, remote_address
from kindling.apiserver.kinds.machinery.fields import (
    LABEL,
    LABEL_VALUE,
    PROTOCOL,
    QUALIFIED,
    SUBDOMAIN,
    Check,
    Once,
    always,
    choice,
    document,
    fewer,
    given,
    items,
    may,
    must,
    part,
)
from kubecore.json import JsonObject, get_list
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, required

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
MAX_ENDPOINTS = 1000
MAX_ADDRESSES = 100
MAX_PORTS = 20000
MAX_HINTS = 8
_HOST_NAME, _ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def _addresses(kind: str) -> Check:
    """A list of addresses of this type."""

    def check(path: FieldPath, values: list[str]) -> Iterator[FieldError]:
        if not values:
            yield required(path, "must contain at least 1 address")
        yield from fewer(MAX_ADDRESSES)(path, values)
        for position, value in enumerate(values):
            at, parsed = path.index(position), parse_address(value)
            if kind == "FQDN":
                yield from SUBDOMAIN(at, value)
            elif kind in ADDRESS_TYPES and parsed is None:
                yield from address(at, value)
            elif kind in ADDRESS_TYPES and parsed is not None:
                if f"IPv{parsed.version}" != kind:
                    yield invalid(path, value, f"must be an {kind} address")
                yield from remote_address(at, value)

    return check


def _hints(rule: Check) -> Check:
    """A list of names that satisfy `rule`, each once, unless there are too many."""
    named_once = items(Once("name"), always("name", "", rule))
    return lambda path, hints: fewer(MAX_HINTS)(path, hints) or named_once(path, hints)


def _topology(path: FieldPath, topology: Mapping[str, Any]) -> Iterator[FieldError]:
    if _HOST_NAME in topology:
        yield forbidden(path.key(_HOST_NAME), "may not be set as it is mapped to nodeName")
    if _ZONE in topology:
        yield invalid(path, _ZONE, "may not be set as it is mapped to zone")


_PORTS = items(
    may("name", LABEL),
    Once("name"),
    given("port", port),
    must("protocol", PROTOCOL),
    given("appProtocol", QUALIFIED),
)


def _ports(path: FieldPath, ports: list[JsonObject]) -> Iterable[FieldError]:
    return fewer(MAX_PORTS)(path, ports) or _PORTS(path, ports)


_TYPE = must("addressType", choice(*ADDRESS_TYPES))
_ENDPOINT = (
    given("nodeName", SUBDOMAIN),
    given("hostname", LABEL),
    part("hints", may("forZones", _hints(LABEL_VALUE)), may("forNodes", _hints(SUBDOMAIN))),
    may("deprecatedTopology", _topology),
)


def validate_slice(obj: JsonObject) -> Iterable[FieldError]:
    """Addresses of one type, ports with unique names; too many endpoints are not looked at."""
    if len(get_list(obj, "endpoints")) > MAX_ENDPOINTS:
        return document(_TYPE, may("endpoints", fewer(MAX_ENDPOINTS)))(obj)
    addresses = always("addresses", (), _addresses(obj.get("addressType", "")))
    return document(_TYPE, may("endpoints", items(addresses, *_ENDPOINT)), may("ports", _ports))(obj)


def slice_warnings(obj: JsonObject, old: JsonObject | None) -> list[str]:
    """Deprecated address types."""
    if obj.get("addressType") == "FQDN" and (old is None or old.get("addressType") != "FQDN"):
        return ["spec.addressType: FQDN endpoints are deprecated"]
    return []
