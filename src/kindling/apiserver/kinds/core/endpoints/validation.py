"""Endpoints: addresses and ports of each subset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kindling.apiserver.kinds.machinery.checks import address, port, remote_address
from kindling.apiserver.kinds.machinery.fields import (
    LABEL,
    PROTOCOL,
    QUALIFIED,
    SUBDOMAIN,
    always,
    document,
    items,
    may,
    must,
)
from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError, FieldPath, required

_ADDRESSES = items(
    always("ip", "", address),
    may("hostname", LABEL),
    may("nodeName", SUBDOMAIN),
    always("ip", "", remote_address),
)


def _some_addresses(path: FieldPath, subset: JsonObject) -> Iterator[FieldError]:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        yield required(path, "must specify `addresses` or `notReadyAddresses`")


def _ports(path: FieldPath, ports: list[JsonObject]) -> Iterable[FieldError]:
    name = must("name", LABEL) if len(ports) > 1 else may("name", LABEL)
    number = always("port", 0, port)
    return items(name, number, always("protocol", "", PROTOCOL), may("appProtocol", QUALIFIED))(path, ports)


validate_endpoints = document(
    may(
        "subsets",
        items(
            _some_addresses,
            may("addresses", _ADDRESSES),
            may("notReadyAddresses", _ADDRESSES),
            may("ports", _ports),
        ),
    )
)
"""Each subset has addresses; ports are named when there are several."""
