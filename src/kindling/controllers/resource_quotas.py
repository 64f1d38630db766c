"""The status of ResourceQuotas: the usage of a namespace. Admission adds the usage of new objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kindling.apiserver.admission.usage import is_in_scope, usage_of
from kindling.controllers.environment import Environment
from kubecore.client import ConnectionFailed, ServedResource, discover
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from kubecore.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
    ResourceType,
)
from kubecore.runtime import DONE, Key, RequeueAfter, Result
from kubecore.runtime.informer import EventType

NAME = "resourcequota-controller"
RESYNC_SECONDS = 300.0
COUNTED_AGAIN_SECONDS = 10.0
"""Quotas on kinds that nobody watches are counted again this often while used up."""
_PREFIX = "count/"
_PLAIN_COUNTS = ("configmaps", "secrets", "replicationcontrollers", "resourcequotas", "services")
_CLASS = ".storageclass.storage.k8s.io/"


def resources_of(hard: Iterable[str]) -> set[str]:
    """The kinds (``plural.group``) that must be counted for these limits."""
    result: set[str] = set()
    for name in hard:
        if name.startswith(_PREFIX):
            result.add(name.removeprefix(_PREFIX))
        elif name in _PLAIN_COUNTS:
            result.add(name)
        elif name.startswith("services."):
            result.add("services")
        elif name in ("persistentvolumeclaims", "requests.storage") or _CLASS in name:
            result.add("persistentvolumeclaims")
        else:
            result.add("pods")
    return result


def used(quota: JsonObject, objects: Mapping[ResourceType, Iterable[JsonObject]]) -> dict[str, str]:
    """The usage of everything that the quota limits."""
    totals = {name: Quantity.parse("0") for name in get_object(quota, "spec", "hard")}
    for resource, found in objects.items():
        for obj in found:
            if not is_in_scope(quota, resource, obj):
                continue
            for name, amount in usage_of(resource, obj).items():
                if name in totals:
                    totals[name] += amount
    return {name: str(total) for name, total in totals.items()}


class ResourceQuotaController:
    """Keyed by quota."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        manager = environment.manager
        self._quotas = manager.informer(RESOURCE_QUOTAS)
        self._served: dict[str, ServedResource] = {}
        self._controller = environment.controller(NAME, self.reconcile)
        self._controller.watch(self._quotas, predicate=_is_news)
        self._quotas.add_handler(self._note_exhaustion)
        self._watched = {
            resource: manager.informer(resource) for resource in (PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS)
        }
        for informer in self._watched.values():
            self._controller.watch(informer, self._quotas_of, _frees_something)
        environment.deletion_listeners.append(self._give_back)

    def _give_back(self, resource: ResourceType, namespace: str) -> None:
        """Recalculate quotas when an object of a kind that has no informer here was deleted."""
        if resource in self._watched or not namespace:
            return
        for quota in self._quotas.list(namespace):
            if resource.group_resource in resources_of(get_object(quota, "spec", "hard")):
                self._controller.enqueue(meta.key(quota))

    def _quotas_of(self, obj: JsonObject) -> list[Key]:
        return [meta.key(quota) for quota in self._quotas.list(meta.namespace(obj))]

    def _note_exhaustion(self, event: EventType, _old: JsonObject | None, quota: JsonObject) -> None:
        """Recalculate an exhausted quota soon: the objects that used it may have been deleted."""
        if event != "DELETED" and _is_exhausted(get_object(quota, "status")):
            self._controller.enqueue_after(meta.key(quota), COUNTED_AGAIN_SECONDS)

    async def reconcile(self, key: Key) -> Result:
        """Compute and write the usage of one quota."""
        quota = self._quotas.get(*key)
        if quota is None or meta.is_being_deleted(quota):
            return DONE
        hard = get_object(quota, "spec", "hard")
        objects: dict[ResourceType, Iterable[JsonObject]] = {}
        others = False
        for name in resources_of(hard):
            resource = await self._resource(name)
            if resource is None:
                continue
            others = others or resource not in self._watched
            listing = await self._client.list(resource, key[0], metadata_only=resource not in self._watched)
            objects[resource] = get_list(listing, "items")
        status = {"hard": dict(hard), "used": used(quota, objects)}
        if status != get_object(quota, "status"):
            await self._client.update(RESOURCE_QUOTAS, {**quota, "status": status}, "status")
        return RequeueAfter(COUNTED_AGAIN_SECONDS if others and _is_exhausted(status) else RESYNC_SECONDS)

    async def _resource(self, name: str) -> ResourceType | None:
        if name not in self._served:
            try:
                found = await discover(self._client)
            except (StatusError, ConnectionFailed):
                return None
            self._served = {served.resource.group_resource: served for served in found.preferred()}
        served = self._served.get(name)
        return served.resource if served and served.resource.namespaced and served.supports("list") else None


def _is_exhausted(status: JsonObject) -> bool:
    """Whether the usage of some resource has reached its limit."""
    spent = get_object(status, "used")
    return any(
        name in spent and Quantity.parse(str(spent[name])) >= Quantity.parse(str(limit))
        for name, limit in get_object(status, "hard").items()
    )


def _is_news(event: EventType, old: JsonObject | None, quota: JsonObject) -> bool:
    """Ignore changes of the status alone: those are admission's."""
    return (
        event == "ADDED"
        or old is None
        or old.get("spec") != quota.get("spec")
        or get_object(quota, "status", "hard") != get_object(quota, "spec", "hard")
    )


def _frees_something(event: EventType, old: JsonObject | None, obj: JsonObject) -> bool:
    """Admission counts created objects; this controller recounts when objects were deleted or use less."""
    if event != "MODIFIED" or old is None:
        return event == "DELETED"
    phases = (get_object(old, "status").get("phase"), get_object(obj, "status").get("phase"))
    return old.get("spec") != obj.get("spec") or phases[0] != phases[1]
