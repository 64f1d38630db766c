"""Warnings about addresses that are valid and not written as they usually are."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from kubecore.json import JsonObject, get_list
from kubecore.objects.fields import FieldPath, go_quote

from .checks import parse_address, parse_network


def address_warnings(path: FieldPath, value: Any) -> list[str]:
    """The warning about an IPv6 address that is not in canonical form."""
    parsed = parse_address(value)
    if not isinstance(parsed, ipaddress.IPv6Address) or str(parsed) == value:
        return []
    return [_warning(path, "IPv6 address", value, str(parsed))]


def cidr_warnings(path: FieldPath, value: Any) -> list[str]:
    """The warning about a block of IPv6 addresses that is not in canonical form."""
    network = parse_network(value)
    if not isinstance(network, ipaddress.IPv6Network) or str(network) == value:
        return []
    return [_warning(path, "IPv6 CIDR value", value, str(network))]


def _warning(path: FieldPath, what: str, value: str, wanted: str) -> str:
    form = f"should be in RFC 5952 canonical format ({go_quote(wanted)})"
    return f"{path}: {what} {go_quote(value)} {form}"


def balancer_warnings(obj: JsonObject) -> Iterator[str]:
    """Warnings about the addresses of load balancers in the status of a service or an ingress."""
    at = FieldPath("status", "loadBalancer", "ingress")
    for position, point in enumerate(get_list(obj, "status", "loadBalancer", "ingress")):
        yield from address_warnings(at.index(position), point.get("ip"))
