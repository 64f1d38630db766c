"""Requests for objects: which of the verbs a path and a method mean, and whether the resource has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from kubecore import errors

from ..registry import writes
from ..registry.definition import ResourceDefinition, Subresource
from ..registry.objects import ServerObjects
from ..registry.registry import Registry
from . import answers
from .answers import Answer
from .call import Call
from .connecting import Connecting
from .contexts import Contexts
from .deleting import Deleting
from .reading import Reading
from .request_info import RequestInfo
from .subresources import Subresources
from .watch_requests import WatchRequests
from .writing import Writing

Connector = Callable[[Call, ResourceDefinition, Subresource], Awaitable[web.StreamResponse]]
"""Serves a streaming subresource (log, exec, proxy, ...)."""


_NO_PAGE = "404 page not found\n"


class ResourceApi:
    """Serves every resource of the catalog."""

    def __init__(self, registry: Registry, objects: ServerObjects, connect: Connector) -> None:
        contexts = Contexts(registry, objects)
        self._registry = registry
        self._connect = connect
        self._connecting = Connecting(registry, contexts)
        self._reading = Reading(registry)
        self._watching = WatchRequests(registry)
        self._writing = Writing(registry, contexts, self._reading)
        self._deleting = Deleting(registry, contexts)
        self._subresources = Subresources(registry, contexts, self._reading, self._writing)

    def is_custom(self, info: RequestInfo) -> bool:
        """Whether the request is about a custom resource."""
        definition = self._registry.catalog.find(info.group, info.version, info.resource)
        return definition is not None and definition.custom

    async def handle(self, call: Call) -> Answer | web.StreamResponse:
        """Answer a request for a resource. Raises StatusError."""
        info = call.info
        definition = self._registry.catalog.find(info.group, info.version, info.resource)
        if definition is None or _is_no_page(definition, call):
            if definition or not self._registry.catalog.in_group_version(info.group, info.version):
                return answers.text_answer(404, _NO_PAGE)
            raise errors.page_not_found()
        if definition.deprecation_warning:
            call.warnings.append(definition.deprecation_warning)
        _check_path(definition, call)
        if info.subresource:
            return await self._subresource(call, definition)
        if info.name and not info.watch_prefix and info.verb not in ("list", "watch"):
            return await self._handle_item(call, definition)
        method = call.request.method
        if method in ("GET", "HEAD"):
            if info.verb == "watch":
                _need(definition, "watch")
                return await self._watching.serve(call, definition)
            _need(definition, "list")
            return await self._reading.list(call, definition)
        if definition.resource.namespaced and not info.namespace:
            raise errors.method_not_allowed()
        if method == "POST":
            _need(definition, "create")
            return await self._writing.create(call, definition)
        if method == "DELETE":
            _need(definition, "deletecollection")
            return await self._deleting.delete_collection(call, definition)
        raise errors.method_not_allowed()

    async def _handle_item(self, call: Call, definition: ResourceDefinition) -> Answer:
        """A request for one object by name."""
        method = call.request.method
        if method in ("GET", "HEAD"):
            _need(definition, "get")
            return await self._reading.get(call, definition)
        if method == "PUT":
            _need(definition, "update")
            return await self._writing.update(call, writes.Target(definition))
        if method == "PATCH":
            _need(definition, "patch")
            return await self._writing.patch(call, writes.Target(definition))
        if method == "DELETE":
            _need(definition, "delete")
            return await self._deleting.delete(call, definition)
        if method == "POST" and definition.custom:
            # The paths of custom resources are not routed by method: the name in the URL goes unread.
            _need(definition, "create")
            return await self._writing.create(call, definition)
        raise errors.method_not_allowed()

    async def _subresource(self, call: Call, definition: ResourceDefinition) -> Answer | web.StreamResponse:
        subresource = definition.subresources[call.info.subresource]
        if subresource.connect:
            await self._connecting.admit(call, definition, subresource)
            return await self._connect(call, definition, subresource)
        return await self._subresources.handle(call, definition)


def _need(definition: ResourceDefinition, verb: str) -> None:
    if verb not in definition.verbs:
        raise errors.method_not_allowed()


def _is_no_page(definition: ResourceDefinition, call: Call) -> bool:
    """Whether a path below a custom resource leads nowhere. Raises StatusError for its subresources."""
    if not definition.custom:
        return False
    info = call.info
    if info.subresource and info.subresource not in definition.subresources:
        raise errors.not_found(definition.resource, info.name)
    return bool(info.namespace) and not definition.resource.namespaced


def _check_path(definition: ResourceDefinition, call: Call) -> None:
    """404 for paths that no resource of this kind has."""
    info = call.info
    named = len(info.parts) > 1
    if definition.resource.namespaced:
        if named and not info.namespace:
            raise errors.page_not_found()
    elif info.namespace and info.resource != "namespaces":
        raise errors.page_not_found()
    if any(not part or "/" in part for part in info.parts[:2]):
        raise errors.page_not_found()
    if named and definition.virtual is not None:
        raise errors.page_not_found()
    if info.subresource and info.subresource not in definition.subresources:
        raise errors.page_not_found()
    if len(info.parts) > 3 and not definition.subresources[info.subresource].connect:
        raise errors.page_not_found()
