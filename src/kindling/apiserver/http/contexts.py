"""RequestContexts for the registry: user, object and options of a request."""

from __future__ import annotations

from kubecore import errors

from ..registry.admission import Authorize
from ..registry.context import RequestContext
from ..registry.definition import ResourceDefinition
from ..registry.objects import ServerObjects
from ..registry.registry import Registry
from .call import Call, write_options


class Contexts:
    """Builds RequestContexts."""

    def __init__(self, registry: Registry, objects: ServerObjects, authorize: Authorize) -> None:
        self._addresses = registry.addresses
        self._large_requests = registry.large_requests
        self._objects = objects
        self._authorize = authorize

    def of(self, call: Call, definition: ResourceDefinition, verb: str) -> RequestContext:
        """The RequestContext of an operation."""
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
            large_requests=self._large_requests,
        )

    def for_write(self, call: Call, definition: ResourceDefinition, verb: str, kind: str) -> RequestContext:
        """The context of a write, with what its options say. Raises StatusError for senseless ones."""
        options = write_options(call, kind, is_apply=verb == "apply")
        ctx = self.of(call, definition, verb)
        ctx.check_create = lambda: self._check_create(call, definition)
        ctx.dry_run = options.dry_run
        ctx.field_manager = options.field_manager or call.user_agent_manager
        ctx.options = options.document()
        if options.field_manager:
            ctx.options["fieldManager"] = options.field_manager
        return ctx

    def _check_create(self, call: Call, definition: ResourceDefinition) -> None:
        """Check that an update or patch that creates is authorized to create. Raises StatusError (403)."""
        if call.info.verb == "create":
            return
        allowed, reason = self._authorize(call.authorization("create"))
        if not allowed:
            raise errors.forbidden(definition.resource, call.info.name, reason)
