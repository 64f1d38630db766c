"""Deleting what has been judged, and nothing newer."""

from __future__ import annotations

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.resources import ResourceType
from virtplane.cluster.caches import HasMetadata


async def delete_as_read(
    client: Client, kind: ResourceType, obj: HasMetadata, *, propagation_policy: str | None = None
) -> None:
    """Delete the object, unless it was written since it was read, or is going already. Raises StatusError.

    A request may take effect long after it was given up. By then the object may be used again, and whoever
    begins to use it writes to it.
    """
    metadata = obj.metadata
    if metadata.is_being_deleted:
        return
    try:
        await client.delete(
            kind,
            metadata.name,
            metadata.namespace or None,
            propagation_policy=propagation_policy,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        )
    except StatusError as error:
        # 409: its event brings it here again.
        if not is_not_found(error) and error.code != 409:
            raise
