"""Endpoints: addresses and ports of each subset."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.kinds.discovery.validation import PROTOCOLS
from kindling.apiserver.kinds.machinery.checks import address, one_of, port, remote_address
from kindling.apiserver.kinds.machinery.fields import check_fields, may, named
from kubecore.json import JsonObject, get_list
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, required


def validate_endpoints(endpoints: JsonObject) -> Iterator[FieldError]:
    """Each subset has addresses; ports are named when there are several."""
    for position, subset in enumerate(get_list(endpoints, "subsets")):
        here = FieldPath("subsets").index(position)
        ready, waiting = get_list(subset, "addresses"), get_list(subset, "notReadyAddresses")
        if not ready and not waiting:
            yield required(here, "must specify `addresses` or `notReadyAddresses`")
        for field, addresses in (("addresses", ready), ("notReadyAddresses", waiting)):
            for number, item in enumerate(addresses):
                yield from _endpoint_address(item, here.child(field).index(number))
        ports = get_list(subset, "ports")
        for number, item in enumerate(ports):
            yield from _endpoint_port(item, here.child("ports").index(number), several=len(ports) > 1)


def _endpoint_address(item: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    value = item.get("ip", "")
    yield from address(path.child("ip"), value)
    yield from check_fields(item, path, may("hostname", named(names.is_dns1123_label)))
    yield from check_fields(item, path, may("nodeName", named(names.is_dns1123_subdomain)))
    yield from remote_address(path.child("ip"), value)


def _endpoint_port(item: JsonObject, path: FieldPath, *, several: bool) -> Iterator[FieldError]:
    name = item.get("name", "")
    if several and not name:
        yield required(path.child("name"))
    yield from check_fields(item, path, may("name", named(names.is_dns1123_label)))
    yield from port(path.child("port"), item.get("port", 0))
    yield from one_of(path.child("protocol"), item.get("protocol", ""), PROTOCOLS)
    yield from check_fields(item, path, may("appProtocol", named(names.is_qualified_name)))
