"""Endpoints: addresses and ports of each subset."""

from __future__ import annotations

from kindling.apiserver.kinds.discovery.validation import PROTOCOLS
from kindling.apiserver.kinds.machinery.checks import address, one_of, port, remote_address
from kindling.apiserver.kinds.machinery.fields import check_fields, may, named
from kubecore.json import JsonObject, get_list
from kubecore.objects import names
from kubecore.objects.fields import FieldError, FieldPath, required


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
            found += _endpoint_port(item, here.child("ports").index(number), several=len(ports) > 1)
    return found


def _endpoint_address(item: JsonObject, path: FieldPath) -> list[FieldError]:
    value = item.get("ip", "")
    found = address(path.child("ip"), value)
    found += check_fields(item, path, may("hostname", named(names.is_dns1123_label)))
    found += check_fields(item, path, may("nodeName", named(names.is_dns1123_subdomain)))
    return found + remote_address(path.child("ip"), value)


def _endpoint_port(item: JsonObject, path: FieldPath, *, several: bool) -> list[FieldError]:
    found: list[FieldError] = []
    name = item.get("name", "")
    if several and not name:
        found.append(required(path.child("name")))
    found += check_fields(item, path, may("name", named(names.is_dns1123_label)))
    found += port(path.child("port"), item.get("port", 0))
    found += one_of(path.child("protocol"), item.get("protocol", ""), PROTOCOLS)
    return found + check_fields(item, path, may("appProtocol", named(names.is_qualified_name)))
