"""cdi-deployment: the component. Every controller of CDI is listed here."""

from __future__ import annotations

import asyncio
import logging
import os

from prometheus_client import CollectorRegistry

from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError, is_not_found
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, ResourceType
from kubecore.runtime import Context, LeaderElector, Manager
from kubecore.runtime.metrics import collected
from virtplane.api import cdi_labels, cdi_names
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.cdi_v1beta1.object_transfer import ObjectTransfer
from virtplane.api.resources import (
    DATA_VOLUMES,
    OBJECT_TRANSFERS,
    VOLUME_SNAPSHOT_CLASSES,
    VOLUME_SNAPSHOT_CONTENTS,
    VOLUME_SNAPSHOTS,
)
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.deletions.reporter import DeletionReporter, Watched
from virtplane.storage.cdi.controller.assembly import add_data_volume_controllers, recorder_of
from virtplane.storage.cdi.controller.clones import populator
from virtplane.storage.cdi.controller.config.reconciler import OPENSHIFT, ConfigController
from virtplane.storage.cdi.controller.crons import reconciler
from virtplane.storage.cdi.controller.crons.polling import IMAGE_STREAMS
from virtplane.storage.cdi.controller.crons.reconciler import CronController
from virtplane.storage.cdi.controller.datasources.reconciler import DataSourceController
from virtplane.storage.cdi.controller.datavolume import flows
from virtplane.storage.cdi.controller.metrics import CdiMetrics
from virtplane.storage.cdi.controller.populators import kinds as populators
from virtplane.storage.cdi.controller.profiles.reconciler import ProfileController
from virtplane.storage.cdi.controller.programs import chosen_programs
from virtplane.storage.cdi.controller.settings import Programs, Settings
from virtplane.storage.cdi.controller.transfers import reconciler as transferring
from virtplane.storage.cdi.controller.transfers.reconciler import TransferController
from virtplane.storage.cdi.controller.workers import cloning, importer, upload
from virtplane.storage.cdi.controller.workers.certificates import SecretIssuer

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 2.0
_CHECK_SECONDS = 30.0
_SNAPSHOTS = (VOLUME_SNAPSHOTS, VOLUME_SNAPSHOT_CLASSES, VOLUME_SNAPSHOT_CONTENTS)
_OPTIONAL = (*OPENSHIFT, *_SNAPSHOTS, IMAGE_STREAMS)
_OF_DATA_VOLUMES = frozenset(
    flow.controller
    for flow in (flows.IMPORT, flows.UPLOAD, flows.EXTERNAL, flows.CLAIM_CLONE, flows.SNAPSHOT_CLONE)
)
_OF_CLAIMS = frozenset(
    (
        importer.NAME,
        upload.NAME,
        cloning.NAME,
        populator.NAME,
        populators.IMPORT.controller,
        populators.UPLOAD.controller,
    )
)
"""Names of the controllers whose keys are DataVolumes, and claims."""


class CdiController:
    """Runs CDI's controllers in the replica that leads."""

    name = cdi_names.CONTROLLER

    async def run(self, context: Context) -> None:
        """Run until cancelled."""
        client = context.client(self.name)
        identity = context.identity or self.name
        elector = LeaderElector(client, cdi_names.LEADER_ELECTION, context.namespace, identity)
        programs = chosen_programs(str(context.settings.get("image") or ""), os.environ)
        await elector.lead(lambda: control(client, context.namespace, programs, context.registry))


async def control(client: Client, namespace: str, programs: Programs, registry: CollectorRegistry) -> None:
    """The controllers, until cancelled; `namespace` is CDI's own, `programs` are those of worker pods, their
    metrics are in `registry`.

    They begin anew when the cluster serves other kinds than it did.
    """
    served = await _served(client, namespace)
    while True:
        logger.info("CDI's controllers work; of what not every cluster serves there are: %s", _text(served))
        work = asyncio.create_task(
            _work(client, namespace, programs, served, registry), name="cdi-controllers"
        )
        change = asyncio.create_task(_other(client, namespace, served), name="cdi-served-kinds")
        try:
            await asyncio.wait({work, change}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for task in (work, change):
                task.cancel()
            await asyncio.gather(work, change, return_exceptions=True)
        served = change.result()


async def _work(
    client: Client,
    namespace: str,
    programs: Programs,
    served: frozenset[ResourceType],
    registry: CollectorRegistry,
) -> None:
    manager = Manager(client, absent=set(_OPTIONAL) - served)
    settings = Settings(manager, programs)
    add_controllers(client, manager, namespace, settings, programs, served)
    with collected(registry, CdiMetrics(manager, settings)):
        await manager.run()


def add_controllers(
    client: Client,
    manager: Manager,
    namespace: str,
    settings: Settings,
    programs: Programs,
    served: frozenset[ResourceType],
) -> None:
    """Add every controller of CDI to `manager`; `served` are the kinds that not every cluster serves."""
    ConfigController(client, manager, namespace, served & OPENSHIFT)
    ProfileController(client, manager)
    issuer = SecretIssuer(client, namespace, lambda: settings.certificates)
    add_data_volume_controllers(client, manager, settings, issuer, namespace)
    DataSourceController(client, manager)
    TransferController(client, manager)
    CronController(
        client,
        manager,
        recorder_of(client, manager, reconciler.NAME),
        namespace=namespace,
        image=programs.importer_image,
        commands=programs.commands,
        has_image_streams=IMAGE_STREAMS in served,
    )
    tell_of_deletions(client, manager)


def tell_of_deletions(client: Client, manager: Manager) -> None:
    """Have events say why deleted objects of CDI are still there; all other controllers were added."""
    every = tuple(manager.controllers)
    volumes = tuple(each for each in every if each.name in _OF_DATA_VOLUMES)
    watched = (
        Watched(DATA_VOLUMES, manager.informer(DATA_VOLUMES, struct=DataVolume), volumes),
        Watched(
            PERSISTENT_VOLUME_CLAIMS,
            manager.informer(PERSISTENT_VOLUME_CLAIMS, struct=PersistentVolumeClaim),
            tuple(each for each in every if each.name in _OF_CLAIMS),
            lambda of: any(each.startswith(cdi_labels.PREFIX) for each in of.finalizers),
        ),
        Watched(
            OBJECT_TRANSFERS,
            manager.informer(OBJECT_TRANSFERS, struct=ObjectTransfer),
            tuple(each for each in every if each.name == transferring.NAME),
        ),
    )
    name = "cdi-deletions"
    manager.add(DeletionReporter(name, client, recorder_of(client, manager, name), watched).controller)


async def _other(client: Client, namespace: str, served: frozenset[ResourceType]) -> frozenset[ResourceType]:
    """What is served, once that is something else than `served`."""
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        found = await _served(client, namespace)
        if found != served:
            return found


async def _served(client: Client, namespace: str) -> frozenset[ResourceType]:
    """Which kinds the cluster has of those that not every cluster has."""
    return frozenset([kind for kind in _OPTIONAL if await _serves(client, kind, namespace)])


def _text(served: frozenset[ResourceType]) -> str:
    return ", ".join(sorted(kind.plural for kind in served)) or "none"


async def _serves(client: Client, kind: ResourceType, namespace: str) -> bool:
    """Whether the cluster knows a kind; asks until there is an answer.

    Kinds with namespaces are read in `namespace` only.
    """
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
