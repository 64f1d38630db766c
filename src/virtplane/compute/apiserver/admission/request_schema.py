"""Requests checked against the schema, with the messages that KubeVirt's clients know.

This happens before anything else, so that the rules can rely on types. Paths name no indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import NoneType
from typing import Any

from kubecore.json import JsonObject, get_object
from kubecore.objects.quantity import Quantity
from virtplane.api.clone_v1beta1 import clone
from virtplane.api.kubevirt_v1 import kubevirt, migration, preset, replicaset, vm, vmi
from virtplane.api.markers import PRESENCE, ApiStruct
from virtplane.api.pool_v1beta1 import pool
from virtplane.api.schema import QUANTITY, RANGE, WRITTEN, request_schema
from virtplane.serving.responses import Cause

_TOP_LEVEL = ("apiVersion", "kind", "metadata", "spec", "status")

STRUCTS: dict[str, type[ApiStruct]] = {
    "KubeVirt": kubevirt.KubeVirt,
    "VirtualMachine": vm.VirtualMachine,
    "VirtualMachineClone": clone.VirtualMachineClone,
    "VirtualMachineInstance": vmi.VirtualMachineInstance,
    "VirtualMachineInstanceMigration": migration.VirtualMachineInstanceMigration,
    "VirtualMachineInstancePreset": preset.VirtualMachineInstancePreset,
    "VirtualMachineInstanceReplicaSet": replicaset.VirtualMachineInstanceReplicaSet,
    "VirtualMachinePool": pool.VirtualMachinePool,
}
"""Kinds whose requests are read by a schema. Others are left to the served definitions."""

UNCHECKED = ("VirtualMachineClone", "VirtualMachinePool")
"""Kinds that nothing but the served definition checks."""


def schema_causes(kind: str, document: JsonObject) -> list[Cause]:
    """What makes a request of `kind` unreadable: its top level, its spec and its status."""
    schema = _schema(kind)
    if schema is None or kind in UNCHECKED:
        return []
    causes = [f".{key} in body is a forbidden property" for key in document if key not in _TOP_LEVEL]
    if "spec" not in document:
        causes.append("spec in body is required")
    causes += _check(schema["spec"], document.get("spec"), "spec", strict=True)
    if document.get("status") is not None and "status" in schema:
        causes += _check(schema["status"], document["status"], "status", strict=False)
    return [Cause(message, type="") for message in causes]


def status_causes(kind: str, document: JsonObject) -> list[Cause]:
    """What makes the status of a request unreadable."""
    schema = _schema(kind)
    if schema is None or "status" not in schema or document.get("status") is None:
        return []
    found = _check(schema["status"], document["status"], "status", strict=False)
    return [Cause(message, type="") for message in found]


@cache
def _schema(kind: str) -> JsonObject | None:
    struct = STRUCTS.get(kind)
    return get_object(request_schema(struct), "properties") if struct else None


def _check(schema: JsonObject, value: Any, path: str, *, strict: bool) -> Iterator[str]:
    """The errors of one value. Paths have no list indices, and numbers are float64, as in KubeVirt's
    messages.
    """
    if value is None and schema.get("nullable"):
        return
    expected, given = _types(schema), _name(value)
    form = schema.get("format") if given in ("number", "boolean", "object") else ""
    if not _fits(schema, value):
        wanted, shown = (
            (form, "float64" if given == "number" else "") if form else (",".join(expected), given)
        )
        yield f'{path} in body must be of type {wanted}: "{shown}"'
    if isinstance(value, dict) and "object" in expected:
        yield from _check_object(schema, value, path, strict=strict)
    elif isinstance(value, list) and "array" in expected:
        for item in value:
            yield from _check(get_object(schema, "items"), item, path, strict=strict)
    allowed = schema.get("enum")
    if allowed and value not in allowed:
        yield f"{path} in body should be one of [{' '.join(str(entry) for entry in allowed)}]"


def _check_object(schema: JsonObject, value: JsonObject, path: str, *, strict: bool) -> Iterator[str]:
    properties = get_object(schema, "properties")
    additional = schema.get("additionalProperties")
    for key in schema.get("required", ()):
        if key not in value:
            yield f"{path}.{key} in body is required"
    keeps_unknown = schema.get("x-kubernetes-preserve-unknown-fields") or not properties
    for key, member in value.items():
        if key in properties:
            if member is not None or key in schema[WRITTEN]:
                yield from _check(properties[key], member, f"{path}.{key}", strict=strict)
        elif isinstance(additional, dict):
            yield from _check(additional, member, f"{path}.{key}", strict=strict)
        elif strict and not keeps_unknown:
            yield f"{path}.{key} in body is a forbidden property"


def _types(schema: JsonObject) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("string", "integer", "number") if schema[QUANTITY] else ("string", "number")
    return (schema["type"],) if "type" in schema else ()


def _fits(schema: JsonObject, value: Any) -> bool:
    expected, given = _types(schema), _name(value)
    is_whole = given == "number" and float(value).is_integer() and abs(value) < 2**53
    return not expected or given in expected or (is_whole and "integer" in expected)


_NAMES: dict[type, str] = {dict: "object", list: "array", str: "string", bool: "boolean", NoneType: "null"}


def _name(value: Any) -> str:
    return _NAMES.get(type(value), "number")


class Unreadable(ValueError):
    """A value has the right type, but is out of the range of KubeVirt's Go types."""


