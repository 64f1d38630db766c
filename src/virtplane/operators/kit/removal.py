"""Removing an installation: first users' workloads, then webhooks, components and definitions."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import meta, times
from kubecore.resources import ResourceType
from kubecore.runtime import EventRecorder
from virtplane.operators.kit.apply import Applier
from virtplane.operators.kit.installation import Installation

logger = logging.getLogger(__name__)

WAITING = "DeletionWaiting"
"""The event on an installation whose removal waits."""
_PATIENCE_SECONDS = 30.0
"""A removal that takes no longer is nothing to tell of."""
_SHOWN = 3
"""Objects that are named of those that are waited for."""


def tell_of_wait(events: EventRecorder, installation: JsonObject, left: str) -> None:
    """Record what a removal waits for, where that takes longer than usual."""
    since = meta.deletion_timestamp(installation)
    if since and (times.now() - times.parse_time(since)).total_seconds() > _PATIENCE_SECONDS:
        events.event(installation, "Warning", WAITING, f"Deleted at {since}, it waits: {left}")


@dataclass(frozen=True, slots=True)
class Remover:
    """Removes an installation; each call does as many steps as possible."""

    client: Client
    applier: Applier
    workloads: Sequence[ResourceType]
    """What must be gone before the components that end it, in the order in which it is deleted."""
    kept: Collection[ResourceType] = ()
    """Kinds of the foundation that stay, because the operator's own pods need them."""

    async def remove(self, installed: Installation, namespace: str) -> str:
        """Delete what is left; returns what is waited for, and nothing when all is gone."""
        left = await self._workloads_left()
        if left:
            return left
        for document in (*installed.entry, *reversed(installed.withdrawn), *reversed(installed.components)):
            await self.applier.delete(document)
        definitions: list[JsonObject] = []
        others: list[JsonObject] = []
        for document in installed.foundation:
            is_definition = document["kind"] == resources.CUSTOM_RESOURCE_DEFINITIONS.kind
            (definitions if is_definition else others).append(document)
        left = await self._definitions_left(definitions)
        if left:
            return left
        for document in reversed(others):
            if self.applier.resource_of(document) not in self.kept:
                await self.applier.delete(document)
        selector = self.applier.product.selector
        for resource in (resources.SECRETS, resources.CONFIG_MAPS):
            for document in (await self.client.list(resource, namespace, label_selector=selector))["items"]:
                await self.client.delete(resource, meta.name(document), namespace)
        return ""

    async def _workloads_left(self) -> str:
        """Delete workloads; their controllers must still run for that, so this comes first."""
        left: list[str] = []
        for resource in self.workloads:
            try:
                found = (await self.client.list(resource)).get("items") or []
            except errors.StatusError as error:
                if not errors.is_not_found(error):
                    raise
                continue
            left += [f"{resource.plural} {'/'.join(filter(None, meta.key(each)))}" for each in found]
            for document in found:
                if not meta.is_being_deleted(document):
                    await self._delete(resource, document)
        if not left:
            return ""
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        text = f"objects of users are being deleted: {', '.join(left[:_SHOWN])}{more}"
        logger.info("removal waits: %s", text)
        return text

    async def _definitions_left(self, definitions: list[JsonObject]) -> str:
        present = [document for document in definitions if await self.applier.delete(document)]
        names = ", ".join(map(meta.name, present[:_SHOWN]))
        return f"definitions are being deleted, with their objects: {names}" if present else ""

    async def _delete(self, resource: ResourceType, document: JsonObject) -> None:
        try:
            await self.client.delete(resource, meta.name(document), meta.namespace(document) or None)
        except errors.StatusError as error:
            if not errors.is_not_found(error):
                raise
