"""EndpointSlices."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, UNSET, Table, limited, plain
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list
from kubecore.resources import ENDPOINT_SLICES

from .validation import slice_warnings, validate_slice


class SliceStrategy(BuiltinStrategy):
    """Some of the endpoints of a service."""

    has_status = False
    rules = Rules(validate_slice, immutable=("addressType",), warnings=slice_warnings)

    def complete(self, obj: JsonObject) -> None:
        """Ports have a name (perhaps empty) and a protocol."""
        for port in obj.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def generation_changed(self, new: JsonObject, old: JsonObject) -> bool:
        """Changed labels of a slice count as well."""
        if (new["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {}):
            return True
        return super().generation_changed(new, old)


def _slice_ports(obj: JsonObject) -> str:
    ports = obj.get("ports") or []
    if not ports:
        return UNSET
    texts = ["*" if port.get("port") is None else str(port["port"]) for port in ports]
    return limited(texts)


def _slice_addresses(obj: JsonObject) -> str:
    endpoints = get_list(obj, "endpoints")
    addresses = [address for endpoint in endpoints for address in get_list(endpoint, "addresses")]
    return limited(addresses) if addresses else UNSET


def definitions() -> list[ResourceDefinition]:
    """Endpoint slices."""
    columns = (plain("AddressType", "addressType"), plain("Ports", _slice_ports))
    return [
        builtin(
            ENDPOINT_SLICES,
            SliceStrategy(),
            table=Table(NAME, *columns, plain("Endpoints", _slice_addresses), AGE),
        )
    ]
