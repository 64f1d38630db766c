"""Taking an installation away: first what users made, then entrances, components and definitions."""

from __future__ import annotations

import logging

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import ResourceType
from virtplane.api import labels
from virtplane.api import resources as api
from virtplane.operators.kit.apply import Applier
from virtplane.operators.kubevirt.strategy.installation import Installation

logger = logging.getLogger(__name__)

_WORKLOADS: tuple[ResourceType, ...] = (
    api.VIRTUAL_MACHINE_POOLS,
    api.VIRTUAL_MACHINES,
    api.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS,
    api.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS,
    api.VIRTUAL_MACHINE_INSTANCES,
)
"""What must be gone before the components that end it."""


class Remover:
    """Removes step by step; each call goes as far as it can."""

    def __init__(self, client: Client, applier: Applier) -> None:
        self._client = client
        self._applier = applier

    async def remove(self, installed: Installation, namespace: str) -> bool:
        """Remove what is left; True once nothing is."""
        if not await self._workloads_gone():
            return False
        for document in (*installed.entry, *reversed(installed.components)):
            await self._applier.delete(document)
        definitions: list[JsonObject] = []
        others: list[JsonObject] = []
        for document in installed.foundation:
            is_definition = document["kind"] == resources.CUSTOM_RESOURCE_DEFINITIONS.kind
            (definitions if is_definition else others).append(document)
        if not await self._definitions_gone(definitions):
            return False
        for document in reversed(others):
            if document["kind"] != resources.PRIORITY_CLASSES.kind:  # the operator's own pods need it
                await self._applier.delete(document)
        selector = f"{labels.MANAGED_BY}={labels.MANAGED_BY_OPERATOR}"
        for resource in (resources.SECRETS, resources.CONFIG_MAPS):
            for document in (await self._client.list(resource, namespace, label_selector=selector))["items"]:
                await self._client.delete(resource, meta.name(document), namespace)
        return True

    async def _workloads_gone(self) -> bool:
        """Ask workloads to go; they need their controllers for that, so this comes first."""
        left = 0
        for resource in _WORKLOADS:
            try:
                found = (await self._client.list(resource)).get("items") or []
            except errors.StatusError as error:
                if not errors.is_not_found(error):
                    raise
                continue
            left += len(found)
            for document in found:
                if not meta.is_being_deleted(document):
                    await self._delete(resource, document)
        if left:
            logger.info("waiting for %d machines and instances to go", left)
        return left == 0

    async def _definitions_gone(self, definitions: list[JsonObject]) -> bool:
        present = 0
        for document in definitions:
            present += await self._applier.delete(document)
        return present == 0

    async def _delete(self, resource: ResourceType, document: JsonObject) -> None:
        try:
            await self._client.delete(resource, meta.name(document), meta.namespace(document) or None)
        except errors.StatusError as error:
            if not errors.is_not_found(error):
                raise
