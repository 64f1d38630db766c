"""All reads of the VM controller from the caches, decoded into structs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from kubecore import resources
from kubecore.json import JsonObject
from kubecore.objects.structs import Struct, UnfitDocument, decode, readable
from kubecore.runtime import Informer, Key
from virtplane.api import resources as kinds
from virtplane.api.cdi_v1beta1.data_source import DataSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.kubevirt_v1.vm import VirtualMachine, VirtualMachineSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name
from virtplane.api.markers import ApiStruct
from virtplane.api.storage_kinds import PersistentVolumeClaim, StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshotClass
from virtplane.cluster import persistentstate
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.vm import datavolumes

logger = logging.getLogger(__name__)


class _Started(ApiStruct, kw_only=True):
    """What a revision keeps of a VM."""

    spec: VirtualMachineSpec


class _StartRevision(ApiStruct, kw_only=True):
    """The ControllerRevision of a VM's start."""

    data: _Started


def instance(cluster: Cluster, key: Key) -> VirtualMachineInstance | None:
    """The instance with the VM's name, whatever its owner. Raises UnfitDocument."""
    return cluster.vmis.get(*key)


def started_spec(cluster: Cluster, vmi: VirtualMachineInstance) -> VirtualMachineSpec | None:
    """The VM's spec when the instance was started, from its revision; None if that cannot be decoded."""
    name = vmi.status.virtual_machine_revision_name
    revision = cluster.revision(vmi.metadata.namespace, name) if name else None
    if revision is None:
        return None
    try:
        return decode(_StartRevision, revision).data.spec
    except UnfitDocument as error:
        logger.warning(
            "revision %s cannot be decoded, so changes since the VM's start are not detected: %s", name, error
        )
        return None


def used_names(vm: VirtualMachine) -> set[str]:
    """The names of the claims and DataVolumes of the VM's volumes and templates."""
    used = {claim_name(volume) for volume in vm.spec.instance.volumes}
    return (used | {datavolumes.name_of(template) for template in datavolumes.templates(vm)}) - {""}


def volumes(cluster: Cluster, vm: VirtualMachine) -> list[Volume]:
    """The VM's volumes, and the one of its state, if it keeps any."""
    if not persistentstate.is_needed(vm.spec.instance):
        return list(vm.spec.instance.volumes)
    return persistentstate.volumes_of(vm, cluster.claims_of(vm.metadata.namespace))


def claims(cluster: Cluster, namespace: str, names: Iterable[str]) -> dict[str, PersistentVolumeClaim]:
    """The existing ones of the claims, by name."""
    return _named(PersistentVolumeClaim, cluster.claims, namespace, names)


def data_volumes(cluster: Cluster, namespace: str, names: Iterable[str]) -> dict[str, DataVolume]:
    """The existing ones of the DataVolumes, by name."""
    informer = cluster.data_volumes
    return _named(DataVolume, informer, namespace, names) if informer else {}


def data_source(cluster: Cluster, key: Key) -> DataSource | None:
    """A DataSource. Raises UnfitDocument, because its source must be known to check access to it."""
    informer = cluster.optional(kinds.DATA_SOURCES)
    found = informer.get(*key) if informer else None
    return decode(DataSource, found) if found is not None else None


def storage_classes(cluster: Cluster) -> Iterator[StorageClass]:
    """All storage classes."""
    return readable(StorageClass, cluster.informer(resources.STORAGE_CLASSES).list())


def snapshot_classes(cluster: Cluster) -> Iterator[VolumeSnapshotClass]:
    """All VolumeSnapshotClasses; none if the cluster does not serve them."""
    informer = cluster.optional(kinds.VOLUME_SNAPSHOT_CLASSES)
    return readable(VolumeSnapshotClass, informer.list() if informer else ())


def _named(
    struct: type[Struct], informer: Informer, namespace: str, names: Iterable[str]
) -> dict[str, Struct]:
    result = {}
    for name in names:
        found: JsonObject | None = informer.get(namespace, name)
        try:
            if found is not None:
                result[name] = decode(struct, found)
        except UnfitDocument as error:
            logger.warning("an object is treated as absent, because it cannot be decoded: %s", error)
    return result
