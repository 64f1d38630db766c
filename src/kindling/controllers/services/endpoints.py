"""Endpoints of Services with selectors."""

from __future__ import annotations

from kindling.controllers.environment import Environment
from kindling.controllers.services import service_endpoints as facts
from kubecore.errors import ignoring
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.resources import ENDPOINTS, PODS, SERVICES
from kubecore.runtime import DONE, Informer, Key, Result, key_of

NAME = "endpoint-controller"
MANAGED_BY = "endpoints.kubernetes.io/managed-by"
HEADLESS = "service.kubernetes.io/headless"
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"


def selecting_services(services: Informer, pod: JsonObject) -> list[Key]:
    """The services whose selector matches a pod."""
    return [
        key_of(service)
        for service in services.list(meta.namespace(pod))
        if facts.is_selected(service) and facts.pods_of(service, [pod])
    ]


def labels_of(service: JsonObject, own: dict[str, str]) -> dict[str, str]:
    """The labels of a service's Endpoints or slice: the service's, and `own`, which say whose it is."""
    labels = {key: value for key, value in meta.labels(service).items() if key != HEADLESS} | own
    if facts.is_headless(service):
        labels[HEADLESS] = ""
    return labels


class EndpointsController:
    """Keyed by service."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        self._services = environment.manager.informer(SERVICES)
        self._pods = environment.manager.informer(PODS)
        self._endpoints = environment.manager.informer(ENDPOINTS)
        controller = environment.controller(NAME, self.reconcile, workers=5)
        controller.watch(self._services)
        controller.watch(self._pods, lambda pod: selecting_services(self._services, pod))
        controller.watch(self._endpoints)

    async def reconcile(self, key: Key) -> Result:
        """Update the Endpoints of one service."""
        service = self._services.get(*key)
        current = self._endpoints.get(*key)
        if service is None:
            await self._delete(key, current)
            return DONE
        if not facts.is_selected(service) or meta.is_being_deleted(service):
            return DONE
        pods = facts.pods_of(service, self._pods.list(key[0]))
        subsets = facts.subsets(service, pods)
        labels = labels_of(service, {MANAGED_BY: NAME})
        if current is None:
            await self._create(service, subsets, labels)
        elif (current.get("subsets") or []) != subsets or meta.labels(current) != labels:
            updated = deep_copy(current)
            updated["metadata"]["labels"] = labels
            updated["subsets"] = subsets
            await self._client.update(ENDPOINTS, updated)
        return DONE

    async def _create(self, service: JsonObject, subsets: list[JsonObject], labels: dict[str, str]) -> None:
        endpoints: JsonObject = {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {
                "name": meta.name(service),
                "namespace": meta.namespace(service),
                "labels": labels,
                "annotations": {TRIGGER_TIME: meta.creation_timestamp(service)},
            },
        }
        if subsets:
            endpoints["subsets"] = subsets
        with ignoring(403, 404):
            await self._client.create(ENDPOINTS, endpoints)

    async def _delete(self, key: Key, current: JsonObject | None) -> None:
        if current is None or meta.labels(current).get(MANAGED_BY) != NAME:
            return
        with ignoring(404):
            await self._client.delete(ENDPOINTS, key[1], key[0])
