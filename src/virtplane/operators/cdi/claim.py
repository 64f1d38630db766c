"""Which CDI object counts: the one that the ConfigMap ``cdi-config`` belongs to. The first takes it.

The API server lets only one create it, so two operators cannot install for two objects.
"""

from __future__ import annotations

import logging
from enum import Enum, auto

from kubecore import errors, resources
from kubecore.client import Client
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from virtplane.api import resources as api
from virtplane.operators.cdi.product import CLAIM, OPERATOR_LABEL, own_labels

logger = logging.getLogger(__name__)


class Holder(Enum):
    """Who has the claim."""

    NOBODY = auto()
    OURS = auto()
    ANOTHER = auto()
    DEPARTED = auto()
    """An object that is deleted, or is going to be."""


class Claim:
    """The claim, which is always read from the API server."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def holder(self, cdi: JsonObject) -> Holder:
        """Who has it, as seen by `cdi`. Raises StatusError, ConnectionFailed."""
        found = await self._found()
        if found is None:
            return Holder.NOBODY
        owner = meta.controller_of(found) or {}
        if get_str(owner, "uid") == meta.uid(cdi):
            return Holder.OURS
        if meta.is_being_deleted(found) or not await self._lives(owner):
            return Holder.DEPARTED
        return Holder.ANOTHER

    async def take(self, cdi: JsonObject) -> bool:
        """Take the claim; False if somebody was faster. Raises StatusError, ConnectionFailed."""
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": CLAIM,
                "namespace": self._namespace,
                "labels": {**own_labels(), OPERATOR_LABEL: ""},
                "ownerReferences": [meta.new_controller_ref(cdi, api.CDIS)],
            },
        }
        try:
            await self._client.create(resources.CONFIG_MAPS, document, self._namespace)
        except errors.StatusError as error:
            if not errors.is_already_exists(error):
                raise
            return False
        return True

    async def clear(self) -> None:
        """Remove what an object left that is no more. Raises StatusError, ConnectionFailed."""
        found = await self._found()
        if found is None or await self._lives(meta.controller_of(found) or {}):
            return
        logger.info("ConfigMap %s/%s belongs to no CDI object: removing it", self._namespace, CLAIM)
        with errors.ignoring(404, 409):
            await self._client.delete(resources.CONFIG_MAPS, CLAIM, self._namespace, uid=meta.uid(found))

    async def _found(self) -> JsonObject | None:
        with errors.ignoring(404):
            return await self._client.get(resources.CONFIG_MAPS, CLAIM, self._namespace)
        return None

    async def _lives(self, owner: JsonObject) -> bool:
        with errors.ignoring(404):
            found = await self._client.get(api.CDIS, get_str(owner, "name"))
            return meta.uid(found) == get_str(owner, "uid") and not meta.is_being_deleted(found)
        return False
