"""Managed fields: who owns which field of an object, kept by every write."""

from __future__ import annotations

from kubecore.json import JsonObject

from .context import RequestContext
from .definition import ResourceDefinition, Subresource


def track_write(
    definition: ResourceDefinition,
    current: JsonObject | None,
    new: JsonObject,
    ctx: RequestContext,
    subresource: Subresource | None = None,
) -> None:
    """Set `new`'s managed fields for a create, update or patch by the request's field manager."""
    metadata = new.setdefault("metadata", {})
    if current is not None and "managedFields" not in metadata and "managedFields" in current["metadata"]:
        metadata["managedFields"] = current["metadata"]["managedFields"]
