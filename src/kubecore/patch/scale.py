"""managedFields across the scale subresource.

A Scale shows one field of its parent, the number of replicas. Who owns that field is translated into the
terms of Scale objects before a write to the subresource is tracked, and back into the parent's afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kubecore.json import JsonObject
from kubecore.patch import fieldset, managed

SCALE_API_VERSION: Final = "autoscaling/v1"
REPLICAS: Final = ("f:spec", "f:replicas")
"""The path of the replicas in a Scale, and in the built-in workloads."""

ReplicasPaths = Mapping[str, Sequence[str] | None]
"""Where each API version of the parent keeps its replicas (None: it has no scale subresource)."""


def replicas_path(json_path: str) -> tuple[str, ...]:
    """The path elements of a ``specReplicasPath`` like ``.spec.replicas``."""
    return tuple(f"f:{name}" for name in json_path.strip(".").split(".") if name)


def to_scale(parent: Sequence[Any], paths: ReplicasPaths) -> list[JsonObject]:
    """The managedFields of the Scale, from those of its parent."""
    owned = fieldset.of_path(REPLICAS)
    entries = []
    for entry in managed.decode(parent):
        path = paths.get(entry.api_version)
        if path is not None and fieldset.has(entry.fields, path):
            shown = replace(entry, api_version=SCALE_API_VERSION, fields=owned)
            entries.append(shown)
    return managed.encode(entries)


def to_parent(
    parent: Sequence[Any], scale: Sequence[Any], api_version: str, paths: ReplicasPaths
) -> list[JsonObject]:
    """The managedFields of the parent after those of its Scale became `scale`.

    Whoever no longer owns the replicas there loses them here; new owners get an entry in `api_version`,
    which carries no time.
    """
    owners = {_owner(entry): entry for entry in managed.decode(scale)}
    entries = []
    for entry in managed.decode(parent):
        if entry.api_version not in paths:
            continue
        path = paths[entry.api_version]
        has_replicas = path is not None and fieldset.has(entry.fields, path)
        if not has_replicas or owners.pop(_owner(entry), None) is not None:
            entries.append(entry)
        else:
            left = fieldset.difference(entry.fields, fieldset.of_path(path or ()))
            if left:
                entries.append(replace(entry, fields=left))
    path = paths.get(api_version)
    for entry in owners.values():
        if path is not None and fieldset.has(entry.fields, REPLICAS):
            fields = fieldset.of_path(path)
            entries.append(replace(entry, api_version=api_version, time="", fields=fields))
    return managed.encode(entries)


def _owner(entry: managed.Entry) -> tuple[str, str, str]:
    """Who an entry belongs to, whatever version its fields are named in."""
    return entry.manager, entry.operation, entry.subresource
