"""What controllers keep of documents that they cache by the thousand; pure."""

from __future__ import annotations

from kubecore.json import JsonObject, get_list

_OF_CONTAINERS = ("name", "image", "resources")
"""What controllers read of the containers of launchers; the rest is the larger part of a pod."""


def without_managed_fields(document: JsonObject) -> JsonObject:
    """The document without its managed fields, which nobody reads from a cache."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return {**document, "metadata": metadata}


def slim_pod(pod: JsonObject) -> JsonObject:
    """The pod without its managed fields, its containers with names, images and resources alone."""
    found = without_managed_fields(pod)
    spec = dict(pod.get("spec") or {})
    for kind in ("containers", "initContainers"):
        if kind in spec:
            spec[kind] = [
                {key: container[key] for key in _OF_CONTAINERS if key in container}
                for container in get_list(pod, "spec", kind)
            ]
    return {**found, "spec": spec}
