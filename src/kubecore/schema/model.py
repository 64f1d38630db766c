"""Read-only views over OpenAPI v3 schemas, as built-in kinds and CustomResourceDefinitions publish them.

A `Schema` wraps the raw JSON of one schema node: its children, how lists and maps merge, what survives
pruning. Nodes are created on demand and cached, so a large definition costs only the nodes in use.
References (``$ref``, also inside a single-element ``allOf`` as the published documents write them) are
followed through a `SchemaSet`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, TypeVar, cast

from kubecore.json import JsonObject

from .metadata import OBJECT_META

_NO_RAW: JsonObject = {}
_T = TypeVar("_T")


class SchemaSet:
    """Named raw schemas which refer to each other by ``$ref`` (only the last path segment of a ref counts).

    `open_objects` says that an object schema which names no properties keeps whatever it is given. That is
    how the published definitions of built-in kinds describe free-form values (RawExtension, FieldsV1);
    structural schemas of CustomResourceDefinitions say it by ``x-kubernetes-preserve-unknown-fields``.
    """

    def __init__(
        self, definitions: Mapping[str, JsonObject] | None = None, *, open_objects: bool = True
    ) -> None:
        self._definitions = dict(definitions or {})
        self._schemas: dict[str, Schema] = {}
        self.open_objects = open_objects

    def __contains__(self, name: str) -> bool:
        return name in self._definitions

    def __iter__(self) -> Iterator[str]:
        return iter(self._definitions)

    def raw(self, name: str) -> JsonObject:
        """The raw definition called `name` (KeyError when there is none)."""
        return self._definitions[name]

    def schema(self, name: str) -> Schema:
        """The cached view of the definition `name`. Raises KeyError when there is none."""
        found = self._schemas.get(name)
        if found is None:
            found = Schema(self._definitions[name], self)
            self._schemas[name] = found
        return found


class Schema:
    """An immutable view of one schema node. Compare by identity: equal nodes of a set are the same view."""

    def __init__(self, raw: JsonObject, definitions: SchemaSet | None = None) -> None:
        self._definitions = definitions
        self._derived: dict[Callable[[Schema], Any], Any] = {}
        target, overlay = _reference(raw)
        if target is not None and definitions is not None and target in definitions:
            self.raw: JsonObject = {**definitions.raw(target), **overlay}
            self.definition: str | None = target
        else:
            self.raw = raw
            self.definition = None

    def __repr__(self) -> str:
        return f"Schema({self.definition or self.type or 'any'})"

    def derive(self, build: Callable[[Schema], _T]) -> _T:
        """The result of `build` for this view, cached with it (compiled walkers, for example)."""
        found = self._derived.get(build, _NO_RAW)
        if found is _NO_RAW:
            found = self._derived[build] = build(self)
        return cast(_T, found)

    def _view(self, raw: JsonObject) -> Schema:
        target, overlay = _reference(raw)
        if (
            target is not None
            and not overlay
            and self._definitions is not None
            and target in self._definitions
        ):
            return self._definitions.schema(target)
        return Schema(raw, self._definitions)

    def branch(self, raw: JsonObject) -> Schema:
        """A view of a schema nested in a keyword of this one (``anyOf`` and its like)."""
        return self._view(raw)

    @cached_property
    def type(self) -> str:
        """``object``, ``array``, ``string``, ``integer``, ``number``, ``boolean``, or empty for any."""
        kind = self.raw.get("type")
        return kind if isinstance(kind, str) else ""

    @cached_property
    def format(self) -> str:
        """The ``format``, or empty."""
        return str(self.raw.get("format") or "")

    @cached_property
    def properties(self) -> Mapping[str, Schema]:
        """The named fields of an object; an embedded resource always has those common to all objects."""
        raw = self.raw.get("properties")
        named = {name: self._view(child) for name, child in raw.items()} if isinstance(raw, dict) else {}
        if self.embedded_resource:
            named = embedded_properties(named, self._definitions)
        return named

    @cached_property
    def required(self) -> tuple[str, ...]:
        """Names of fields which must be present, in the schema's order."""
        return tuple(self.raw.get("required") or ())

    @cached_property
    def items(self) -> Schema | None:
        """The schema of the elements of a list."""
        raw = self.raw.get("items")
        return self._view(raw) if isinstance(raw, dict) else None

    @cached_property
    def additional_properties(self) -> Schema | None:
        """The schema of the values of a map; an empty schema for ``true``, None when unset."""
        raw = self.raw.get("additionalProperties")
        if isinstance(raw, dict):
            return self._view(raw)
        return Schema(_NO_RAW, self._definitions) if raw is True else None

    @cached_property
    def list_type(self) -> str:
        """``atomic``, ``set`` or ``map``; empty when not declared (which merges like atomic)."""
        return str(self.raw.get("x-kubernetes-list-type") or "")

    @cached_property
    def list_map_keys(self) -> tuple[str, ...]:
        """The fields which identify an element of a list of type ``map``."""
        return tuple(self.raw.get("x-kubernetes-list-map-keys") or ())

    @cached_property
    def map_type(self) -> str:
        """``granular`` or ``atomic``; empty when not declared (granular)."""
        return str(self.raw.get("x-kubernetes-map-type") or "")

    @cached_property
    def patch_strategy(self) -> tuple[str, ...]:
        """The strategies of strategic merge patch: any of ``merge``, ``replace``, ``retainKeys``."""
        raw = str(self.raw.get("x-kubernetes-patch-strategy") or "")
        return tuple(part for part in raw.split(",") if part)

    @cached_property
    def patch_merge_key(self) -> str:
        """The field by which strategic merge patch matches elements; empty for none."""
        return str(self.raw.get("x-kubernetes-patch-merge-key") or "")

    @cached_property
    def preserve_unknown(self) -> bool:
        """Whether fields which the schema does not name survive pruning here."""
        if self.raw.get("x-kubernetes-preserve-unknown-fields"):
            return True
        if self._definitions is None or not self._definitions.open_objects:
            return False
        return (
            self.type in {"", "object"}
            and not self.raw.get("properties")
            and self.raw.get("additionalProperties") is None
        )

    @cached_property
    def int_or_string(self) -> bool:
        """Whether the value is either an integer or a string."""
        return bool(self.raw.get("x-kubernetes-int-or-string")) or self.raw.get("format") == "int-or-string"

    @cached_property
    def embedded_resource(self) -> bool:
        """Whether the value is a whole object with apiVersion, kind and metadata."""
        return bool(self.raw.get("x-kubernetes-embedded-resource"))

    @cached_property
    def nullable(self) -> bool:
        """Whether null is a value here."""
        return bool(self.raw.get("nullable"))

    @property
    def has_default(self) -> bool:
        """Whether a default is declared (which may itself be null)."""
        return "default" in self.raw

    @property
    def default(self) -> Any:
        """The declared default (shared: copy before putting it into an object), or None."""
        return self.raw.get("default")

    @cached_property
    def validations(self) -> tuple[JsonObject, ...]:
        """The CEL rules (``x-kubernetes-validations``) of this node."""
        return tuple(self.raw.get("x-kubernetes-validations") or ())

    def child(self, name: str) -> Schema | None:
        """The schema of field `name` of an object: a property, else the map's value schema, else None."""
        return self.properties.get(name) or self.additional_properties


