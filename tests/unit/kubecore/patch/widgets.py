"""A kind with every way of owning and merging, for the tests of server-side apply."""

from __future__ import annotations

from kubecore.json import JsonObject
from kubecore.schema.model import Schema, SchemaSet

_TEXT: JsonObject = {"type": "string"}

WIDGET = Schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "keyed": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["k"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "k": _TEXT,
                                "v": _TEXT,
                                "inner": {"type": "object", "properties": {"a": _TEXT, "b": _TEXT}},
                            },
                        },
                    },
                    "ports": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["port", "protocol"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "port": {"type": "integer"},
                                "protocol": {"type": "string", "default": "TCP"},
                                "name": _TEXT,
                            },
                        },
                    },
                    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": _TEXT},
                    "atomic": {"type": "array", "items": _TEXT},
                    "map": {"type": "object", "additionalProperties": _TEXT},
                    "amap": {
                        "type": "object",
                        "x-kubernetes-map-type": "atomic",
                        "additionalProperties": _TEXT,
                    },
                    "count": {"type": "integer"},
                    "flag": {"type": "boolean"},
                    "either": {"x-kubernetes-int-or-string": True},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    },
    SchemaSet(open_objects=False),
)
API_VERSION = "example.com/v1"


def widget(**spec: object) -> JsonObject:
    """A Widget called w with this spec."""
    return {"apiVersion": API_VERSION, "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}
