"""Schemas of custom resources as they are published: completed with what every object has.

OpenAPI 2 cannot say everything that a definition says. What it cannot is left out, together with what clients
(kubectl) then would take for complete: a node that admits unknown fields does not list the known ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubecore.json import JsonObject

from ..registry.definition import ResourceDefinition

_PRESERVES = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_JUNCTIONS = ("allOf", "oneOf", "anyOf", "not")
_INT_OR_STRING = "x-kubernetes-int-or-string"
_EITHER = [{"type": "integer"}, {"type": "string"}]
_NESTED = ("properties", "patternProperties", "definitions")


@dataclass(frozen=True, slots=True)
class TypeMeta:
    """The described schemas of the fields that all objects and lists have."""

    api_version: JsonObject
    kind: JsonObject
    metadata: JsonObject
    list_metadata: JsonObject

    @classmethod
    def of(cls, namespace: Mapping[str, Any], namespace_list: Mapping[str, Any]) -> TypeMeta:
        """From the published definitions of some built-in kind and its list."""
        fields = namespace["properties"]
        return cls(
            fields["apiVersion"],
            fields["kind"],
            fields["metadata"],
            namespace_list["properties"]["metadata"],
        )

    @property
    def fields(self) -> dict[str, JsonObject]:
        """The fields of an object."""
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": self.metadata}


def object_schema(
    definition: ResourceDefinition, raw: JsonObject, common: TypeMeta, *, openapi: int
) -> JsonObject:
    """The schema of a custom resource in OpenAPI 2 or 3."""
    if openapi == 2 and raw.get(_PRESERVES):
        # Naming any field would make clients refuse all others.
        schema: JsonObject = {"type": "object"}
    else:
        schema = _completed(simplified(raw) if openapi == 2 else raw, common, openapi)
        own = schema.get("properties") or {}
        schema = {**schema, "properties": {**own, **common.fields}}
    return {**schema, **_extensions(definition, definition.resource.kind)}


def list_schema(definition: ResourceDefinition, common: TypeMeta) -> JsonObject:
    """The schema of a list of custom resources."""
    resource = definition.resource
    items = {
        "description": f"List of {resource.plural}. More info: {_CONVENTIONS}",
        "type": "array",
        "items": {"$ref": f"#/definitions/{definition.openapi_name}"},
    }
    fields = {**common.fields, "metadata": common.list_metadata, "items": items}
    return {
        "description": f"{definition.list_kind} is a list of {resource.kind}",
        "type": "object",
        "required": ["items"],
        "properties": fields,
        **_extensions(definition, definition.list_kind),
    }


def _extensions(definition: ResourceDefinition, kind: str) -> JsonObject:
    resource = definition.resource
    named = {"group": resource.group, "version": resource.version, "kind": kind}
    found: JsonObject = {"x-kubernetes-group-version-kind": [named]}
    if definition.field_labels:
        selectable = [{"fieldPath": path} for path in definition.field_labels]
        found["x-kubernetes-selectable-fields"] = selectable
    return found


def _mapped(node: JsonObject, change: Any) -> JsonObject:
    """`node` with `change` done to the schemas directly inside it."""
    done = dict(node)
    for key in _NESTED:
        if isinstance(done.get(key), dict):
            done[key] = {name: change(child) for name, child in done[key].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(done.get(key), dict):
            done[key] = change(done[key])
    return done


def _completed(node: JsonObject, common: TypeMeta, openapi: int) -> JsonObject:
    """Embedded objects with the fields that they must have, and both types where a number or text may be."""
    done = _mapped(node, lambda child: _completed(child, common, openapi))
    if openapi == 3 and done.get(_INT_OR_STRING):
        done = _unfolded(done)
    if not done.get(_EMBEDDED) or (openapi == 2 and done.get(_PRESERVES)):
        return done
    about = {
        "apiVersion": "apiVersion defines the versioned schema of this representation of an object. "
        f"More info: {_CONVENTIONS}#resources",
        "kind": "kind is a string value representing the type of this object. In CamelCase. "
        f"More info: {_CONVENTIONS}#types-kinds",
    }
    fields = {name: {"type": "string", "description": text} for name, text in about.items()}
    properties = {**(done.get("properties") or {}), **fields, "metadata": common.metadata}
    required = list(done.get("required") or [])
    required += [name for name in ("kind", "apiVersion") if name not in required]
    return {**done, "properties": properties, "required": required}


def _unfolded(node: JsonObject) -> JsonObject:
    """``x-kubernetes-int-or-string`` said in the words of OpenAPI, unless the schema says it already."""
    any_of, all_of = node.get("anyOf"), node.get("allOf") or []
    if any_of == _EITHER or (all_of and all_of[0].get("anyOf") == _EITHER):
        return node
    return {**node, "anyOf": _EITHER} if not any_of else {**node, "allOf": [{"anyOf": _EITHER}, *all_of]}


def simplified(node: JsonObject) -> JsonObject:
    """What OpenAPI 2 can say of a schema."""
    done = {key: value for key, value in node.items() if key not in _JUNCTIONS}
    if done.pop("nullable", None):
        # Values without a type must not have items or fields.
        for key in ("type", "items", "properties"):
            done.pop(key, None)
    if done.get(_PRESERVES):
        for key in ("items", "properties"):
            done.pop(key, None)
        if done.get("type") == "object":
            del done["type"]
    if done.get("type") == "array" and "items" not in done:
        del done["type"]
    fields = done.get("properties") or {}
    required = [name for name in done.get("required") or [] if not fields.get(name, {}).get("nullable")]
    values = done.get("additionalProperties")
    if not required or (isinstance(values, dict) and values.get("nullable")):
        done.pop("required", None)
    else:
        done["required"] = required
    return _mapped(done, simplified)
