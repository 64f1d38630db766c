"""The API server's own access to objects, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kubecore import errors
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.resources import ResourceType


@dataclass(frozen=True)
class Deletion:
    """An object that somebody deleted, as it was, and what he asked for."""

    obj: JsonObject
    options: JsonObject | None
    dry_run: bool


class MemoryObjects:
    """ObjectWriter over a dictionary; changes are reported like the server reports them."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str, str], JsonObject] = {}
        self._watchers: dict[str, list[Callable[[str, JsonObject], None]]] = {}
        self.deletions: list[Deletion] = []

    @staticmethod
    def _key(resource: ResourceType, namespace: str | None, name: str) -> tuple[str, str, str, str]:
        return resource.group, resource.plural, namespace or "", name

    def put(self, resource: ResourceType, obj: JsonObject) -> None:
        """Store an object as it is."""
        key = self._key(resource, meta.namespace(obj), meta.name(obj))
        event = "MODIFIED" if key in self._objects else "ADDED"
        self._objects[key] = deep_copy(obj)
        for watcher in self._watchers.get(f"{resource.group or 'core'}/{resource.plural}", []):
            watcher(event, deep_copy(obj))

    def watch(self, bucket: str, watcher: Callable[[str, JsonObject], None]) -> None:
        """AdmissionEnvironment.on_change."""
        self._watchers.setdefault(bucket, []).append(watcher)

    def get(self, resource: ResourceType, namespace: str | None, name: str) -> JsonObject | None:
        """See ObjectReader."""
        found = self._objects.get(self._key(resource, namespace, name))
        return deep_copy(found) if found is not None else None

    def list(self, resource: ResourceType, namespace: str | None = None) -> Sequence[JsonObject]:
        """See ObjectReader."""
        return [
            deep_copy(obj)
            for (group, plural, where, _), obj in sorted(self._objects.items())
            if (group, plural) == (resource.group, resource.plural) and namespace in (None, where)
        ]

    def exists(self, resource: ResourceType, namespace: str | None, name: str) -> bool:
        """See ObjectReader."""
        return self._key(resource, namespace, name) in self._objects

    async def create(self, resource: ResourceType, obj: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """See ObjectWriter."""
        if self.exists(resource, meta.namespace(obj), meta.name(obj)):
            raise errors.already_exists(resource, meta.name(obj))
        if not dry_run:
            self.put(resource, obj)
        return obj

    async def modify(
        self,
        resource: ResourceType,
        namespace: str | None,
        name: str,
        change: Callable[[JsonObject], JsonObject | None],
        *,
        dry_run: bool = False,
    ) -> JsonObject:
        """See ObjectWriter."""
        current = self.get(resource, namespace, name)
        if current is None:
            raise errors.not_found(resource, name)
        changed = change(deep_copy(current))
        if changed is None:
            return current
        if not dry_run:
            self.put(resource, changed)
        return changed

    async def delete(
        self,
        resource: ResourceType,
        namespace: str | None,
        name: str,
        *,
        options: JsonObject | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """See ObjectWriter."""
        found = self.get(resource, namespace, name)
        if found is None:
            raise errors.not_found(resource, name)
        self.deletions.append(Deletion(found, options, dry_run))
        if not dry_run:
            del self._objects[self._key(resource, namespace, name)]
        return found
