"""What a cron makes: DataVolumes, the DataSource, snapshots."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects.quantity import Quantity
from virtplane.api import cdi_labels as names
from virtplane.api import resources
from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.storage.cdi.controller.crons import sources
from virtplane.storage.cdi.controller.crons.decisions import RETAIN_NONE, Import, Target, is_ready
from virtplane.storage.cdi.controller.crons.sources import Polling
from virtplane.storage.cdi.controller.labels import handed_on


@dataclass(frozen=True, slots=True)
class Maker:
    """The cron that makes something, and the labels that CDI gives to all that it makes."""

    cron: DataImportCron
    recommended: dict[str, str]

    @property
    def labels(self) -> dict[str, str]:
        """The labels of everything that the cron makes or takes over."""
        cron = self.cron
        made = {**self.recommended, **handed_on(cron.metadata.labels), names.CRON: cron.metadata.name}
        if cron.spec.retention_policy == RETAIN_NONE:
            made[names.CRON_CLEANUP] = "true"
        return made


def data_volume(maker: Maker, document: JsonObject, target: Target, digest: str, now: str) -> JsonObject:
    """The DataVolume that imports `digest`; `document` is the cron as its user wrote it.

    The metadata of templates is not kept by the API server.
    """
    cron = maker.cron
    spec = deep_copy(get_object(document, "spec", "template", "spec"))
    _name_digest(spec, cron, digest)
    _take_one_writer(spec, target)
    annotations = {names.IMMEDIATE_BINDING: "true", names.LAST_USE_TIME: now}
    if retain := cron.metadata.annotations.get(names.POD_RETAIN):
        annotations[names.POD_RETAIN] = retain
    return {
        "apiVersion": resources.DATA_VOLUMES.api_version,
        "kind": resources.DATA_VOLUMES.kind,
        "metadata": {
            "name": sources.import_name(cron, digest),
            "namespace": cron.metadata.namespace,
            "labels": maker.labels,
            "annotations": annotations,
        },
        "spec": spec,
    }


def _name_digest(spec: JsonObject, cron: DataImportCron, digest: str) -> None:
    """Have the spec name the very image, which a tag does not."""
    kind, registry = sources.polling(cron), get_object(spec, "source", "registry")
    if kind is Polling.STREAM:
        reference = cron.metadata.annotations.get(names.IMAGE_STREAM_DOCKER_REF, "")
        registry.pop("imageStream", None)
        registry["url"] = sources.url_of_image(reference)
    elif kind in (Polling.JOB, Polling.NODE):
        registry["url"] = sources.url_of_digest(get_str(registry, "url"), digest)


def _take_one_writer(spec: JsonObject, target: Target) -> None:
    """Ask for one writer where the profile says that more would be slow and nothing else is asked for."""
    profile = target.profile
    wanted = profile is not None and profile.metadata.annotations.get(names.USE_READ_WRITE_ONCE_FOR_CRON)
    storage = get_object(spec, "storage")
    if wanted == "true" and "storage" in spec and not storage.get("accessModes"):
        storage["accessModes"] = ["ReadWriteOnce"]


def data_source(maker: Maker, content: JsonObject) -> JsonObject:
    """The managed DataSource, as it is created."""
    return {
        "apiVersion": resources.DATA_SOURCES.api_version,
        "kind": resources.DATA_SOURCES.kind,
        "metadata": {
            "name": maker.cron.spec.managed_data_source,
            "namespace": maker.cron.metadata.namespace,
            "labels": maker.labels,
        },
        "spec": {"source": content},
    }


def content(name: str, namespace: str, found: Import, target: Target, before: JsonObject) -> JsonObject:
    """What the DataSource leads to, once the import `name` is done.

    It stays with the content it has until the snapshot of the new one is ready.
    """
    reference = {"name": name, "namespace": namespace}
    if not target.keeps_snapshots:
        return {"pvc": reference}
    if before and not is_ready(found.snapshot):
        return before
    return {"snapshot": reference}


def snapshot(maker: Maker, claim: PersistentVolumeClaim, snapshot_class: str, now: str) -> JsonObject:
    """The snapshot that keeps what `claim` has."""
    annotations = {names.LAST_USE_TIME: now}
    if size := advised_size(maker.cron, None, claim):
        annotations[names.ADVISED_RESTORE_SIZE] = size
    annotations[names.SOURCE_VOLUME_MODE] = claim.spec.volume_mode or "Filesystem"
    spec: JsonObject = {"source": {"persistentVolumeClaimName": claim.metadata.name}}
    if snapshot_class:
        spec["volumeSnapshotClassName"] = snapshot_class
    own = {"app": names.APP, names.COMPONENT: ""}
    return {
        "apiVersion": resources.VOLUME_SNAPSHOTS.api_version,
        "kind": resources.VOLUME_SNAPSHOTS.kind,
        "metadata": {
            "name": claim.metadata.name,
            "namespace": claim.metadata.namespace,
            "labels": {**handed_on(claim.metadata.labels), **own, **maker.labels},
            "annotations": annotations,
        },
        "spec": spec,
    }


def advised_size(
    cron: DataImportCron, kept: VolumeSnapshot | None, claim: PersistentVolumeClaim | None
) -> str:
    """How large claims made of a snapshot should be: what the template says, or what is restored at least."""
    template = cron.spec.template.spec
    asked = next((each.resources for each in (template.pvc, template.storage) if each is not None), None)
    size = asked.requests.get("storage") if asked is not None else None
    if size is None and claim is not None and claim.spec.resources is not None:
        size = claim.spec.resources.requests.get("storage")
    restored = kept.status.restore_size if kept is not None else None
    amounts = [Quantity.parse(each) for each in (size, restored) if each is not None]
    return str(max(amounts)) if amounts else ""
