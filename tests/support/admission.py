"""Admission without a server: objects in memory, webhooks as functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tests.support.memory_objects import MemoryObjects

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
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.resources import ResourceType

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
            equivalents=self._equivalents,
            resolve_service=lambda namespace, name, port: ServiceEndpoint("", 0, ""),
            authorize=lambda query: (self.may(query), ""),
            on_change=self.objects.watch,
            spawn=_refuse_to_spawn,
        )

    def _equivalents(self, definition: ResourceDefinition) -> list[ResourceDefinition]:
        return [each for each in self.definitions if each.storage_prefix == definition.storage_prefix]

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
