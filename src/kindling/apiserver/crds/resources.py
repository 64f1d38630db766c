"""The resources that a definition makes: one for each served version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kindling.apiserver.admission.webhook_client import WebhookClient
from kindling.apiserver.kinds.machinery.base import labels_of
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import (
    Converter,
    ResourceDefinition,
    ScalePaths,
    StatusStrategy,
    Strategy,
    Subresource,
    scale_subresource,
    status_subresource,
)
from kubecore import errors
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.fields import FieldError, FieldPath, invalid
from kubecore.objects.goformat import go_print
from kubecore.resources import ResourceType
from kubecore.schema.defaulting import default
from kubecore.schema.embedded import validate_embedded
from kubecore.schema.list_types import validate_list_types
from kubecore.schema.model import Schema, custom_resource_schema
from kubecore.schema.pruning import prune
from kubecore.schema.validation import validate

from .columns import column_table
from .conversion import NoneConverter, WebhookConverter
from .rules import RuleChecker
from .strategy import names_of, resource_key
from .versions import schema_of, served_versions, storage_version

_CREATING_FORBIDDEN = "create not allowed while custom resource definition is terminating"
_MAX_INT32 = 2**31 - 1
_OWN_FINALIZERS = ("orphan", "foregroundDeletion")
_SCALE_PATHS = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""In the order in which discovery names them for custom resources."""


class CustomStrategy(Strategy):
    """The strategy of the custom resources of one version of a definition."""

    allow_unconditional_update = False

    def __init__(self, crd: JsonObject, version: JsonObject, schema: Schema) -> None:
        subresources = get_object(version, "subresources")
        self.has_status = "status" in subresources
        self._kind = get_str(crd, "spec", "names", "kind")
        self._schema = schema
        self._rules = RuleChecker(schema)
        self._scale = get_object(subresources, "scale")
        self._terminating = meta.is_condition_true(crd, "Terminating")
        self._fields = [str(each.get("jsonPath"))[1:] for each in get_list(version, "selectableFields")]

    def default(self, obj: JsonObject) -> None:
        """Set the schema's defaults and prune unknown fields."""
        prune(obj, self._schema)
        default(obj, self._schema)

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Refused while the definition is being deleted."""
        if self._terminating:
            raise errors.forbidden(ctx.resource, meta.name(obj), _CREATING_FORBIDDEN)
        super().prepare_for_create(ctx, obj)

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """The schema, embedded objects, lists, the scale, and the rules."""
        if errors_of_kind := self._kind_errors(obj):
            return errors_of_kind
        found = validate(obj, self._schema) + self._scale_errors(obj, *_SCALE_PATHS)
        found += validate_embedded(obj, self._schema) + validate_list_types(obj, self._schema)
        return found + self._rules.check(obj, None, found, ctx.warn)

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """As for new objects, but what was wrong before and did not change may stay (ratcheting); rules
        about transitions are checked, too.
        """
        if errors_of_kind := self._kind_errors(new):
            return errors_of_kind
        found = validate(new, self._schema, old=old) + self._scale_errors(new, *_SCALE_PATHS)
        found += validate_embedded(new, self._schema) + self._list_errors(new, old)
        return found + self._rules.check(new, old, found, ctx.warn)

    def validate_status(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """Of a write of the status only the status is checked, but all rules are."""
        if errors_of_kind := self._kind_errors(new):
            return errors_of_kind
        found: list[FieldError] = []
        if "status" in new and (schema := self._schema.properties.get("status")) is not None:
            found = validate(new["status"], schema, FieldPath("status"), old=old.get("status"))
        found += self._scale_errors(new, *_SCALE_PATHS[1:]) + self._list_errors(new, old)
        return found + self._rules.check(new, old, found, ctx.warn)

    def _kind_errors(self, obj: JsonObject) -> list[FieldError]:
        kind = obj.get("kind")
        return [] if kind == self._kind else [invalid("kind", kind, f"must be {self._kind}")]

    def _list_errors(self, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """Duplicates in sets and map lists; none count where there were some before."""
        found = validate_list_types(new, self._schema)
        return [] if found and validate_list_types(old, self._schema) else found

    def _scale_errors(self, obj: JsonObject, *settings: str) -> list[FieldError]:
        """The errors of the values at the paths of the scale subresource."""
        found = []
        for setting in settings:
            path = str(self._scale.get(setting) or "")
            number = setting != "labelSelectorPath"
            if path and (problem := _access_error(obj, path, "int64" if number else "string")):
                found.append(invalid(path, 0 if number else "", problem))
            elif number and isinstance(value := _at(obj, path), int):
                if value < 0:
                    found.append(invalid(path, value, "should be a non-negative integer"))
                elif value > _MAX_INT32:
                    found.append(invalid(path, value, f"should be less than or equal to {_MAX_INT32}"))
        return found

    def warnings(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> list[str]:
        """New finalizers should say whose they are."""
        known = {*_OWN_FINALIZERS, *meta.finalizers(old or {})}
        return [
            f'metadata.finalizers: "{finalizer}": prefer a domain-qualified finalizer name to avoid '
            "accidental conflicts with other finalizer writers"
            for finalizer in meta.finalizers(obj)
            if "/" not in finalizer and finalizer not in known
        ]

    def selectable_fields(self, obj: JsonObject) -> Mapping[str, str]:
        """The values of ``selectableFields``."""
        return labels_of(obj, *self._fields)


class CustomStatusStrategy(StatusStrategy):
    """Writes through ``/status``: the whole object must be valid after the write."""

    def __init__(self, base: CustomStrategy) -> None:
        super().__init__(base)
        self._custom = base

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Only the status changes, and with it who manages which fields; the other metadata stays, too."""
        super().prepare_for_update(ctx, new, old)
        metadata = {**meta.metadata(old)}
        metadata.pop("managedFields", None)
        written = meta.metadata(new)
        for field in ("managedFields", "resourceVersion"):
            if field in written:
                metadata[field] = written[field]
        new["metadata"] = metadata

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """See CustomStrategy."""
        return self._custom.validate_status(ctx, new, old)


