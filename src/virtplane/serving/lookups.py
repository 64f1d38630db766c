"""The objects that webhooks read from the cluster."""

from __future__ import annotations

from typing import Protocol

from kubecore import errors
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects.names import is_path_segment_name
from kubecore.resources import ResourceType


class Lookups(Protocol):
    """Reads objects; webhooks never change any."""

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> JsonObject | None:
        """An object; None if it (or its resource) does not exist."""
        ...

    async def list(self, resource: ResourceType, namespace: str | None = None) -> list[JsonObject]:
        """All objects of a namespace, or of the cluster."""
        ...


class ClientLookups:
    """Asks the API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> JsonObject | None:
        """An object, or None. Raises StatusError for anything but its absence."""
        if is_path_segment_name(name):
            return None  # Users write these names: one with a slash would lead to another path.
        try:
            return await self._client.get(resource, name, namespace)
        except errors.StatusError as error:
            if errors.is_not_found(error):
                return None
            raise

    async def list(self, resource: ResourceType, namespace: str | None = None) -> list[JsonObject]:
        """All objects; none where the resource is not served."""
        try:
            found = await self._client.list(resource, namespace)
        except errors.StatusError as error:
            if errors.is_not_found(error):
                return []
            raise
        return list(found.get("items") or [])
