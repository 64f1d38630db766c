"""APIServices: which group versions are served here, and which elsewhere."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, UNKNOWN, Table, age, plain
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import FieldError, FieldPath, invalid, required
from kubecore.objects.names import is_dns1035_label, is_dns1123_subdomain, is_path_segment_name
from kubecore.resources import API_SERVICES


class ApiServiceStrategy(BuiltinStrategy):
    """One group version and where it is served."""

    tracks_generation = False
    allow_unconditional_update = False

    def validate_name(self, name: str, *, prefix: bool) -> list[str]:
        """Any path segment: the name of the core group's ends with a dot."""
        return is_path_segment_name(name)

    def complete(self, obj: JsonObject) -> None:
        """HTTPS' port."""
        service = obj["spec"].get("service")
        if isinstance(service, dict):
            service.setdefault("port", 443)

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """What is served here is available at once."""
        obj["status"] = {}

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """The name says the version; priorities, service and certificates make sense."""
        return validate_api_service(obj)


def validate_api_service(obj: JsonObject) -> list[FieldError]:
    """The rules of an APIService."""
    spec = get_object(obj, "spec")
    path = FieldPath("spec")
    group, version = spec.get("group", ""), spec.get("version", "")
    name, wanted = get_str(obj, "metadata", "name"), f"{version}.{group}"
    found: list[FieldError] = []
    if name != wanted:
        text = f'must be `spec.version+"."+spec.group`: "{wanted}"'
        found.append(invalid(FieldPath("metadata", "name"), name, text))
    found += [
        invalid(path.child("group"), group, text) for text in (is_dns1123_subdomain(group) if group else [])
    ]
    found += [invalid(path.child("version"), version, text) for text in is_dns1035_label(version)]
    for field, limit in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        value = spec.get(field, 0)
        if not 0 < value <= limit:
            found.append(invalid(path.child(field), value, f"must be positive and less than {limit}"))
    bundle, insecure, service = spec.get("caBundle"), spec.get("insecureSkipTLSVerify"), spec.get("service")
    if service is None:
        if bundle:
            found.append(
                invalid(
                    path.child("caBundle"),
                    f"{_decoded_length(bundle)} bytes",
                    "local APIServices may not have a caBundle",
                )
            )
        if insecure:
            found.append(
                invalid(
                    path.child("insecureSkipTLSVerify"),
                    True,
                    "local APIServices may not have insecureSkipTLSVerify",
                )
            )
        return found
    if insecure and bundle:
        found.append(
            invalid(path.child("insecureSkipTLSVerify"), True, "may not be true if caBundle is present")
        )
    if not service.get("namespace"):
        found.append(required(path.child("service", "namespace")))
    if not service.get("name"):
        found.append(required(path.child("service", "name")))
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        text = "port is not valid: must be between 1 and 65535, inclusive"
        found.append(invalid(path.child("service", "port"), port, text))
    return found


def _decoded_length(encoded: str) -> int:
    try:
        return len(base64.b64decode(encoded))
    except binascii.Error:
        return len(encoded)


def _cells(obj: JsonObject) -> list[Any]:
    service = get_object(obj, "spec", "service")
    where = f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"
    available = UNKNOWN
    for condition in get_list(obj, "status", "conditions"):
        if condition.get("type") == "Available":
            available = condition.get("status", "")
            if available != "True":
                available = f"{available} ({condition.get('reason', '')})"
    return [get_str(obj, "metadata", "name"), where, available, age(obj)]


def definitions() -> list[ResourceDefinition]:
    """API services."""
    return [
        builtin(
            API_SERVICES,
            ApiServiceStrategy(),
            categories=("api-extensions",),
            table=Table((NAME, plain("Service"), plain("Available"), AGE), _cells),
        )
    ]
