"""Endpoints."""

from __future__ import annotations

from collections.abc import Iterable

from kindling.apiserver.kinds.machinery import checks
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
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
    f.may("nodeName", f.SUBDOMAIN),
    f.always("ip", "", checks.remote_address),
)


def _ports(path: FieldPath, ports: list[JsonObject]) -> Iterable[FieldError]:
    name = f.must("name", f.LABEL) if len(ports) > 1 else f.may("name", f.LABEL)
    number = f.always("port", 0, checks.port)
    return f.items(name, number, f.always("protocol", "", f.PROTOCOL), f.may("appProtocol", f.QUALIFIED))(
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


class EndpointsStrategy(BuiltinStrategy):
    """All endpoints of a service in one object."""

    has_status = False
    tracks_generation = False
    allow_create_on_update = True
    rules = Rules(validate_endpoints)

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
