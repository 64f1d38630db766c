"""CustomResourceDefinition as a stored kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kindling.apiserver.kinds.machinery.base import BuiltinStatusStrategy, BuiltinStrategy, builtin
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta, times
from kubecore.objects.fields import FieldError, go_quote
from kubecore.resources import CUSTOM_RESOURCE_DEFINITIONS
from kubecore.schema.formats import is_recognized

from . import validation
from .versions import all_versions, schema_of, storage_version

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
"""Holds a deleted definition until its resources are gone."""
_WEBHOOK_PORT = 443
_EMPTY_IS_NOTHING = frozenset(
    {"id", "$schema", "description", "type", "format", "title", "pattern", "exclusiveMaximum", "uniqueItems"}
    | {"exclusiveMinimum", "nullable", "required", "enum", "allOf", "oneOf", "anyOf", "properties"}
    | {"patternProperties", "definitions", "dependencies", "x-kubernetes-embedded-resource"}
    | {"x-kubernetes-int-or-string", "x-kubernetes-list-map-keys", "x-kubernetes-validations"}
)
"""Fields of a schema that are not kept when they are empty."""


def definition() -> ResourceDefinition:
    """The kind CustomResourceDefinition."""
    strategy = DefinitionStrategy()
    return builtin(
        CUSTOM_RESOURCE_DEFINITIONS,
        strategy,
        short=("crd", "crds"),
        categories=("api-extensions",),
        status=BuiltinStatusStrategy(strategy),
    )


class DefinitionStrategy(BuiltinStrategy):
    """Names are completed, the storage version is remembered, deletion waits for the instances."""

    def default(self, obj: JsonObject) -> None:
        """Normalize to the wire form, except schemas, in which ``minimum: 0`` differs from an unset field."""
        _fill(get_object(obj, "spec"), "versions", dict)
        schemas = [version.pop("schema", None) for version in all_versions(obj)]
        super().default(obj)
        for version, schema in zip(all_versions(obj), schemas, strict=True):
            if schema is not None:
                _drop_null_defaults(schema)
                _settle(schema.get("openAPIV3Schema"))
                version["schema"] = schema

    def complete(self, obj: JsonObject) -> None:
        """Defaults: names, no conversion, the port of webhooks, the stored versions."""
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        kind = str(names.get("kind") or "")
        if kind:
            names.setdefault("singular", kind.lower())
            names.setdefault("listKind", f"{kind}List")
        conversion = spec.setdefault("conversion", {})
        conversion.setdefault("strategy", "None")
        service = get_object(conversion, "webhook", "clientConfig", "service")
        if service:
            service.setdefault("port", _WEBHOOK_PORT)
        for version in all_versions(obj):
            version.setdefault("served", False)
            version.setdefault("storage", False)
        if not spec.get("preserveUnknownFields"):
            spec.pop("preserveUnknownFields", None)
        status = obj.get("status")
        if isinstance(status, dict) and not status.get("storedVersions") and storage_version(obj):
            status["storedVersions"] = [storage_version(obj)]

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """An empty status that remembers the storage version."""
        super().prepare_for_create(ctx, obj)
        obj["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": None,
        }
        if storage_version(obj):
            obj["status"]["storedVersions"] = [storage_version(obj)]

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Keep the status, but add a new storage version to it."""
        super().prepare_for_update(ctx, new, old)
        chosen = storage_version(new)
        stored = get_list(new, "status", "storedVersions")
        if chosen and chosen not in stored:
            new["status"] = {**get_object(new, "status"), "storedVersions": [*stored, chosen]}

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """See ``validation``."""
        return validation.validate(obj)

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """See ``validation``."""
        return validation.validate_update(new, old)

    def validate_status(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """See ``validation``."""
        return list(validation.validate_status(new))

    def warnings(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> list[str]:
        """Formats that mean nothing are ignored."""
        found: dict[str, None] = {}
        for version in all_versions(obj) if old is None else ():
            found |= dict.fromkeys(_unrecognized_formats(schema_of(version)))
        return super().warnings(ctx, obj, old) + [f"unrecognized format {go_quote(name)}" for name in found]

    def before_delete(self, ctx: RequestContext, obj: JsonObject) -> JsonObject | None:
        """Instances go first: the definition turns Terminating and waits with a finalizer."""
        if meta.is_being_deleted(obj):
            return None
        metadata = obj["metadata"]
        metadata["deletionTimestamp"] = times.now_rfc3339()
        meta.add_finalizer(obj, CLEANUP_FINALIZER)
        status = obj.setdefault("status", {})
        conditions = status.get("conditions") or []
        meta.set_condition(
            conditions,
            "Terminating",
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        )
        status["conditions"] = conditions
        return obj


def names_of(crd: JsonObject) -> JsonObject:
    """spec.names."""
    return get_object(crd, "spec", "names")


def resource_key(crd: JsonObject) -> str:
    """The bucket of the instances: ``group/plural``."""
    return f"{get_str(crd, 'spec', 'group')}/{get_str(crd, 'spec', 'names', 'plural')}"


def _unrecognized_formats(schema: JsonObject) -> Iterator[str]:
    """The formats in a schema that validation does not know."""
    name = str(schema.get("format") or "")
    if name and not is_recognized(name, str(schema.get("type") or "")):
        yield name
    children = [schema.get("items"), schema.get("additionalProperties"), schema.get("not")]
    children += [branch for keyword in ("allOf", "anyOf", "oneOf") for branch in schema.get(keyword) or ()]
    for child in (*children, *(schema.get("properties") or {}).values()):
        if isinstance(child, dict):
            yield from _unrecognized_formats(child)


def _drop_null_defaults(schema: Any) -> None:
    """Remove defaults of null, which have no effect."""
    if isinstance(schema, list):
        for each in schema:
            _drop_null_defaults(each)
    elif isinstance(schema, dict):
        for key in [key for key, value in schema.items() if value is None]:
            del schema[key]
        for key, value in schema.items():
            if key not in ("default", "enum", "example"):
                _drop_null_defaults(value)


def _settle(schema: Any) -> None:
    """Give what decodes to nothing its form: ``items`` of a wrong type, elements that are null."""
    if not isinstance(schema, dict):
        return
    for key in _EMPTY_IS_NOTHING & schema.keys():
        if schema[key] in ("", False, [], {}):
            del schema[key]
    if "items" in schema and not isinstance(schema["items"], dict | list):
        del schema["items"]
    for key in ("allOf", "anyOf", "oneOf", "x-kubernetes-validations"):
        _fill(schema, key, dict)
    for key in ("required", "x-kubernetes-list-map-keys"):
        _fill(schema, key, str)
    for rule in schema.get("x-kubernetes-validations") or ():
        for key in ("message", "messageExpression", "fieldPath"):
            if rule.get(key) == "":
                del rule[key]
    for key in ("properties", "patternProperties", "definitions"):
        for child in (schema.get(key) or {}).values():
            _settle(child)
    for key in ("items", "additionalProperties", "additionalItems", "not"):
        _settle(schema.get(key))
    for key in ("allOf", "anyOf", "oneOf"):
        for child in schema.get(key) or ():
            _settle(child)


def _fill(holder: JsonObject, key: str, empty: type[dict[str, Any]] | type[str]) -> None:
    """A null in a list decodes to the zero value of its elements' type."""
    found = holder.get(key)
    if isinstance(found, list) and None in found:
        holder[key] = [empty() if item is None else item for item in found]
