"""The schema of ObjectMeta, for objects whose own schema does not publish it (custom resources)."""

from __future__ import annotations

from kubecore.json import JsonObject

_STRING: JsonObject = {"type": "string"}
_TIME: JsonObject = {"type": "string", "format": "date-time"}
_STRINGS: JsonObject = {"type": "object", "additionalProperties": _STRING}

OWNER_REFERENCE: JsonObject = {
    "type": "object",
    "required": ["apiVersion", "kind", "name", "uid"],
    "x-kubernetes-map-type": "atomic",
    "properties": {
        "apiVersion": _STRING,
        "kind": _STRING,
        "name": _STRING,
        "uid": _STRING,
        "controller": {"type": "boolean"},
        "blockOwnerDeletion": {"type": "boolean"},
    },
}
"""metadata.ownerReferences[]."""

MANAGED_FIELDS_ENTRY: JsonObject = {
    "type": "object",
    "properties": {
        "manager": _STRING,
        "operation": _STRING,
        "apiVersion": _STRING,
        "time": _TIME,
        "fieldsType": _STRING,
        "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "subresource": _STRING,
    },
}
"""metadata.managedFields[]."""

OBJECT_META: JsonObject = {
    "type": "object",
    "properties": {
        "name": _STRING,
        "generateName": _STRING,
        "namespace": _STRING,
        "selfLink": _STRING,
        "uid": _STRING,
        "resourceVersion": _STRING,
        "generation": {"type": "integer", "format": "int64"},
        "creationTimestamp": {**_TIME, "nullable": True},
        "deletionTimestamp": {**_TIME, "nullable": True},
        "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
        "labels": _STRINGS,
        "annotations": _STRINGS,
        "ownerReferences": {
            "type": "array",
            "items": OWNER_REFERENCE,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "x-kubernetes-patch-merge-key": "uid",
            "x-kubernetes-patch-strategy": "merge",
        },
        "finalizers": {
            "type": "array",
            "items": _STRING,
            "x-kubernetes-list-type": "set",
            "x-kubernetes-patch-strategy": "merge",
        },
        "managedFields": {"type": "array", "items": MANAGED_FIELDS_ENTRY, "x-kubernetes-list-type": "atomic"},
    },
}
"""metadata of every object."""
