"""The common instance types and preferences that an installation brings."""

from __future__ import annotations

from functools import cache
from importlib import resources as files

import orjson

from kubecore.json import JsonObject, deep_copy
from kubecore.resources import ResourceType
from virtplane.api import resources

_RELEASE_LABEL = "instancetype.kubevirt.io/common-instancetypes-version"
_FILE = "common_instancetypes.json"


def common_instancetypes() -> list[JsonObject]:
    """Every cluster-wide instance type and preference of the shipped release."""
    data = _data()
    return [
        *_objects(data, "instancetypes", resources.VIRTUAL_MACHINE_CLUSTER_INSTANCETYPES),
        *_objects(data, "preferences", resources.VIRTUAL_MACHINE_CLUSTER_PREFERENCES),
    ]


def _objects(data: JsonObject, key: str, resource: ResourceType) -> list[JsonObject]:
    return [
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "labels": {**entry["labels"], _RELEASE_LABEL: data["release"]}},
            "spec": deep_copy(entry["spec"]),
        }
        for name, entry in data[key].items()
    ]


@cache
def _data() -> JsonObject:
    text = files.files("virtplane.operators.kubevirt.data").joinpath(_FILE).read_bytes()
    document: JsonObject = orjson.loads(text)
    return document