def write_typed(kind: str, document: JsonObject) -> None:
    """Write spec and status of `document` down as KubeVirt's own types do.

    Amounts are in canonical form, empty lists and texts are left out where they are the same as none, and
    what these types always write is there. Raises Unreadable.
    """
    schema = _schema(kind) or {}
    for part in ("spec", "status"):
        if part in schema and isinstance(document.get(part), dict):
            document[part] = _written(schema[part], document[part])


def _written(schema: JsonObject, value: Any) -> Any:
    if value is None:
        return None
    if not _fits(schema, value):
        kind = ",".join(_types(schema))
        raise Unreadable(f"json: cannot unmarshal {_name(value)} into a value of type {kind}")
    if schema.get("x-kubernetes-int-or-string"):
        return _amount(value) if schema[QUANTITY] else _port(value)
    expected, given = _types(schema), _name(value)
    if expected and given not in (*expected, "null") and (expected, given) != (("integer",), "number"):
        raise Unreadable(f"json: cannot unmarshal {given} into Go value of type {expected[0]}")
    if isinstance(value, list):
        return [_written(schema["items"], item) for item in value]
    if isinstance(value, dict):
        return _object_written(schema, value)
    if RANGE in schema:
        low, high = schema[RANGE]
        if not low <= value <= high:
            raise Unreadable(f"json: cannot unmarshal number {value} into a number of {low} to {high}")
        return int(value)
    return value


def _object_written(schema: JsonObject, value: JsonObject) -> JsonObject:
    properties, additional = get_object(schema, "properties"), schema.get("additionalProperties")
    if isinstance(additional, dict):
        return {key: _written(additional, member) for key, member in value.items()}
    if not properties:
        return value
    written: JsonObject = {}
    for key, member in properties.items():
        found = value.get(key)
        if found is not None:
            found = _written(member, found)
            if key in schema[WRITTEN] or _is_kept(member, found):
                written[key] = found
        elif member.get(PRESENCE) == "null":
            written[key] = None
        elif key in schema[WRITTEN] and member.get("type") != "array":
            written[key] = _written(member, _EMPTY.get(member.get("type", ""), "0"))
    return written


_EMPTY: dict[str, Any] = {"object": {}, "string": "", "integer": 0, "number": 0, "boolean": False}


def _is_kept(schema: JsonObject, value: Any) -> bool:
    presence = schema.get(PRESENCE)
    if isinstance(value, bool | int | float):
        return presence != "dropped" or bool(value)
    if isinstance(value, str):
        return presence in ("kept", "null") or bool(value)
    is_map = isinstance(value, dict) and "additionalProperties" in schema
    return bool(value) or not (is_map or isinstance(value, list))


def _amount(value: Any) -> str:
    try:
        return str(Quantity.parse(value))
    except ValueError as error:
        raise Unreadable(str(error)) from error


def _port(value: Any) -> int | str:
    if isinstance(value, str):
        return value
    if not float(value).is_integer() or not -(2**31) <= value < 2**31:
        raise Unreadable(f"json: cannot unmarshal number {value} into a number of 32 bits")
    return int(value)
