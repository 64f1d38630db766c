"""Endpoints, which are deprecated."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, Table, limited, plain
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list
from kubecore.resources import ENDPOINTS

from .validation import validate_endpoints

DEPRECATED = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"


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
    return limited(found)


def definitions() -> list[ResourceDefinition]:
    """Endpoints."""
    return [
        builtin(
            ENDPOINTS,
            EndpointsStrategy(),
            short=("ep",),
            singular="endpoints",
            table=Table(NAME, plain("Endpoints", _endpoints_text), AGE),
            deprecation_warning=DEPRECATED,
        )
    ]
