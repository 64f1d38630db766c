"""virt-controller: all cluster-wide controllers of virtual machines, run by the replica that leads."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from prometheus_client.registry import Collector

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.runtime import Context, EventRecorder, Informer, LeaderElector, Manager
from kubecore.runtime.metrics import collected
from virtplane.api import cdi_labels
from virtplane.api import resources as kinds
from virtplane.api.config import VERSION_DETAIL, observed_version
from virtplane.api.images import SIDECAR_IMAGE
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.cluster.caches import OPTIONAL_KINDS, Cluster, served_optional_kinds
from virtplane.cluster.imagevolumes import ImageVolumeSupport
from virtplane.compute.controller.metrics import MachineMetrics
from virtplane.compute.controller.migration.evacuation import EvacuationController
from virtplane.compute.controller.migration.reconciler import MigrationController
from virtplane.compute.controller.migration.updates import UpdateController
from virtplane.compute.controller.nodes import NodeController
from virtplane.compute.controller.phasetimes import PhaseTimes
from virtplane.compute.controller.pool.reconciler import PoolController
from virtplane.compute.controller.replicaset.reconciler import ReplicaSetController
from virtplane.compute.controller.vm.reconciler import VmController
from virtplane.compute.controller.vmi.reconciler import VmiController
from virtplane.compute.controller.workloadupdates import WorkloadUpdateController
from virtplane.compute.launcherpod.inputs import Images
from virtplane.deletions.reporter import DeletionReporter, Watched
from virtplane.states import leading
from virtplane.storage.clone.reconciler import CloneController
from virtplane.storage.restore.reconciler import RestoreController
from virtplane.storage.snapshot.contents import ContentController
from virtplane.storage.snapshot.reconciler import SnapshotController

logger = logging.getLogger(__name__)

EVENT_SOURCE = "virtualmachine-controller"
_RETRY_SECONDS = 2.0


class _KindsChanged(Exception):
    """The cluster started or stopped serving one of `OPTIONAL_KINDS`."""


def images_of(context: Context) -> Images:
    """What the containers of launcher pods run; an administrator names an image for hook sidecars by the
    environment, as with KubeVirt.
    """
    image = str(context.settings.get("image") or "")
    return Images(
        launcher=str(context.settings.get("launcher_image") or image),
        sidecar=os.environ.get(SIDECAR_IMAGE) or image,
        exporter=str(context.settings.get("exporter_image") or image),
    )


class VirtController:
    """The component ``virt-controller``."""

    name = "virt-controller"

    async def run(self, context: Context) -> None:
        """Run the controllers while this replica is the leader; restart them when the optional kinds
        change. A replica that stands by tells which settings it knows, too.
        """
        client = context.client(self.name)
        images = images_of(context)
        image_volumes = ImageVolumeSupport(client, context.namespace)
        elector = LeaderElector(client, self.name, context.namespace, context.identity)
        watcher = Manager(client)
        known = _Known(watcher.informer(kinds.KUBEVIRTS, namespace=context.namespace))
        context.health.add_detail(VERSION_DETAIL, known.version)

        async def controllers() -> None:
            while True:
                served = await served_optional_kinds(client)
                await image_volumes.ask()
                async with EventRecorder(client, EVENT_SOURCE) as recorder:
                    manager = Manager(client, queues=context.queues)
                    cluster = Cluster(
                        client, manager, recorder, images, served, context.namespace, image_volumes
                    )
                    counts = add_controllers(cluster)
                    machines, times = MachineMetrics(cluster), PhaseTimes(cluster)
                    manager.add_runnable("image-volumes", image_volumes.run)
                    manager.add_runnable("optional-kinds", _watch_kinds(cluster))
                    try:
                        with (
                            known.by(cluster),
                            collected(context.registry, machines, counts, *times.collectors),
                        ):
                            await manager.run()
                    except* _KindsChanged:
                        logger.info("The set of served kinds changed: restarting the controllers")
                await asyncio.sleep(_RETRY_SECONDS)

        watcher.add_runnable("leader", lambda: elector.lead(controllers))
        with leading(context.registry, self.name, elector):
            await watcher.run()


class _Known:
    """The KubeVirt object as this replica knows it: the controllers know it by their own cache."""

    def __init__(self, informer: Informer[JsonObject]) -> None:
        self._informer = informer
        self._cluster: Cluster | None = None

    @contextmanager
    def by(self, cluster: Cluster) -> Iterator[None]:
        """What the controllers of `cluster` follow counts meanwhile."""
        self._cluster = cluster
        try:
            yield
        finally:
            self._cluster = None

    def version(self) -> str:
        """Its version, as observed."""
        if self._cluster is not None:
            return observed_version(self._cluster.kubevirt())
        return observed_version(next(iter(self._informer.list()), None))


def add_controllers(cluster: Cluster) -> Collector:
    """Adds every controller to the cluster's manager; gives what counts how often they write instances."""
    cluster.prepare()
    add = cluster.manager.add
    instances, machines = VmiController(cluster), VmController(cluster)
    migrations, pools = MigrationController(cluster), PoolController(cluster)
    snapshots, restores = SnapshotController(cluster), RestoreController(cluster)
    contents = ContentController(cluster)
    for part in (instances, machines, migrations, pools, snapshots, contents, restores):
        add(part.controller)
    for other in (
        EvacuationController,
        NodeController,
        ReplicaSetController,
        UpdateController,
        WorkloadUpdateController,
    ):
        add(other(cluster).controller)
    if {kinds.VOLUME_SNAPSHOTS, kinds.VOLUME_SNAPSHOT_CLASSES} <= cluster.served:
        add(CloneController(cluster).controller)
    told = (
        Watched(kinds.VIRTUAL_MACHINES, cluster.vms, (machines.controller,)),
        Watched(kinds.VIRTUAL_MACHINE_INSTANCES, cluster.vmis, (instances.controller, machines.controller)),
        Watched(kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS, cluster.migrations, (migrations.controller,)),
        Watched(kinds.VIRTUAL_MACHINE_POOLS, cluster.pools, (pools.controller,)),
        Watched(kinds.VIRTUAL_MACHINE_SNAPSHOTS, cluster.snapshots, (snapshots.controller,)),
        Watched(kinds.VIRTUAL_MACHINE_SNAPSHOT_CONTENTS, cluster.snapshot_contents, (contents.controller,)),
        Watched(kinds.VIRTUAL_MACHINE_RESTORES, cluster.restores, (restores.controller,)),
        Watched(resources.PERSISTENT_VOLUME_CLAIMS, cluster.claims, (), _is_disk(cluster)),
    )
    reporter = DeletionReporter("virt-controller-deletions", cluster.client, cluster.recorder, told)
    add(reporter.controller)
    return instances.counts


def _is_disk(cluster: Cluster) -> Callable[[ObjectMeta], bool]:
    """Whether a claim is the disk of a machine or guest, and cdi-deployment tells nothing of it."""

    def is_disk(claim: ObjectMeta) -> bool:
        name = f"{claim.namespace}/{claim.name}"
        is_of_cdi = any(each.startswith(cdi_labels.PREFIX) for each in claim.finalizers)
        is_used = cluster.vms.by_index("claim", name) or cluster.vmis.by_index("claim", name)
        return bool(is_used) and not is_of_cdi

    return is_disk


def _watch_kinds(cluster: Cluster) -> Callable[[], Awaitable[None]]:
    names = {kind.group_resource for kind in OPTIONAL_KINDS}
    served = {kind.group_resource for kind in cluster.served}
    changed = asyncio.Event()

    def observe(event: str, old: JsonObject | None, new: JsonObject) -> None:
        name = meta.name(new)
        if name in names and (event != "DELETED") != (name in served):
            changed.set()

    cluster.definitions.add_handler(observe)

    async def wait() -> None:
        await changed.wait()
        raise _KindsChanged

    return wait
