"""The objects that webhooks read from the cluster."""

from __future__ import annotations

from typing import Protocol

from kubecore import errors
from kubecore.client import Client
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects.names import is_path_segment_name
from kubecore.resources import ResourceType

MOST_BYTES = 32 << 20
"""Of the objects of one kind and namespace: some ten thousand as they are in use."""
_PAGE_OBJECTS = 50
"""That are read at once: each may have more than a megabyte."""


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
        """All objects; none where the resource is not served.

        Raises StatusError, also where a namespace's have more than `MOST_BYTES`: a tenant may store any, and
        each of his requests would have all of them in the memory of the webhooks' server.
        """
        try:
            if namespace:
                return await _all_of_namespace(self._client, resource, namespace)
            found = await self._client.list(resource)
        except errors.StatusError as error:
            if errors.is_not_found(error):
                return []
            raise
        return list(found.get("items") or [])


async def _all_of_namespace(client: Client, resource: ResourceType, namespace: str) -> list[JsonObject]:
    found: list[JsonObject] = []
    token, left = "", MOST_BYTES
    while True:
        query = {"limit": str(_PAGE_OBJECTS), **({"continue": token} if token else {})}
        answer = await client.request("GET", resource.path(namespace), query=query)
        left -= len(answer.body)
        if left < 0:
            text = f"the {resource.plural} of namespace {namespace} have more than {MOST_BYTES} bytes"
            raise errors.too_large(f"{text}; delete some")
        page: JsonObject = answer.json()
        found += get_list(page, "items")
        token = get_str(page, "metadata", "continue")
        if not token:
            return found
