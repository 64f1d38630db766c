"""Values of the wrong type, in the words of Go: CDI reads objects before their schema is checked."""

from __future__ import annotations

from functools import cache
from typing import Any

from kubecore.json import JsonObject
from kubecore.objects.quantity import Quantity
from virtplane.api.markers import ApiStruct
from virtplane.api.schema import object_schema

_SHOWN = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
_NAMED = {"volumeMode": "v1.PersistentVolumeMode", "contentType": "v1beta1.DataVolumeContentType"}
_GO = {"string": "string", "boolean": "bool", "number": "float64", "array": "[]interface {}"}
_FITS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}


def misfit(struct: type[ApiStruct], document: JsonObject) -> str:
    """What does not fit first, in the order of the document; empty if all fits."""
    schema = _schema(struct)["properties"].get("spec", {})
    return _misfit(document.get("spec"), schema, ".spec", "spec")


def completed(struct: type[ApiStruct], document: JsonObject) -> JsonObject:
    """The document with empty texts where required ones are missing; the schema will refuse it for them."""
    spec = document.get("spec")
    schema = _schema(struct)["properties"].get("spec", {})
    return {**document, "spec": _completed(spec, schema)} if isinstance(spec, dict) else document


def _completed(value: Any, schema: JsonObject) -> Any:
    if isinstance(value, list):
        return [_completed(item, schema.get("items", {})) for item in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    missing = (name for name in schema.get("required", ()) if properties[name].get("type") == "string")
    return {
        **dict.fromkeys(missing, ""),
        **{name: _completed(item, properties.get(name, {})) for name, item in value.items()},
    }


@cache
def _schema(struct: type[ApiStruct]) -> JsonObject:
    return object_schema(struct)


def _misfit(value: Any, schema: JsonObject, path: str, name: str) -> str:
    if value is None:
        return ""
    if schema.get("x-kubernetes-int-or-string"):
        return _bad_quantity(value)
    wanted = schema.get("type", "")
    if wanted and not _fits(value, wanted):
        kind = _NAMED.get(name) or _go_type(schema)
        return f"json: cannot unmarshal {_SHOWN[type(value)]} into Go struct field {path} of type {kind}"
    if isinstance(value, dict):
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
        members = ((key, properties.get(key, rest), member) for key, member in value.items())
        found = (_misfit(item, inner, f"{path}.{key}", key) for key, inner, item in members if inner)
    elif isinstance(value, list):
        found = (_misfit(item, schema.get("items", {}), path, name) for item in value)
    else:
        return ""
    return next(filter(None, found), "")


def _fits(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, _FITS[wanted])


def _go_type(schema: JsonObject) -> str:
    wanted = schema["type"]
    if wanted == "integer":
        return str(schema.get("format") or "int")
    if wanted == "array":
        return "[]" + _GO.get(schema.get("items", {}).get("type", ""), "interface {}")
    return _GO.get(wanted, "map[string]interface {}")


def _bad_quantity(value: Any) -> str:
    try:
        Quantity.parse(value)
    except ValueError as error:
        return str(error)
    return ""
