"""Endpoints: addresses and ports of each subset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery.checks import address, port, remote_address
from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError, FieldPath, required

_ADDRESSES = f.items(
    f.always("ip", "", address),
    f.may("hostname", f.LABEL),
    f.may("nodeName", f.SUBDOMAIN),
    f.always("ip", "", remote_address),
)


def _some_addresses(path: FieldPath, subset: JsonObject) -> Iterator[FieldError]:
    if not subset.get("addresses") and not subset.get("notReadyAddresses"):
        yield required(path, "must specify `addresses` or `notReadyAddresses`")


def _ports(path: FieldPath, ports: list[JsonObject]) -> Iterable[FieldError]:
    name = f.must("name", f.LABEL) if len(ports) > 1 else f.may("name", f.LABEL)
    number = f.always("port", 0, port)
    return f.items(name, number, f.always("protocol", "", f.PROTOCOL), f.may("appProtocol", f.QUALIFIED))(
        path, ports
    )


validate_endpoints = f.document(
    f.may(
        "subsets",
        f.items(
            _some_addresses,
            f.may("addresses", _ADDRESSES),
            f.may("notReadyAddresses", _ADDRESSES),
            f.may("ports", _ports),
        ),
    )
)
"""Each subset has addresses; ports are named when there are several."""
