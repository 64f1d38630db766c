"""Removing an installation: first users' workloads, then webhooks, components and definitions."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import ResourceType
from virtplane.operators.kit.apply import Applier
from virtplane.operators.kit.installation import Installation

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Remover:
    """Removes an installation; each call does as many steps as possible."""

    client: Client
    applier: Applier
    workloads: Sequence[ResourceType]
    """What must be gone before the components that end it, in the order in which it is deleted."""
    kept: Collection[ResourceType] = ()
    """Kinds of the foundation that stay, because the operator's own pods need them."""

    async def remove(self, installed: Installation, namespace: str) -> bool:
        """Delete what is left; returns True when nothing is."""
        if not await self._workloads_gone():
            return False
        for document in (*installed.entry, *reversed(installed.withdrawn), *reversed(installed.components)):
            await self.applier.delete(document)
        definitions: list[JsonObject] = []
        others: list[JsonObject] = []
        for document in installed.foundation:
            is_definition = document["kind"] == resources.CUSTOM_RESOURCE_DEFINITIONS.kind
            (definitions if is_definition else others).append(document)
        if not await self._definitions_gone(definitions):
            return False
        for document in reversed(others):
            if self.applier.resource_of(document) not in self.kept:
                await self.applier.delete(document)
        selector = self.applier.product.selector
        for resource in (resources.SECRETS, resources.CONFIG_MAPS):
            for document in (await self.client.list(resource, namespace, label_selector=selector))["items"]:
                await self.client.delete(resource, meta.name(document), namespace)
        return True

    async def _workloads_gone(self) -> bool:
        """Delete workloads; their controllers must still run for that, so this comes first."""
        left = 0
        for resource in self.workloads:
            try:
                found = (await self.client.list(resource)).get("items") or []
            except errors.StatusError as error:
                if not errors.is_not_found(error):
                    raise
                continue
            left += len(found)
            for document in found:
                if not meta.is_being_deleted(document):
                    await self._delete(resource, document)
        if left:
            kinds = ", ".join(resource.kind for resource in self.workloads)
            logger.info("removal waits until %d objects of the kinds %s are deleted", left, kinds)
        return left == 0

    async def _definitions_gone(self, definitions: list[JsonObject]) -> bool:
        present = 0
        for document in definitions:
            present += await self.applier.delete(document)
        return present == 0

    async def _delete(self, resource: ResourceType, document: JsonObject) -> None:
        try:
            await self.client.delete(resource, meta.name(document), meta.namespace(document) or None)
        except errors.StatusError as error:
            if not errors.is_not_found(error):
                raise
