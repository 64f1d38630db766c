"""What the cron controller reads of the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.resources import CRON_JOBS, JOBS, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES, ResourceType
from kubecore.runtime import Informer, Key, Manager
from virtplane.api import cdi_labels as names
from virtplane.api import resources as kinds
from virtplane.api.cdi_names import CONFIG
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.api.cdi_v1beta1.cdi_config import CDIConfig
from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron
from virtplane.api.cdi_v1beta1.data_source import DataSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.cdi_v1beta1.storage_profile import StorageProfile
from virtplane.api.storage_kinds import PersistentVolumeClaim, StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot, VolumeSnapshotClass
from virtplane.cluster.caches import HasMetadata
from virtplane.cluster.objects import AnyObject
from virtplane.storage.cdi import rendering
from virtplane.storage.cdi.controller.crons.decisions import Import, Target

BY_CRON = "cron"
"""Objects by the cron in their labels, ``namespace/name``."""


def crons_of(obj: HasMetadata) -> list[str]:
    """The cron that an object of its namespace is labelled with."""
    name = obj.metadata.labels.get(names.CRON)
    return [f"{obj.metadata.namespace}/{name}"] if name else []


def crons_of_job(job: HasMetadata) -> list[str]:
    """The cron that a job in CDI's namespace polls for."""
    labels = job.metadata.labels
    name, namespace = labels.get(names.CRON), labels.get(names.CRON_NAMESPACE)
    return [f"{namespace}/{name}"] if name and namespace else []


def key_of_cron_job(job: JsonObject) -> list[Key]:
    """The key of the cron that a CronJob polls for."""
    return keys(crons_of_job(decode(AnyObject, job)))


def keys(crons: Iterable[str]) -> list[Key]:
    """The keys of crons written ``namespace/name``."""
    return [(namespace, name) for namespace, _, name in (each.partition("/") for each in crons)]


@dataclass(frozen=True, slots=True)
class Belongings:
    """What is labelled with a cron, of all kinds that a cron makes."""

    kind: ResourceType
    objects: Iterable[HasMetadata]


class Caches:
    """The informers, and what is read from them. All methods raise UnfitDocument."""

    def __init__(self, manager: Manager, namespace: str) -> None:
        """`namespace` is CDI's own."""
        by_cron = {BY_CRON: crons_of}
        self.crons = manager.informer(kinds.DATA_IMPORT_CRONS, struct=DataImportCron)
        self.sources = manager.informer(kinds.DATA_SOURCES, struct=DataSource, indexers=by_cron)
        self.data_volumes = manager.informer(kinds.DATA_VOLUMES, struct=DataVolume, indexers=by_cron)
        self.claims = manager.informer(
            PERSISTENT_VOLUME_CLAIMS, struct=PersistentVolumeClaim, indexers=by_cron
        )
        self.snapshots = manager.informer(kinds.VOLUME_SNAPSHOTS, struct=VolumeSnapshot, indexers=by_cron)
        self.snapshot_classes = manager.informer(kinds.VOLUME_SNAPSHOT_CLASSES, struct=VolumeSnapshotClass)
        self.classes = manager.informer(STORAGE_CLASSES, struct=StorageClass)
        self.profiles = manager.informer(kinds.STORAGE_PROFILES, struct=StorageProfile)
        self.installations: Informer[CDI] = manager.informer(kinds.CDIS, struct=CDI)
        self.configs = manager.informer(kinds.CDI_CONFIGS, struct=CDIConfig)
        of_job = {BY_CRON: crons_of_job}
        self.cron_jobs: Informer[JsonObject] = manager.informer(
            CRON_JOBS,
            namespace=namespace,
            label_selector=names.CRON,
            indexers={BY_CRON: lambda job: crons_of_job(decode(AnyObject, job))},
        )
        self.jobs = manager.informer(
            JOBS, namespace=namespace, label_selector=names.CRON, struct=AnyObject, indexers=of_job
        )

    def config(self) -> CDIConfig:
        """The one CDIConfig; one without any setting before there is one."""
        return self.configs.get("", CONFIG) or CDIConfig()

    def target(self, cron: DataImportCron) -> Target:
        """Where the imports of `cron` go."""
        template = cron.spec.template.spec
        asked = next((each for each in (template.pvc, template.storage) if each is not None), None)
        name = asked.storage_class_name if asked is not None else None
        storage = rendering.Storage(classes=tuple(self.classes.list()))
        found = rendering.storage_class(storage, name, rendering.content_type(template.content_type))
        if found is None:
            return Target()
        return Target(found, self.profiles.get("", found.metadata.name))

    def imported(self, namespace: str, name: str) -> Import:
        """What there is of an import."""
        return Import(
            self.data_volumes.get(namespace, name),
            self.claims.get(namespace, name),
            self.snapshots.get(namespace, name),
        )

    def belongings(self, key: Key) -> list[Belongings]:
        """What is labelled with the cron `key` in its namespace."""
        cron = "/".join(key)
        return [
            Belongings(kinds.DATA_SOURCES, self.sources.by_index(BY_CRON, cron)),
            Belongings(kinds.DATA_VOLUMES, self.data_volumes.by_index(BY_CRON, cron)),
            Belongings(PERSISTENT_VOLUME_CLAIMS, self.claims.by_index(BY_CRON, cron)),
            Belongings(kinds.VOLUME_SNAPSHOTS, self.snapshots.by_index(BY_CRON, cron)),
        ]

    def pollers(self, key: Key) -> list[Belongings]:
        """The jobs that poll for the cron `key`."""
        cron = "/".join(key)
        cron_jobs = [decode(AnyObject, job) for job in self.cron_jobs.by_index(BY_CRON, cron)]
        return [Belongings(CRON_JOBS, cron_jobs), Belongings(JOBS, self.jobs.by_index(BY_CRON, cron))]
