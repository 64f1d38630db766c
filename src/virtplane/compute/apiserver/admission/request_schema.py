"""Requests checked against the schema, with the messages that KubeVirt's clients know.

This happens before anything else, so that the rules can rely on types. Paths name no indices.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from kubecore.json import JsonObject, get_object
from virtplane.api.kubevirt_v1 import kubevirt, migration, preset, replicaset, vm, vmi
from virtplane.api.markers import ApiStruct
from virtplane.api.pool_v1beta1 import pool
from virtplane.api.schema import request_schema
from virtplane.compute.apiserver.admission.response import Cause

_TOP_LEVEL = ("apiVersion", "kind", "metadata", "spec", "status")

STRUCTS: dict[str, type[ApiStruct]] = {
    "KubeVirt": kubevirt.KubeVirt,
    "VirtualMachine": vm.VirtualMachine,
    "VirtualMachineInstance": vmi.VirtualMachineInstance,
    "VirtualMachineInstanceMigration": migration.VirtualMachineInstanceMigration,
    "VirtualMachineInstancePreset": preset.VirtualMachineInstancePreset,
    "VirtualMachineInstanceReplicaSet": replicaset.VirtualMachineInstanceReplicaSet,
    "VirtualMachinePool": pool.VirtualMachinePool,
}
"""Kinds whose requests are checked. Others are left to the served definitions."""

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def schema_causes(kind: str, document: JsonObject) -> list[Cause]:
    """What makes a request of `kind` unreadable: its top level, its spec and its status."""
    schema = _schema(kind)
    if schema is None:
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
    if value is None and schema.get("nullable"):
        return
    if not _has_type(schema, value):
        yield f'{path} in body must be of type {schema["type"]}: "{_name(value)}"'
        return
    if isinstance(value, dict):
        yield from _check_object(schema, value, path, strict=strict)
    elif isinstance(value, list):
        for item in value:
            yield from _check(get_object(schema, "items"), item, path, strict=strict)
    else:
        yield from _check_scalar(schema, value, path)


def _check_object(schema: JsonObject, value: JsonObject, path: str, *, strict: bool) -> Iterator[str]:
    properties = get_object(schema, "properties")
    additional = schema.get("additionalProperties")
    for key in schema.get("required", ()):
        if key not in value:
            yield f"{path}.{key} in body is required"
    keeps_unknown = schema.get("x-kubernetes-preserve-unknown-fields") or not properties
    for key, member in value.items():
        if key in properties:
            if member is None and key not in schema.get("required", ()):
                continue
            yield from _check(properties[key], member, f"{path}.{key}", strict=strict)
        elif isinstance(additional, dict):
            yield from _check(additional, member, f"{path}.{key}", strict=strict)
        elif strict and not keeps_unknown:
            yield f"{path}.{key} in body is a forbidden property"


def _check_scalar(schema: JsonObject, value: Any, path: str) -> Iterator[str]:
    allowed = schema.get("enum")
    if allowed and value not in allowed:
        yield f"{path} in body should be one of [{' '.join(str(entry) for entry in allowed)}]"


def _has_type(schema: JsonObject, value: Any) -> bool:
    expected = schema.get("type")
    if expected is None:
        return True
    if isinstance(value, bool):
        return bool(expected == "boolean")
    if expected == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[expected])


def _name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for name in ("object", "array", "string", "integer", "number"):
        if isinstance(value, _TYPES[name]):
            return name
    return type(value).__name__
