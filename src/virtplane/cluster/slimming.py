"""What controllers keep of documents that they cache by the thousand; pure."""

from __future__ import annotations

import sys
from typing import Any

from kubecore import json
from kubecore.json import JsonObject, get_list

_OF_CONTAINERS = ("name", "image", "resources")
"""What controllers read of a launcher's containers."""

_OF_SPECS = ("nodeName", "tolerations")
"""What they read of its specification besides containers and claims; the rest is the larger part of a pod."""

_SHARED_CHARACTERS = 64
"""Longer texts (scripts, messages) are rarely those of another object as well."""


def interned(value: Any) -> Any:
    """The JSON value, with strings that all its like share: names of fields and devices, nodes, times, uids.

    A string is freed with the last object that has it.
    """
    if isinstance(value, str):
        return sys.intern(value) if len(value) <= _SHARED_CHARACTERS else value
    if isinstance(value, dict):
        return {key: interned(member) for key, member in value.items()}
    if isinstance(value, list):
        return [interned(item) for item in value]
    return value


def lean(document: JsonObject) -> JsonObject:
    """The document without its managed fields, with shared strings."""
    found: JsonObject = interned(without_managed_fields(document))
    return found


def identity(document: JsonObject) -> JsonObject:
    """Of an object only that it is there, in which version."""
    kept = ("name", "namespace", "uid", "resourceVersion")
    metadata = {key: document["metadata"][key] for key in kept if key in document["metadata"]}
    return {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": metadata}


def without_managed_fields(document: JsonObject) -> JsonObject:
    """The document without its managed fields, which nobody reads from a cache."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return {**document, "metadata": metadata}


def slim_pod(pod: JsonObject) -> JsonObject:
    """The pod without its managed fields, with what controllers read of its specification."""
    spec = {key: pod["spec"][key] for key in _OF_SPECS if key in pod.get("spec", {})}
    spec["containers"] = [
        {key: container[key] for key in _OF_CONTAINERS if key in container}
        for container in get_list(pod, "spec", "containers")
    ]
    spec["volumes"] = [each for each in get_list(pod, "spec", "volumes") if "persistentVolumeClaim" in each]
    return lean({**pod, "spec": spec})


def packed_revision(revision: JsonObject) -> JsonObject:
    """The revision without its managed fields, its data encoded.

    Every running VM has a revision that holds its whole spec. It is rarely read; as text it takes a fifth of
    the memory.
    """
    kept = {key: member for key, member in revision.items() if key != "data"}
    return lean(kept) | ({"data": json.encode(revision["data"])} if "data" in revision else {})


def unpacked_revision(revision: JsonObject) -> JsonObject:
    """What `packed_revision` has packed."""
    data: Any = revision.get("data")
    return {**revision, "data": json.decode(data)} if isinstance(data, bytes) else revision
