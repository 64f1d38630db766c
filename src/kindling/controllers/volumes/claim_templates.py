"""PersistentVolumeClaims made from templates, for ephemeral volumes and StatefulSets. Pure."""

from __future__ import annotations

from kubecore.json import JsonObject, deep_copy, get_object


def claim(template: JsonObject, metadata: JsonObject) -> JsonObject:
    """A claim with the spec of `template`."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": deep_copy(get_object(template, "spec")),
    }
