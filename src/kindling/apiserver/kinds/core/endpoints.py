"""Endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kindling.apiserver.kinds.machinery import checks
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.address_forms import address_warnings
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list
from kubecore.objects.fields import FieldError, FieldPath
from kubecore.resources import ENDPOINTS

DEPRECATED = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
_ADDRESSES = f.items(
    f.always("ip", "", checks.address),
    f.may("hostname", f.LABEL),
    f.given("nodeName", f.SUBDOMAIN),
    f.always("ip", "", checks.remote_address),
)


def _ports(path: FieldPath, ports: list[JsonObject]) -> Iterable[FieldError]:
    name = f.must("name", f.LABEL) if len(ports) > 1 else f.may("name", f.LABEL)
    number = f.always("port", 0, checks.port)
    return f.items(name, number, f.always("protocol", "", f.PROTOCOL), f.given("appProtocol", f.QUALIFIED))(
        path, ports
    )


validate_endpoints = f.document(
    f.may(
        "subsets",
        f.items(
            f.lacking(
                lambda subset: not subset.get("addresses") and not subset.get("notReadyAddresses"),
                "must specify `addresses` or `notReadyAddresses`",
            ),
            f.may("addresses", _ADDRESSES),
            f.may("notReadyAddresses", _ADDRESSES),
            f.may("ports", _ports),
        ),
    )
)
"""Each subset has addresses; ports are named when there are several."""


def validate_endpoints_update(new: JsonObject, old: JsonObject) -> Iterable[FieldError]:
    """A change: subsets that are as they were are not judged again."""
    return () if get_list(new, "subsets") == get_list(old, "subsets") else validate_endpoints(new)


def endpoints_warnings(obj: JsonObject, old: JsonObject | None) -> Iterator[str]:
    """Addresses that are not in canonical form."""
    for number, subset in enumerate(get_list(obj, "subsets")):
        for field in ("addresses", "notReadyAddresses"):
            for position, address in enumerate(get_list(subset, field)):
                at = FieldPath("subsets").index(number).child(field).index(position).child("ip")
                yield from address_warnings(at, address.get("ip"))


class EndpointsStrategy(BuiltinStrategy):
    """All endpoints of a service in one object."""

    has_status = False
    tracks_generation = False
    allow_create_on_update = True
    metadata_checks = (1, 1)
    rules = Rules(validate_endpoints, update=validate_endpoints_update, warnings=endpoints_warnings)

    def complete(self, obj: JsonObject) -> None:
        """Default to protocol TCP."""
        for subset in get_list(obj, "subsets"):
            for port in get_list(subset, "ports"):
                port.setdefault("protocol", "TCP")


def _endpoints_text(obj: JsonObject) -> str:
    found: list[str] = []
    for subset in get_list(obj, "subsets"):
        ports = get_list(subset, "ports")
        addresses = [address.get("ip", "") for address in get_list(subset, "addresses")]
        if not ports:
            found += addresses
        for port in ports:
            for address in addresses:
                host = f"[{address}]" if ":" in address else address
                found.append(f"{host}:{port.get('port')}")
    return p.limited(found)


def definitions() -> list[ResourceDefinition]:
    """Endpoints."""
    return [
        builtin(
            ENDPOINTS,
            EndpointsStrategy(),
            short=("ep",),
            singular="endpoints",
            table=p.Table(p.NAME, p.plain("Endpoints", _endpoints_text), p.AGE),
            deprecation_warning=DEPRECATED,
        )
    ]