def _reference(raw: JsonObject) -> tuple[str | None, JsonObject]:
    """The name a node refers to, and the fields written beside the reference.

    Descriptions beside a reference are documentation and do not make another schema of it.
    """
    target = raw.get("$ref")
    if target is None:
        group = raw.get("allOf")
        if isinstance(group, list) and len(group) == 1 and isinstance(group[0], dict):
            target = group[0].get("$ref")
    if not isinstance(target, str):
        return None, _NO_RAW
    overlay = {key: value for key, value in raw.items() if key not in {"$ref", "allOf", "description"}}
    return target.rsplit("/", 1)[-1], overlay


def custom_resource_schema(raw: JsonObject) -> Schema:
    """The schema of a whole custom resource from ``openAPIV3Schema``: the common fields are added to it."""
    return Schema({**raw, "x-kubernetes-embedded-resource": True}, SchemaSet(open_objects=False))


def embedded_properties(named: Mapping[str, Schema], definitions: SchemaSet | None) -> dict[str, Schema]:
    """The fields of an embedded resource: those every object has, and the `named` ones.

    A declared metadata schema can only restrict the common one.
    """
    declared = named["metadata"].raw if "metadata" in named else _NO_RAW
    properties = {**OBJECT_META["properties"], **(declared.get("properties") or _NO_RAW)}
    metadata = {**OBJECT_META, **declared, "properties": properties}
    common: dict[str, Schema] = {
        "apiVersion": Schema({"type": "string"}, definitions),
        "kind": Schema({"type": "string"}, definitions),
    }
    return {**common, **named, "metadata": Schema(metadata, definitions)}
