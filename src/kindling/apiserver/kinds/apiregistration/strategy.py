"""APIServices: which group versions are served here, and which elsewhere."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, UNKNOWN, Table, plain
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.names import is_path_segment_name
from kubecore.resources import API_SERVICES

from .validation import validate_api_service


class ApiServiceStrategy(BuiltinStrategy):
    """One group version and where it is served."""

    tracks_generation = False
    allow_unconditional_update = False
    rules = Rules(validate_api_service)

    def validate_name(self, name: str, *, prefix: bool) -> list[str]:
        """Any path segment: the name of the core group's ends with a dot."""
        return is_path_segment_name(name)

    def complete(self, obj: JsonObject) -> None:
        """Default to port 443."""
        service = obj["spec"].get("service")
        if isinstance(service, dict):
            service.setdefault("port", 443)

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Drop the status that the client sends."""
        obj["status"] = {}


def _service(obj: JsonObject) -> str:
    service = get_object(obj, "spec", "service")
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"


def _available(obj: JsonObject) -> str:
    available = UNKNOWN
    for condition in get_list(obj, "status", "conditions"):
        if condition.get("type") == "Available":
            available = condition.get("status", "")
            if available != "True":
                available = f"{available} ({condition.get('reason', '')})"
    return available


def definitions() -> list[ResourceDefinition]:
    """API services."""
    return [
        builtin(
            API_SERVICES,
            ApiServiceStrategy(),
            categories=("api-extensions",),
            table=Table(NAME, plain("Service", _service), plain("Available", _available), AGE),
        )
    ]
