"""Admission without a server: objects in a dictionary, webhooks as functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from kindling.apiserver.admission.webhook_client import WebhookCallError, WebhookClient
from kindling.apiserver.kinds.served import builtin_definitions
from kindling.apiserver.registry.addresses import AddressPool
from kindling.apiserver.registry.admission import (
    AdmissionAttributes,
    AdmissionEnvironment,
    AuthorizationQuery,
    ServiceEndpoint,
)
from kindling.apiserver.registry.context import RequestContext, UserInfo
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore import errors
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.resources import ResourceType


class MemoryObjects:
    """ObjectWriter over a dictionary; changes are reported like the server reports them."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str, str], JsonObject] = {}
        self._watchers: dict[str, list[Callable[[str, JsonObject], None]]] = {}

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
        changed = change(current)
        if changed is not None and not dry_run:
            self.put(resource, changed)
        return current

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
        return self._objects.pop(self._key(resource, namespace, name))


Answer = Callable[[JsonObject], Any]
"""A webhook: gets the request of the review, gives the response without uid, or an exception."""


class StubWebhooks(WebhookClient):
    """Webhooks by URL; `asked` holds every request."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        super().__init__(lambda namespace, name, port: ServiceEndpoint("", 0, ""))
        self._answers = answers
        self.asked: list[tuple[str, JsonObject]] = []

    async def call(self, config: JsonObject, review: JsonObject, timeout_seconds: float) -> JsonObject:
        """See WebhookClient."""
        url = str(config["url"])
        self.asked.append((url, deep_copy(review["request"])))
        response = self._answers[url](review["request"])
        if isinstance(response, WebhookCallError):
            raise response
        full = {"uid": review["request"]["uid"], **response}
        return {"kind": review["kind"], "apiVersion": review["apiVersion"], "response": full}


class Cluster:
    """Everything a plugin needs."""

    def __init__(self, definitions: Iterable[ResourceDefinition] | None = None) -> None:
        self.objects = MemoryObjects()
        self.definitions = list(definitions if definitions is not None else builtin_definitions())
        self.may: Callable[[AuthorizationQuery], bool] = lambda query: True
        self.environment = AdmissionEnvironment(
            objects=self.objects,
            definitions=lambda: self.definitions,
            resolve_service=lambda namespace, name, port: ServiceEndpoint("", 0, ""),
            authorize=lambda query: (self.may(query), ""),
            on_change=self.objects.watch,
            spawn=_refuse_to_spawn,
        )

    def definition(self, resource: ResourceType) -> ResourceDefinition:
        """The definition of a resource."""
        return next(
            each
            for each in self.definitions
            if (each.resource.group, each.resource.version, each.resource.plural)
            == (resource.group, resource.version, resource.plural)
        )

    def request(
        self,
        resource: ResourceType,
        obj: JsonObject | None,
        *,
        operation: str = "CREATE",
        old: JsonObject | None = None,
        namespace: str = "ns",
        subresource: str = "",
        dry_run: bool = False,
    ) -> AdmissionAttributes:
        """A request about an object, which gets its defaults like any decoded one."""
        definition = self.definition(resource)
        shown = obj if obj is not None else old or {}
        for each in (obj, old):
            if each is not None:
                each.setdefault("kind", definition.resource.kind)
                each.setdefault("apiVersion", definition.resource.api_version)
                if resource.namespaced:
                    each["metadata"].setdefault("namespace", namespace)
                definition.strategy.default(each)
        ctx = RequestContext(
            user=UserInfo("ann", groups=("crew",)),
            verb=operation.lower(),
            resource=definition.resource,
            namespace=namespace if resource.namespaced else "",
            name=meta.name(shown),
            subresource=subresource,
            objects=self.objects,
            addresses=AddressPool("10.0.0.0/24"),
            dry_run=dry_run,
        )
        kind = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions"}.get(operation, "DeleteOptions")
        return AdmissionAttributes(
            ctx,
            definition,
            operation,
            obj,
            old,
            {"kind": kind, "apiVersion": "meta.k8s.io/v1"},
            definition.strategy.default,
        )


def _refuse_to_spawn(work: Awaitable[None], name: str) -> None:
    raise AssertionError(f"nothing was expected to be spawned, but {name} was")


def pod(name: str = "p", containers: list[JsonObject] | None = None, **spec: Any) -> JsonObject:
    """A pod of one container, or of the given ones."""
    made = containers if containers is not None else [{"name": "main", "image": "x"}]
    return {"metadata": {"name": name}, "spec": {"containers": made, **spec}}
