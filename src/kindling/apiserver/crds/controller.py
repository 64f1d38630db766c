"""Following the stored definitions: accepting names, serving resources, cleaning up behind deletions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from kindling.apiserver.admission.webhook_client import WebhookClient
from kindling.apiserver.registry.admission import AdmissionEnvironment
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject, deep_copy, get_list, get_str
from kubecore.objects import meta
from kubecore.resources import CUSTOM_RESOURCE_DEFINITIONS, ResourceType
from kubecore.sharing import with_shared_parts

from . import names
from .resources import resource_definitions
from .strategy import CLEANUP_FINALIZER, names_of
from .versions import storage_version

_LOG = logging.getLogger(__name__)
_CLEANUP_INTERVAL_SECONDS = 0.5
_RETRY_SECONDS = 1.0
_BUCKET = "apiextensions.k8s.io/customresourcedefinitions"

Serve = Callable[[str, Sequence[ResourceDefinition]], None]
"""``serve(name, definitions)``: offer these resources as those of definition `name`; none: no longer."""


class CustomResources:
    """Keeps what the server offers in step with the definitions it stores.

    Changes arrive through the environment, in order; each is handled by one task, so that names are
    accepted one definition after the other. Resources are served as soon as the definition is established.
    """

    def __init__(self, environment: AdmissionEnvironment, serve: Serve, client: WebhookClient) -> None:
        self._environment = environment
        self._serve = serve
        self._client = client
        self._known: dict[str, JsonObject] = {}
        self._served: dict[str, tuple[list[Any], int]] = {}
        """The versions of each definition, and the revision since when they are as they are."""
        self._dirty: asyncio.Queue[str] = asyncio.Queue()
        self._cleaning: set[str] = set()

    def start(self) -> None:
        """Serve the definitions there are, and follow the changes from now on."""
        self._environment.on_change(_BUCKET, self._changed)
        self._environment.spawn(self._run(), "custom resource definitions")

    def _changed(self, event: str, crd: JsonObject) -> None:
        name = meta.name(crd)
        if event == "DELETED":
            self._known.pop(name, None)
            self._served.pop(name, None)
            self._serve(name, ())
        else:
            self._known[name] = known = self._slim(name, crd)
            self._offer(known)
        self._dirty.put_nowait(name)

    def _slim(self, name: str, crd: JsonObject) -> JsonObject:
        """The definition, its versions those that are served already where they are the same."""
        served, _ = self._served.get(name, (None, 0))
        if served != get_list(crd, "spec", "versions"):
            return with_shared_parts(crd)
        return {**crd, "spec": {**crd["spec"], "versions": served}}

    def _offer(self, crd: JsonObject) -> None:
        if not names.is_served(crd):
            return
        name, versions = meta.name(crd), get_list(crd, "spec", "versions")
        served, since = self._served.get(name, (None, 0))
        if served != versions:
            since = int(meta.resource_version(crd) or 0)
            self._served[name] = versions, since
        self._serve(name, resource_definitions(crd, self._client, since))

    async def _run(self) -> None:
        while True:
            name = await self._dirty.get()
            try:
                await self._reconcile(name)
            except StatusError as error:
                _LOG.warning("CustomResourceDefinition %s: %s; trying again", name, error.message)
                self._environment.spawn(self._again(name), f"retry of definition {name}")

    async def _again(self, name: str) -> None:
        await asyncio.sleep(_RETRY_SECONDS)
        self._dirty.put_nowait(name)

    async def _reconcile(self, name: str) -> None:
        crd = self._known.get(name)
        if crd is None:
            self._recheck_conflicts()
            return
        if meta.is_being_deleted(crd):
            if meta.has_finalizer(crd, CLEANUP_FINALIZER) and name not in self._cleaning:
                self._cleaning.add(name)
                self._environment.spawn(self._clean_up(name), f"instances of {name}")
            return
        if not names.establish(deep_copy(crd), self._others(name)):
            return

        def accept(current: JsonObject) -> JsonObject | None:
            return current if names.establish(current, self._others(name)) else None

        with ignoring(404):
            await self._environment.objects.modify(CUSTOM_RESOURCE_DEFINITIONS, None, name, accept)

    def _others(self, name: str) -> list[JsonObject]:
        return [crd for other, crd in self._known.items() if other != name]

    def _recheck_conflicts(self) -> None:
        """A definition is gone: one that wanted its names may have them now."""
        for name, crd in self._known.items():
            if not meta.is_condition_true(crd, "NamesAccepted"):
                self._dirty.put_nowait(name)

    async def _clean_up(self, name: str) -> None:
        """Delete all instances, wait until they are gone, then let the definition go."""
        try:
            while (crd := self._known.get(name)) is not None:
                try:
                    if await self._delete_instances(crd) == 0:
                        await self._release(name)
                        return
                except StatusError as error:
                    _LOG.warning(
                        "deleting the instances of CustomResourceDefinition %s failed: %s; trying again",
                        name,
                        error.message,
                    )
                await asyncio.sleep(_CLEANUP_INTERVAL_SECONDS)
        finally:
            self._cleaning.discard(name)

    async def _delete_instances(self, crd: JsonObject) -> int:
        """Delete the remaining custom resources; returns how many there were."""
        if not names.is_served(crd):
            return 0
        resource = _stored_resource(crd)
        instances = self._environment.objects.list(resource)
        if not instances:
            return 0
        await self._tell(
            meta.name(crd), "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"
        )
        for instance in instances:
            if meta.is_being_deleted(instance):
                continue
            namespace = meta.namespace(instance) or None
            with ignoring(404):
                await self._environment.objects.delete(resource, namespace, meta.name(instance))
        return len(self._environment.objects.list(resource))

    async def _tell(self, name: str, status: str, reason: str, message: str) -> None:
        def change(current: JsonObject) -> JsonObject | None:
            conditions = current.setdefault("status", {}).setdefault("conditions", [])
            return current if meta.set_condition(conditions, "Terminating", status, reason, message) else None

        await self._environment.objects.modify(CUSTOM_RESOURCE_DEFINITIONS, None, name, change)

    async def _release(self, name: str) -> None:
        def change(current: JsonObject) -> JsonObject | None:
            conditions = current.setdefault("status", {}).setdefault("conditions", [])
            meta.set_condition(
                conditions, "Terminating", "False", "InstanceDeletionCompleted", "removed all instances"
            )
            return current if meta.remove_finalizer(current, CLEANUP_FINALIZER) else None

        with ignoring(404):
            await self._environment.objects.modify(CUSTOM_RESOURCE_DEFINITIONS, None, name, change)


def _stored_resource(crd: JsonObject) -> ResourceType:
    accepted = names_of(crd)
    return ResourceType(
        get_str(crd, "spec", "group"),
        storage_version(crd),
        str(accepted.get("plural")),
        str(accepted.get("kind")),
        get_str(crd, "spec", "scope") == "Namespaced",
    )
