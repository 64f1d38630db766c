"""Endpoints (deprecated) and EndpointSlices."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, NONE, UNSET, Table, age, plain
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_str
from kubecore.resources import ENDPOINT_SLICES, ENDPOINTS

from .validation import slice_warnings, validate_endpoints, validate_slice, validate_slice_update

_SHOWN = 3
DEPRECATED = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"


class EndpointsStrategy(BuiltinStrategy):
    """Addresses behind a service, all in one object."""

    has_status = False
    tracks_generation = False
    allow_create_on_update = True
    rules = Rules(validate_endpoints)

    def complete(self, obj: JsonObject) -> None:
        """TCP unless said otherwise."""
        for subset in get_list(obj, "subsets"):
            for port in get_list(subset, "ports"):
                port.setdefault("protocol", "TCP")


class SliceStrategy(BuiltinStrategy):
    """A share of the addresses behind a service."""

    has_status = False
    rules = Rules(validate_slice, update=validate_slice_update)

    def complete(self, obj: JsonObject) -> None:
        """Ports have a name (perhaps empty) and a protocol."""
        for port in obj.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def generation_changed(self, new: JsonObject, old: JsonObject) -> bool:
        """Labels of a slice are part of what it says."""
        if (new["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {}):
            return True
        return super().generation_changed(new, old)

    def warnings(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> list[str]:
        """Deprecated address types."""
        return slice_warnings(obj, old)


def _limited(values: list[str], separator: str = ",") -> str:
    if not values:
        return NONE
    more = f" + {len(values) - _SHOWN} more..." if len(values) > _SHOWN else ""
    return separator.join(values[:_SHOWN]) + more


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
    return _limited(found)


def _endpoints_cells(obj: JsonObject) -> list[Any]:
    return [get_str(obj, "metadata", "name"), _endpoints_text(obj), age(obj)]


def _slice_ports(obj: JsonObject) -> str:
    ports = obj.get("ports") or []
    if not ports:
        return UNSET
    texts = ["*" if port.get("port") is None else str(port["port"]) for port in ports]
    return _limited(texts)


def _slice_cells(obj: JsonObject) -> list[Any]:
    addresses = [
        address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()
    ]
    shown = _limited(addresses) if addresses else UNSET
    return [get_str(obj, "metadata", "name"), obj.get("addressType", ""), _slice_ports(obj), shown, age(obj)]


def definitions() -> list[ResourceDefinition]:
    """Endpoints and slices."""
    return [
        builtin(
            ENDPOINTS,
            EndpointsStrategy(),
            short=("ep",),
            singular="endpoints",
            table=Table((NAME, plain("Endpoints"), AGE), _endpoints_cells),
            deprecation_warning=DEPRECATED,
        ),
        builtin(
            ENDPOINT_SLICES,
            SliceStrategy(),
            table=Table((NAME, plain("AddressType"), plain("Ports"), plain("Endpoints"), AGE), _slice_cells),
        ),
    ]