def _at(obj: Any, path: str) -> Any:
    """The value at a simple path such as ``.spec.replicas``, or None."""
    for part in path.removeprefix(".").split("."):
        if not isinstance(obj, dict):
            return None
        obj = obj.get(part)
    return obj


_GO_TYPES = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


def _access_error(obj: Any, path: str, wanted: str) -> str:
    """Why there is no value of the Go type `wanted` at a simple path: a part on the way is no object, or
    the value is of another type. Empty when all is well or nothing is there.
    """
    parts = path.removeprefix(".").split(".")
    for count, part in enumerate(parts):
        if not isinstance(obj, dict):
            where, wanted = "." + ".".join(parts[: count + 1]), "map[string]interface{}"
            break
        obj = obj.get(part)
        if obj is None:
            return ""
    else:
        where = "." + ".".join(parts)
        if _GO_TYPES[type(obj)] == wanted:
            return ""
    return f"{where} accessor error: {go_print(obj)} is of the type {_GO_TYPES[type(obj)]}, expected {wanted}"


def resource_definitions(
    crd: JsonObject, client: WebhookClient, fresh_since: int = 0
) -> list[ResourceDefinition]:
    """What the server offers for an established definition.

    Objects stored before revision `fresh_since` may not fit the schemas.
    """
    group = get_str(crd, "spec", "group")
    stored_in = storage_version(crd)
    schemas = {
        str(version["name"]): custom_resource_schema(schema_of(version))
        for version in get_list(crd, "spec", "versions")
    }
    converter = _converter(crd, client, f"{group}/{stored_in}", _pruner(schemas.get(stored_in)))
    definitions = [
        _definition(crd, version, schemas[str(version["name"])], converter)
        for version in served_versions(crd)
    ]
    versions = {f"{group}/{name}": schema for name, schema in schemas.items()}
    for definition in definitions:
        definition.refresh, definition.fresh_since = _refresher(group, schemas), fresh_since
        definition.versions = versions
    return definitions


