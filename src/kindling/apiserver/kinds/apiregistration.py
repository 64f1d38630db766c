"""``apiregistration.k8s.io``: APIServices, by which group versions are served here or elsewhere."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin, path_segment
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta, names
from kubecore.objects.fields import FieldError, FieldPath, invalid
from kubecore.resources import API_SERVICES


def validate_api_service(obj: JsonObject) -> Iterator[FieldError]:
    """The rules of an APIService."""
    group, version = get_str(obj, "spec", "group"), get_str(obj, "spec", "version")
    name, wanted = get_str(obj, "metadata", "name"), f"{version}.{group}"
    if name and name != wanted:
        text = f'must be `spec.version+"."+spec.group`: "{wanted}"'
        yield invalid(FieldPath("metadata", "name"), name, text)
    yield from _RULES(obj)


def _priority(limit: int) -> f.Check:
    return f.between(1, limit, f"must be positive and less than {limit}")


def _local(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    bundle = spec.get("caBundle")
    if bundle:
        shown = f"{_decoded_length(bundle)} bytes"
        yield invalid(path.child("caBundle"), shown, "local APIServices may not have a caBundle")
    if spec.get("insecureSkipTLSVerify"):
        text = "local APIServices may not have insecureSkipTLSVerify"
        yield invalid(path.child("insecureSkipTLSVerify"), True, text)


def _secure(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    if spec.get("insecureSkipTLSVerify") and spec.get("caBundle"):
        yield invalid(path.child("insecureSkipTLSVerify"), True, "may not be true if caBundle is present")


_RULES = f.spec(
    f.may("group", f.SUBDOMAIN),
    f.always("version", "", f.named(names.is_dns1035_label)),
    f.always("groupPriorityMinimum", 0, _priority(20000)),
    f.always("versionPriority", 0, _priority(1000)),
    f.when(f.equals("service", None), _local),
    f.unless(f.equals("service", None), _secure),
    f.given("service", *f.needed("namespace", "name"), f.given("port", f.SERVICE_PORT)),
)


def _decoded_length(encoded: str) -> int:
    try:
        return len(base64.b64decode(encoded))
    except binascii.Error:
        return len(encoded)


_ALWAYS = "Local APIServices are always available"


class ApiServiceStrategy(BuiltinStrategy):
    """One group version and where it is served."""

    metadata_checks = (1, 1)
    tracks_generation = False
    allow_unconditional_update = False
    rules = Rules(validate_api_service)
    validate_name = path_segment  # the name of the core group's version ends with a dot

    def complete(self, obj: JsonObject) -> None:
        """Default to port 443."""
        service = obj["spec"].get("service")
        if isinstance(service, dict):
            service.setdefault("port", 443)

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Drop the status that the client sends; what this server serves itself is always available."""
        obj["status"] = {}
        if get_object(obj, "spec").get("service") is None:
            conditions: list[JsonObject] = []
            meta.set_condition(conditions, "Available", True, "Local", _ALWAYS)
            obj["status"]["conditions"] = conditions


def _service(obj: JsonObject) -> str:
    service = get_object(obj, "spec", "service")
    return f"{service.get('namespace', '')}/{service.get('name', '')}" if service else "Local"


def _available(obj: JsonObject) -> str:
    available = p.UNKNOWN
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
            table=p.Table(p.NAME, p.plain("Service", _service), p.plain("Available", _available), p.AGE),
        )
    ]
