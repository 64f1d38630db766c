"""Dispatching of resource requests: the verb of a path and method, and whether the resource supports it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from kubecore import errors
from kubecore.objects.fields import go_quote

from ..registry import writes
from ..registry.admission import Authorize
from ..registry.definition import ResourceDefinition, Subresource
from ..registry.objects import ServerObjects
from ..registry.registry import Registry
from . import responses
from .call import Call, negotiate, wants_pretty
from .connect_admission import ConnectAdmission
from .contexts import Contexts
from .deleting import Deleting
from .media import LISTED, OFFERED, Media
from .reading import Reading
from .request_info import RequestInfo
from .responses import Response
from .subresources import Subresources
from .watch_requests import WatchRequests
from .writing import Writing

Connector = Callable[[Call, ResourceDefinition, Subresource], Awaitable[web.StreamResponse]]
"""Serves a streaming subresource (log, exec, proxy, ...)."""


_NO_PAGE = "404 page not found\n"


class ResourceApi:
    """Serves every resource of the catalog."""

    def __init__(
        self, registry: Registry, objects: ServerObjects, connect: Connector, authorize: Authorize
    ) -> None:
        contexts = Contexts(registry, objects, authorize)
        self._registry = registry
        self._connect = connect
        self._connect_admission = ConnectAdmission(registry, contexts)
        self._reading = Reading(registry)
        self._watching = WatchRequests(registry)
        self._writing = Writing(registry, contexts, self._reading)
        self._deleting = Deleting(registry, contexts, self._reading)
        self._subresources = Subresources(registry, contexts, self._reading, self._writing)

    def negotiate(self, call: Call) -> Media:
        """The form of the answer, where it is an object or a list. Raises StatusError (406)."""
        info = call.info
        definition = self._registry.catalog.find(info.group, info.version, info.resource)
        subresource = definition.subresources.get(info.subresource) if definition is not None else None
        if definition is None or (info.subresource and (subresource is None or subresource.connect)):
            return Media(pretty=wants_pretty(call.request))
        offered = LISTED if info.verb in ("list", "watch") else OFFERED
        return negotiate(call.request, transforms=True, routed=not definition.custom, offered=offered)

    def owns(self, info: RequestInfo) -> bool:
        """Whether the path is below a group of this server's own, for which a 404 is a Status in JSON."""
        catalog, group = self._registry.catalog, info.path.split("/")[2:3]
        if info.path.startswith("/api/"):
            return True
        served = catalog.in_group(group[0]) if group and info.path.startswith("/apis/") else []
        return any(not each.custom or each.resource.version == info.version for each in served)

    async def handle(self, call: Call) -> Response | web.StreamResponse:
        """Answer a request for a resource. Raises StatusError."""
        info = call.info
        definition = self._registry.catalog.find(info.group, info.version, info.resource)
        if definition is None or _is_no_page(definition, call):
            if definition is None and self.owns(info):
                raise errors.page_not_found()
            return responses.text_response(404, _NO_PAGE)
        _check_path(definition, call)
        if definition.custom and not info.verb:
            resource = definition.resource
            message = f" is not supported on resources of kind {go_quote(resource.group_resource)}"
            details = {"group": resource.group, "kind": resource.plural}
            raise errors.StatusError(405, errors.METHOD_NOT_ALLOWED, message, details)
        if definition.deprecation_warning and (info.subresource or info.verb in definition.verbs):
            call.warnings.append(definition.deprecation_warning)
        if info.subresource:
            return await self._subresource(call, definition)
        if info.is_named and not info.prefix:
            return await self._handle_item(call, definition)
        if info.verb == "watch":
            _need(definition, "watch")
            return await self._watching.serve(call, definition)
        if info.verb == "list":
            _need(definition, "list")
            return await self._reading.list(call, definition)
        if definition.resource.namespaced and not info.namespace:
            raise errors.method_not_allowed()
        if info.verb == "create":
            _need(definition, "create")
            return await self._writing.create(call, definition)
        if info.verb == "deletecollection":
            _need(definition, "deletecollection")
            return await self._deleting.delete_collection(call, definition)
        raise errors.method_not_allowed()

    async def _handle_item(self, call: Call, definition: ResourceDefinition) -> Response:
        """A request for one object by name."""
        verb = call.info.verb
        # Paths of custom resources are not routed by method: a name in the URL of a POST is ignored.
        if verb not in ("get", "update", "patch", "delete") and not (verb == "create" and definition.custom):
            raise errors.method_not_allowed()
        _need(definition, verb)
        if verb == "get":
            return await self._reading.get(call, definition)
        if verb == "update":
            return await self._writing.update(call, writes.Target(definition))
        if verb == "patch":
            return await self._writing.patch(call, writes.Target(definition))
        if verb == "delete":
            return await self._deleting.delete(call, definition)
        return await self._writing.create(call, definition)

    async def _subresource(self, call: Call, definition: ResourceDefinition) -> Response | web.StreamResponse:
        subresource = definition.subresources[call.info.subresource]
        if subresource.connect:
            await self._connect_admission.admit(call, definition, subresource)
            return await self._connect(call, definition, subresource)
        return await self._subresources.handle(call, definition)


def _need(definition: ResourceDefinition, verb: str) -> None:
    if verb not in definition.verbs:
        raise errors.method_not_allowed()


def _is_no_page(definition: ResourceDefinition, call: Call) -> bool:
    """Whether nothing is served at a path below a custom resource. Raises StatusError for its
    subresources.
    """
    if not definition.custom:
        return False
    info = call.info
    if info.subresource and info.subresource not in definition.subresources:
        raise errors.not_found(definition.resource, info.name)
    return info.is_inside_namespace and not definition.resource.namespaced


def check_place(info: RequestInfo) -> None:
    """Refuse legacy paths and unknown methods, for local and aggregated resources alike. Raises
    StatusError. Below ``/watch/`` only the verb watch was authorized, so only GET is served.
    """
    if info.is_malformed or info.prefix == "proxy" or (info.prefix == "watch" and info.subresource):
        raise errors.page_not_found()
    if info.verb == "watch" and info.method != "GET":
        raise errors.method_not_allowed()


def _check_path(definition: ResourceDefinition, call: Call) -> None:
    """404 for paths that no resource of this kind has. Raises StatusError."""
    info = call.info
    if definition.resource.namespaced:
        if info.is_named and not info.is_inside_namespace:
            raise errors.page_not_found()
    elif info.is_inside_namespace:
        raise errors.page_not_found()
    if info.is_named and definition.virtual is not None:
        raise errors.page_not_found()
    if info.subresource and info.subresource not in definition.subresources:
        raise errors.page_not_found()
    if len(info.parts) > 3 and info.subresource != "proxy":
        raise errors.page_not_found()
