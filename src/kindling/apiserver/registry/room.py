"""How many bytes the objects of one namespace may have together.

The server holds all objects in memory, and so does everybody who watches all of a kind: controllers, the
nodes' agents, the resolver. Whoever may write in one namespace could end them all. Kubernetes has no such
bound but that of etcd, which is the whole cluster's; quotas count objects, where somebody has set some.
"""

from __future__ import annotations

from kubecore import errors
from kubecore.json import JsonObject

from ..storage.store import Item, Store
from . import encoding
from .context import RequestContext
from .definition import ResourceDefinition

NAMESPACE_BYTES = 512 * 1024 * 1024
"""A virtual machine with all that belongs to it has some 60 KB: room for eight thousand."""
_GROWTH = 1.25
"""Objects that are there may grow to so much more, so that their statuses and finalizers can be written."""


class Room:
    """Compares what namespaces hold with the bound. Writes of the server itself are not asked about."""

    def __init__(self, store: Store, namespace_bytes: int = NAMESPACE_BYTES) -> None:
        self._store = store
        self._most = namespace_bytes

    def for_new(self, ctx: RequestContext, definition: ResourceDefinition) -> None:
        """Raise StatusError (403) where the request's namespace has no room for a new object."""
        if self._is_over(ctx, self._most):
            raise self._full(ctx, definition)

    def for_change(
        self, ctx: RequestContext, definition: ResourceDefinition, current: Item, stored: JsonObject
    ) -> None:
        """Raise StatusError (403) where it has none for `stored` either, which is to replace `current`."""
        if self._is_over(ctx, self._most * _GROWTH) and len(encoding.encode(stored)) > len(current.value):
            raise self._full(ctx, definition)

    def _is_over(self, ctx: RequestContext, most: float) -> bool:
        return bool(ctx.namespace) and not ctx.internal and self._store.bytes_of(ctx.namespace) > most

    def _full(self, ctx: RequestContext, definition: ResourceDefinition) -> errors.StatusError:
        text = f"the objects of namespace {ctx.namespace} have more than {self._most} bytes: delete some"
        return errors.forbidden(definition.resource.group_resource, ctx.name, text)
