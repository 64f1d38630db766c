"""Schemas as messages of Kubernetes dump them: with all fields of its internal type, set or not."""

from __future__ import annotations

from typing import Any, Final

from kubecore.json import JsonObject

_EMPTY: Final = {
    **dict.fromkeys(("id", "$schema"), ""),
    "$ref": None,
    **dict.fromkeys(("description", "type"), ""),
    "nullable": False,
    **dict.fromkeys(("format", "title"), ""),
    **dict.fromkeys(("default", "maximum"), None),
    "exclusiveMaximum": False,
    "minimum": None,
    "exclusiveMinimum": False,
    **dict.fromkeys(("maxLength", "minLength"), None),
    "pattern": "",
    **dict.fromkeys(("maxItems", "minItems"), None),
    "uniqueItems": False,
    **dict.fromkeys(("multipleOf", "enum", "maxProperties", "minProperties", "required", "items"), None),
    **dict.fromkeys(("allOf", "oneOf", "anyOf", "not", "properties", "additionalProperties"), None),
    **dict.fromkeys(("patternProperties", "dependencies", "additionalItems", "definitions"), None),
    **dict.fromkeys(("externalDocs", "example", "x-kubernetes-preserve-unknown-fields"), None),
    **dict.fromkeys(("x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"), False),
    **dict.fromkeys(("x-kubernetes-list-map-keys", "x-kubernetes-list-type", "x-kubernetes-map-type"), None),
    "x-kubernetes-validations": None,
}
"""The fields in their order, with what stands for nothing."""

_ALLOWED_AT_ROOT: Final = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength "
    "Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example "
    "XPreserveUnknownFields XValidations"
)


def beyond_status(raw: JsonObject) -> str:
    """Why a schema cannot stand beside a status subresource, for which its part of the root must do.

    Empty if it can.
    """
    for name, value in schema_form(raw).items():
        if value in (None, "", False) or name in _ALLOWED_AT_ROOT.split():
            continue
        where = "at the root of the schema if the status subresource is enabled"
        return f"only [{_ALLOWED_AT_ROOT}] fields are allowed {where}"
    return ""


def schema_form(raw: JsonObject) -> JsonObject:
    """The dump of a schema."""
    return {_name(key): _value(key, raw.get(key, empty), empty) for key, empty in _EMPTY.items()}


def rule_form(raw: JsonObject) -> JsonObject:
    """The dump of a rule."""
    return {
        "Rule": raw.get("rule") or "",
        "Message": raw.get("message") or "",
        "MessageExpression": raw.get("messageExpression") or "",
        "Reason": raw.get("reason"),
        "FieldPath": raw.get("fieldPath") or "",
        "OptionalOldSelf": raw.get("optionalOldSelf"),
    }


def _name(key: str) -> str:
    if key in ("id", "$schema", "$ref"):
        return {"id": "ID", "$schema": "Schema", "$ref": "Ref"}[key]
    words = key.removeprefix("x-kubernetes-").split("-")
    prefix = "X" if key.startswith("x-") else ""
    return prefix + "".join(word[:1].upper() + word[1:] for word in words)


def _value(key: str, value: Any, empty: Any) -> Any:
    if value is None:
        return empty
    if key in ("properties", "patternProperties", "definitions"):
        return {name: schema_form(value[name]) for name in sorted(value)} or None
    if key in ("allOf", "oneOf", "anyOf"):
        return [schema_form(each) for each in value] or None
    if key == "not":
        return schema_form(value)
    if key == "items":
        several = isinstance(value, list)
        return {
            "Schema": None if several else schema_form(value),
            "JSONSchemas": [schema_form(each) for each in value] if several else None,
        }
    if key in ("additionalProperties", "additionalItems"):
        is_schema = isinstance(value, dict)
        return {"Allows": is_schema or bool(value), "Schema": schema_form(value) if is_schema else None}
    if key == "externalDocs":
        return {"Description": value.get("description") or "", "URL": value.get("url") or ""}
    if key == "x-kubernetes-validations":
        return [rule_form(each) for each in value] or None
    return value
