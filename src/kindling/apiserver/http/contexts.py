"""The context in which the registry carries out a request: who asks for what, and with which options."""

from __future__ import annotations

from ..registry.context import RequestContext
from ..registry.definition import ResourceDefinition
from ..registry.objects import ServerObjects
from ..registry.registry import Registry
from .call import Call, write_options


class Contexts:
    """Makes the contexts of operations."""

    def __init__(self, registry: Registry, objects: ServerObjects) -> None:
        self._addresses = registry.addresses
        self._heavy = registry.heavy
        self._objects = objects

    def of(self, call: Call, definition: ResourceDefinition, verb: str) -> RequestContext:
        """The context of an operation."""
        info = call.info
        namespaced = definition.resource.namespaced
        return RequestContext(
            user=call.user,
            verb=verb,
            resource=definition.resource,
            namespace=info.namespace if namespaced else "",
            name=info.name,
            subresource=info.subresource,
            objects=self._objects,
            addresses=self._addresses,
            warnings=call.warnings,
            heavy=self._heavy,
        )

    def for_write(self, call: Call, definition: ResourceDefinition, verb: str, kind: str) -> RequestContext:
        options = write_options(call, kind)
        ctx = self.of(call, definition, verb)
        ctx.dry_run = options.dry_run
        ctx.field_manager = options.field_manager or call.user_agent_manager
        ctx.options = options.document()
        if options.field_manager:
            ctx.options["fieldManager"] = options.field_manager
        return ctx
