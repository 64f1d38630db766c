"""What CDI's controllers know that its alerts are about, as Prometheus reads it: upstream's metrics."""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily

from kubecore.runtime import Informer, Manager
from virtplane.api import cdi_labels as names
from virtplane.api import resources, storage_labels
from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron
from virtplane.api.cdi_v1beta1.data_volume import DataVolume, DataVolumeSpec
from virtplane.api.cdi_v1beta1.storage_profile import StorageProfile
from virtplane.api.storage_kinds import StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshotClass
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.profiles.capabilities import UNSUPPORTED
from virtplane.storage.cdi.controller.settings import Settings

CRON_OUTDATED = "kubevirt_cdi_dataimportcron_outdated"
PENDING = "kubevirt_cdi_datavolume_pending"
PROFILES = "kubevirt_cdi_storageprofile_info"

_CRON_LABELS = ["namespace", "cron_name", "pending"]
_PROFILE_LABELS = [
    "storageclass",
    "provisioner",
    "complete",
    "default",
    "virtdefault",
    "rwx",
    "smartclone",
    "degraded",
]
_PROFILE_HELP = (
    "`StorageProfiles` info labels: `storageclass`, `provisioner`, "
    "`complete` indicates if all storage profiles recommended PVC settings are complete, "
    "`default` indicates if it's the Kubernetes default storage class, "
    "`virtdefault` indicates if it's the default virtualization storage class, "
    "`rwx` indicates if the storage class supports `ReadWriteMany`, "
    "`smartclone` indicates if it supports snapshot or CSI based clone, "
    "`degraded` indicates it is not optimal for virtualization"
)
_COPY, _CSI_CLONE, _MANY = "copy", "csi-clone", "ReadWriteMany"


class CdiMetrics:
    """Collects from the caches of the replica that leads what is true when Prometheus asks."""

    def __init__(self, manager: Manager, settings: Settings) -> None:
        self._settings = settings
        self._crons: Informer[DataImportCron] = manager.informer(
            resources.DATA_IMPORT_CRONS, struct=DataImportCron
        )
        self._data_volumes: Informer[DataVolume] = manager.informer(resources.DATA_VOLUMES, struct=DataVolume)
        self._snapshot_classes: Informer[VolumeSnapshotClass] = manager.informer(
            resources.VOLUME_SNAPSHOT_CLASSES, struct=VolumeSnapshotClass
        )

    def describe(self) -> list[GaugeMetricFamily]:
        """The metrics without their values."""
        return [
            GaugeMetricFamily(CRON_OUTDATED, "DataImportCron has an outdated import", labels=_CRON_LABELS),
            GaugeMetricFamily(
                PENDING, "Number of DataVolumes pending for default storage class to be configured"
            ),
            GaugeMetricFamily(PROFILES, _PROFILE_HELP, labels=_PROFILE_LABELS),
        ]

    def collect(self) -> list[GaugeMetricFamily]:
        """The metrics' values now."""
        crons, pending, profiles = found = self.describe()
        for cron in self._crons.list():
            add_cron(crons, cron)
        pending.add_metric([], sum(waits_for_default(each) for each in self._data_volumes.list()))
        drivers = {each.driver for each in self._snapshot_classes.list()}
        for profile in self._settings.profiles.list():
            storage_class = self._settings.storage_class(profile.metadata.name)
            if storage_class is None or profile.status.provisioner is None:
                continue
            clones = profile.status.clone_strategy
            if clones == _CSI_CLONE:
                is_smart = self._settings.has_driver(storage_class)
            else:
                is_smart = clones != _COPY and storage_class.provisioner in drivers
            profiles.add_metric(profile_labels(profile, storage_class, is_smart=is_smart), 1)
        return found


def add_cron(metric: GaugeMetricFamily, cron: DataImportCron) -> None:
    """Add whether a cron's import is outdated, once that is known (pure).

    One whose import waits for a default class is pending: another alert tells of that.
    """
    status = next((each.status for each in cron.status.conditions if each.type == "UpToDate"), None)
    if status is None:
        return
    is_outdated = status != "True"
    has_class = names.CRON_STORAGE_CLASS in cron.metadata.annotations
    is_pending = is_outdated and not has_class and _uses_default(cron.spec.template.spec)
    labels = [cron.metadata.namespace, cron.metadata.name, _text(is_pending)]
    metric.add_metric(labels, float(is_outdated))


def waits_for_default(volume: DataVolume) -> bool:
    """Whether a DataVolume names no class and has not got anywhere (pure)."""
    return volume.status.phase in (None, "", "Pending") and _uses_default(volume.spec)


def profile_labels(profile: StorageProfile, storage_class: StorageClass, *, is_smart: bool) -> list[str]:
    """What is said of a storage class (pure); `is_smart`: its volumes are cloned without copying."""
    sets = profile.status.claim_property_sets
    is_complete = bool(sets) and all(each.access_modes and each.volume_mode for each in sets)
    is_shared = any(_MANY in each.access_modes for each in sets)
    annotations = storage_class.metadata.annotations
    said = (
        is_complete or storage_class.provisioner in UNSUPPORTED,
        annotations.get(storage_labels.DEFAULT_CLASS) == claims.TRUE,
        annotations.get(storage_labels.DEFAULT_VIRT_CLASS) == claims.TRUE,
        is_shared,
        is_smart,
        not (is_shared and is_smart),
    )
    return [storage_class.metadata.name, storage_class.provisioner, *map(_text, said)]


def _uses_default(spec: DataVolumeSpec) -> bool:
    wanted = spec.storage if spec.storage is not None else spec.pvc
    return wanted is not None and wanted.storage_class_name is None


def _text(found: bool) -> str:
    return claims.TRUE if found else claims.FALSE
