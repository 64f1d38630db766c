"""cdi-deployment: the component. Every controller of CDI is listed here."""

from __future__ import annotations

import asyncio
import logging

from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError, is_not_found
from kubecore.resources import ResourceType
from kubecore.runtime import Context, LeaderElector, Manager
from virtplane.api import cdi_names
from virtplane.storage.cdi.controller.config.reconciler import OPENSHIFT, ConfigController
from virtplane.storage.cdi.controller.profiles.reconciler import ProfileController

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 2.0


class CdiController:
    """Runs CDI's controllers in the replica that leads."""

    name = cdi_names.CONTROLLER

    async def run(self, context: Context) -> None:
        """Run until cancelled."""
        client = context.client(self.name)
        identity = context.identity or self.name
        elector = LeaderElector(client, cdi_names.LEADER_ELECTION, context.namespace, identity)
        await elector.run(lambda: control(client, context.namespace))


async def control(client: Client, namespace: str) -> None:
    """The controllers, until cancelled; `namespace` is CDI's own."""
    served = frozenset([kind for kind in OPENSHIFT if await _serves(client, kind, namespace)])
    manager = Manager(client)
    ConfigController(client, manager, namespace, served)
    ProfileController(client, manager)
    await manager.run()


async def _serves(client: Client, kind: ResourceType, namespace: str) -> bool:
    """Whether the cluster knows a kind; asks until there is an answer. Routes may be read in `namespace` only."""
    where = namespace if kind.namespaced else None
    while True:
        try:
            await client.list(kind, where, limit=1)
        except (StatusError, ConnectionFailed) as error:
            if is_not_found(error):
                return False
            logger.warning("whether %s are served cannot be seen, trying again: %s", kind.plural, error)
        else:
            return True
        await asyncio.sleep(_RETRY_SECONDS)