def _refresher(group: str, schemas: Mapping[str, Schema]) -> Callable[[JsonObject], None]:
    """Brings a stored object, in whichever version it is, to that version's schema."""
    by_version = {f"{group}/{version}": _tidy(schema) for version, schema in schemas.items()}

    def refresh(obj: JsonObject) -> None:
        tidy = by_version.get(str(obj.get("apiVersion")))
        if tidy is not None:
            tidy(obj)

    return refresh


def _tidy(schema: Schema) -> Callable[[JsonObject], None]:
    def tidy(obj: JsonObject) -> None:
        prune(obj, schema)
        default(obj, schema)

    return tidy


def _pruner(schema: Schema | None) -> Callable[[JsonObject], None]:
    """The pruner of the storage version: unknown fields are not stored."""

    def tidy(obj: JsonObject) -> None:
        if schema is not None:
            prune(obj, schema)

    return tidy


def _converter(
    crd: JsonObject, client: WebhookClient, stored_in: str, tidy: Callable[[JsonObject], None]
) -> Converter:
    if get_str(crd, "spec", "conversion", "strategy") == "Webhook":
        return WebhookConverter(crd, client, stored_in, tidy)
    return NoneConverter(stored_in, tidy)


def _definition(
    crd: JsonObject, version: JsonObject, schema: Schema, converter: Converter
) -> ResourceDefinition:
    accepted = get_object(crd, "status", "acceptedNames") or names_of(crd)
    group, name = get_str(crd, "spec", "group"), str(version["name"])
    namespaced = get_str(crd, "spec", "scope") == "Namespaced"
    kind = str(accepted.get("kind"))
    strategy = CustomStrategy(crd, version, schema)
    return ResourceDefinition(
        ResourceType(group, name, str(accepted.get("plural")), kind, namespaced),
        schema,
        strategy,
        singular=str(accepted.get("singular") or ""),
        list_kind=str(accepted.get("listKind") or ""),
        short_names=tuple(accepted.get("shortNames") or ()),
        categories=tuple(accepted.get("categories") or ()),
        verbs=_VERBS,
        subresources=_subresources(kind, version, strategy),
        table=column_table(get_list(version, "additionalPrinterColumns")),
        field_labels=tuple(strategy.selectable_fields({})),
        storage_version=f"{group}/{storage_version(crd)}",
        storage_prefix=resource_key(crd),
        converter=converter,
        custom=True,
        deprecation_warning=_deprecation(crd, version),
        openapi={openapi_name(group, name, kind): schema_of(version)},
        openapi_name=openapi_name(group, name, kind),
    )


def openapi_name(group: str, version: str, kind: str) -> str:
    """The name of a custom resource's schema in the OpenAPI documents: ``com.example.v1.Kind``."""
    return ".".join([*reversed(group.split(".")), version, kind])


def _subresources(kind: str, version: JsonObject, strategy: CustomStrategy) -> dict[str, Subresource]:
    found: dict[str, Subresource] = {}
    declared = get_object(version, "subresources")
    if "status" in declared:
        found["status"] = status_subresource(kind, CustomStatusStrategy(strategy))
    scale = declared.get("scale")
    if isinstance(scale, dict):
        paths = ScalePaths(
            str(scale.get("specReplicasPath")).removeprefix("."),
            str(scale.get("statusReplicasPath")).removeprefix("."),
            str(scale.get("labelSelectorPath") or "").removeprefix("."),
        )
        found["scale"] = scale_subresource(paths)
    return found


def _deprecation(crd: JsonObject, version: JsonObject) -> str:
    if not version.get("deprecated"):
        return ""
    group, kind = get_str(crd, "spec", "group"), get_str(crd, "spec", "names", "kind")
    return str(version.get("deprecationWarning") or f"{group}/{version['name']} {kind} is deprecated")
