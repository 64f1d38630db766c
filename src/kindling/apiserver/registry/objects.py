"""The server's own access to objects: what strategies, admission and internal controllers use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubecore import errors
from kubecore.json import JsonObject, deep_copy
from kubecore.resources import ResourceType

from ..storage.store import Conflict
from . import deletes, managed, object_meta, writes
from .context import RequestContext, UserInfo
from .definition import ResourceDefinition
from .registry import Registry, object_path, to_storage

SYSTEM_USER = UserInfo("system:apiserver", groups=("system:masters", "system:authenticated"))


class ServerObjects:
    """See context.ObjectWriter."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def _definition(self, resource: ResourceType) -> ResourceDefinition:
        definition = self._registry.catalog.of(resource)
        if definition is None:
            raise errors.page_not_found()
        return definition

    def get(self, resource: ResourceType, namespace: str | None, name: str) -> JsonObject | None:
        """See ObjectReader.get."""
        definition = self._registry.catalog.of(resource)
        if definition is None:
            return None
        item = self._registry.store.get(
            definition.storage_prefix, object_path(definition, namespace or "", name)
        )
        return item.document() if item is not None else None

    def exists(self, resource: ResourceType, namespace: str | None, name: str) -> bool:
        """See ObjectReader.exists."""
        definition = self._registry.catalog.of(resource)
        if definition is None:
            return False
        path = object_path(definition, namespace or "", name)
        return self._registry.store.get(definition.storage_prefix, path) is not None

    def list(self, resource: ResourceType, namespace: str | None = None) -> Sequence[JsonObject]:
        """See ObjectReader.list."""
        definition = self._registry.catalog.of(resource)
        if definition is None:
            return []
        prefix = f"{namespace}/" if namespace and definition.resource.namespaced else ""
        return [
            item.document() for item in self._registry.store.list(definition.storage_prefix, prefix).items
        ]

    async def create(self, resource: ResourceType, obj: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """See ObjectWriter.create."""
        definition = self._definition(resource)
        metadata = obj.setdefault("metadata", {})
        obj.setdefault("kind", definition.resource.kind)
        obj.setdefault("apiVersion", definition.resource.api_version)
        ctx = self._context(definition, metadata.get("namespace"), str(metadata.get("name") or ""), "create")
        ctx.dry_run = dry_run
        definition.strategy.default(obj)
        managed.track_write(definition, None, obj, ctx)
        written = await writes.create(self._registry, ctx, definition, obj)
        return written.document

    async def modify(
        self,
        resource: ResourceType,
        namespace: str | None,
        name: str,
        change: Callable[[JsonObject], JsonObject | None],
        *,
        dry_run: bool = False,
    ) -> JsonObject:
        """See ObjectWriter.modify."""
        definition = self._definition(resource)
        path = object_path(definition, namespace or "", name)
        store = self._registry.store
        while True:
            current = store.newest(definition.storage_prefix, path)
            if current is None:
                raise errors.not_found(definition.resource, name)
            old = await self._registry.document(definition, current)
            new = change(deep_copy(old))
            if new is None or new == old:
                return old
            if dry_run:
                return new
            ctx = self._context(definition, namespace, name, "update")
            managed.track_write(definition, old, new, ctx)
            object_meta.tidy(new["metadata"])
            stored = await to_storage(definition, new)
            gone = bool(old["metadata"].get("deletionTimestamp")) and not (
                new["metadata"].get("finalizers") or old["metadata"].get("deletionGracePeriodSeconds")
            )
            operation = store.delete if gone else store.put
            try:
                item = await operation(current.bucket, path, writes.encoder(stored), current)
            except Conflict:
                continue
            new["metadata"]["resourceVersion"] = str(item.revision)
            return new

    async def delete(
        self,
        resource: ResourceType,
        namespace: str | None,
        name: str,
        *,
        options: JsonObject | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """See ObjectWriter.delete."""
        definition = self._definition(resource)
        ctx = self._context(definition, namespace, name, "delete")
        ctx.options = dict(options or {})
        ctx.dry_run = dry_run
        return (await deletes.delete(self._registry, ctx, definition)).document

    def _context(
        self, definition: ResourceDefinition, namespace: str | None, name: str, verb: str
    ) -> RequestContext:
        return RequestContext(
            user=SYSTEM_USER,
            verb=verb,
            resource=definition.resource,
            namespace=(namespace or "") if definition.resource.namespaced else "",
            name=name,
            subresource="",
            objects=self,
            addresses=self._registry.addresses,
            internal=True,
            field_manager="kube-apiserver",
        )
