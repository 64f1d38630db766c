"""What every built-in kind shares: its definition from one line of facts, and the generic strategy.

A kind's module subclasses ``BuiltinStrategy`` for what is special about it and lists ``builtin(...)``
definitions. Names, schemas, the OpenAPI name and the ``status`` subresource follow from the kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kindling.apiserver.kinds.encoding import wire
from kindling.apiserver.kinds.schemas.builtin import builtin_schemas
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import (
    ALL_VERBS,
    ResourceDefinition,
    StatusStrategy,
    Strategy,
    Subresource,
    TableConverter,
    status_subresource,
)
from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError
from kubecore.objects.names import is_path_segment_name
from kubecore.resources import ResourceType
from kubecore.schema.model import Schema

from .rules import Rules


class BuiltinStrategy(Strategy):
    """A built-in kind: objects take their wire form and the kind's defaults when they are read in.

    Subclasses set `has_status` and `tracks_generation` and override ``complete`` for defaults.
    """

    schema: Schema
    """Set by ``builtin``."""
    rules: Rules = Rules()
    """The kind's validation. A strategy whose rules depend on the request overrides the methods below."""

    fields: tuple[str, ...] = ()
    """Dotted paths of the field labels. Set by ``builtin``; a strategy whose labels are no plain fields reads
    them itself."""

    def default(self, obj: JsonObject) -> None:
        """The wire form, with the kind's defaults."""
        wire.normalize(obj, self.schema)
        self.complete(obj)

    def complete(self, obj: JsonObject) -> None:
        """Set the kind's defaults in a document in wire form: none."""

    def blank(self) -> JsonObject:
        """The wire form of an object without any fields."""
        obj: JsonObject = {}
        wire.normalize(obj, self.schema)
        return obj

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """An unset status in wire form; the generation starts at 1."""
        if self.has_status:
            obj["status"] = wire.empty(self.schema, "status")
        if self.tracks_generation:
            obj["metadata"]["generation"] = 1

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """The errors of a new object."""
        return list(self.rules.create(obj))

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """The errors of a change, fields that never change last."""
        found = self.validate(ctx, new) if self.rules.update is None else self.rules.update(new, old)
        return [*found, *self.rules.changed(new, old)]

    def selectable_fields(self, obj: JsonObject) -> Mapping[str, str]:
        """The values of `fields`."""
        return labels_of(obj, *self.fields)

    def validate_status(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """The errors of a write through ``/status``."""
        return list(self.rules.status(new, old))

    def warnings(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> list[str]:
        """See ``Rules.warnings``."""
        return list(self.rules.warnings(obj, old))


def path_segment(strategy: Strategy, name: str, *, prefix: bool) -> list[str]:
    """The ``validate_name`` of kinds whose names may be all that fits into a path."""
    return is_path_segment_name(name)


class BuiltinStatusStrategy(StatusStrategy):
    """Writes through ``/status`` of a built-in kind."""

    def __init__(self, base: BuiltinStrategy) -> None:
        super().__init__(base)
        self.main = base

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """As the main strategy judges a status."""
        return self.main.validate_status(ctx, new, old)

    def warnings(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> list[str]:
        """See ``Rules.status_warnings``."""
        return list(self.main.rules.status_warnings(obj))


def builtin(  # noqa: PLR0913 - one line of facts about a kind, all by name
    resource: ResourceType,
    strategy: BuiltinStrategy,
    *,
    short: Sequence[str] = (),
    categories: Sequence[str] = (),
    table: TableConverter | None = None,
    subresources: Sequence[Subresource] = (),
    fields: Sequence[str] = (),
    verbs: Sequence[str] = ALL_VERBS,
    singular: str = "",
    status: BuiltinStatusStrategy | None = None,
    storage_prefix: str = "",
    storage_version: str = "",
    deprecation_warning: str = "",
    recorded: bool = True,
) -> ResourceDefinition:
    """The definition of a built-in kind. `fields` are its field labels beyond name and namespace."""
    schemas = builtin_schemas()
    name = schemas.name_of(resource.group, resource.version, resource.kind)
    strategy.schema = schemas.schema(name)
    strategy.fields = tuple(fields)
    parts: dict[str, Subresource] = {}
    if strategy.has_status:
        parts["status"] = status_subresource(resource.kind, status or BuiltinStatusStrategy(strategy))
    parts |= {part.name: part for part in subresources}
    return ResourceDefinition(
        resource,
        strategy.schema,
        strategy,
        singular=singular,
        short_names=tuple(short),
        categories=tuple(categories),
        verbs=tuple(verbs),
        subresources=parts,
        table=table,
        field_labels=tuple(fields),
        storage_prefix=storage_prefix,
        storage_version=storage_version,
        deprecation_warning=deprecation_warning,
        recorded=recorded,
        openapi=schemas.published(*(root for root in (name, f"{name}List") if root in schemas)),
        openapi_name=name,
    )


def action_schema(group: str, version: str, kind: str) -> Schema:
    """The schema of the body of a create-only subresource."""
    return builtin_schemas().kind(group, version, kind)


def labels_of(obj: Mapping[str, object], *paths: str) -> dict[str, str]:
    """Field labels by dotted path; absent fields are empty, booleans ``true`` and ``false``."""
    found: dict[str, str] = {}
    for path in paths:
        value: object = obj
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        found[path] = str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
    return found
