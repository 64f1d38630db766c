"""What differs between the ways in which DataVolumes are filled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from kubecore.resources import ResourceType
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names, resources
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.storage.cdi.controller.clones.sources import Source
from virtplane.storage.cdi.controller.sources import import_annotations


@dataclass(frozen=True, slots=True)
class Texts:
    """Reasons and messages of the events on a DataVolume; the messages take the claim's name.

    Those of clones take source and claim.
    """

    scheduled: tuple[str, str]
    running: tuple[str, str]
    failed: tuple[str, str]
    succeeded: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Flow:
    """One way, and its controller.

    `annotations` are those by which a claim is filled without populator, `source` the object that it names
    with one, and `source_spec` its spec. `marker` is the annotation of the claim that is filled which says
    that its worker is on its way. Phases are those before and while the worker works.
    """

    controller: str
    annotations: Callable[[DataVolume], dict[str, str]] = lambda _: {}
    source: ResourceType | None = None
    source_name: Callable[[str], str] = str
    source_spec: Callable[[DataVolume, bool], JsonObject] = lambda _, __: {}
    marker: str = ""
    scheduled_phase: str = ""
    running_phase: str = ""
    texts: Texts | None = None
    """None where nobody of CDI fills the claim."""
    waits_for_readiness: bool = False
    has_progress: bool = False
    is_clone: bool = False


def _import_source(volume: DataVolume, preallocates: bool) -> JsonObject:
    """The spec of a VolumeImportSource."""
    spec = volume.spec
    found: JsonObject = {
        "source": encode(spec.source) if spec.source is not None else {},
        "preallocation": preallocation(volume, preallocates),
    }
    if spec.content_type:
        found["contentType"] = spec.content_type
    if spec.checkpoints:
        found["checkpoints"] = [encode(each) for each in spec.checkpoints]
        found["targetClaim"] = volume.metadata.name
    if spec.final_checkpoint:
        found["finalCheckpoint"] = True
    return found


def _upload_source(volume: DataVolume, preallocates: bool) -> JsonObject:
    """The spec of a VolumeUploadSource."""
    found: JsonObject = {"preallocation": preallocation(volume, preallocates)}
    return found | ({"contentType": volume.spec.content_type} if volume.spec.content_type else {})


def preallocation(volume: DataVolume, preallocates: bool) -> bool:
    """Whether the volume is preallocated; `preallocates` counts where its user says nothing."""
    wanted = volume.spec.preallocation
    return preallocates if wanted is None else wanted


IMPORT = Flow(
    controller="datavolume-import-controller",
    annotations=lambda volume: import_annotations(volume.spec.source),
    source=resources.VOLUME_IMPORT_SOURCES,
    source_name=cdi_names.import_source,
    source_spec=_import_source,
    marker=names.IMPORT_POD,
    scheduled_phase="ImportScheduled",
    running_phase="ImportInProgress",
    texts=Texts(
        scheduled=("ImportScheduled", "Import into {} scheduled"),
        running=("ImportInProgress", "Import into {} in progress"),
        failed=("ImportFailed", "Failed to import into PVC {}"),
        succeeded=("ImportSucceeded", "Successfully imported into PVC {}"),
    ),
    has_progress=True,
)
UPLOAD = Flow(
    controller="datavolume-upload-controller",
    annotations=lambda _: {names.UPLOAD_TARGET: ""},
    source=resources.VOLUME_UPLOAD_SOURCES,
    source_name=cdi_names.upload_source,
    source_spec=_upload_source,
    marker=names.UPLOAD_TARGET,
    scheduled_phase="UploadScheduled",
    running_phase="UploadReady",
    texts=Texts(
        scheduled=("UploadScheduled", "Upload into {} scheduled"),
        running=("UploadReady", "Upload into {} ready"),
        failed=("UploadFailed", "Upload into {} failed"),
        succeeded=("UploadSucceeded", "Successfully uploaded into {}"),
    ),
    waits_for_readiness=True,
)
EXTERNAL = Flow(
    controller="datavolume-external-population-controller",
    annotations=lambda _: {names.EXTERNAL_POPULATION: "true"},
)


_CLONE_TEXTS = Texts(
    scheduled=("CloneScheduled", "Cloning from {} scheduled"),
    running=("CloneInProgress", "Cloning from {} in progress"),
    failed=("CloneFailed", "Cloning from {} failed"),
    succeeded=("CloneSucceeded", "Successfully cloned from {}"),
)


def _clone(controller: str) -> Flow:
    return Flow(
        controller=controller,
        source=resources.VOLUME_CLONE_SOURCES,
        source_name=cdi_names.clone_source,
        marker=names.CLONE_REQUEST,
        scheduled_phase="CloneScheduled",
        running_phase="CloneInProgress",
        texts=_CLONE_TEXTS,
        has_progress=True,
        is_clone=True,
    )


CLAIM_CLONE = _clone("datavolume-pvc-clone-controller")
SNAPSHOT_CLONE = _clone("datavolume-snapshot-clone-controller")


def flow_of(volume: DataVolume, clone: Source | None = None) -> Flow | None:
    """The flow of a DataVolume; `clone` is what it is a clone of. None for what says no source."""
    spec = volume.spec
    source = spec.source
    if clone is not None:
        return CLAIM_CLONE if clone.is_claim else SNAPSHOT_CLONE
    if spec.source_ref is not None:
        return None
    if source is None:
        asked = spec.pvc or spec.storage
        is_external = asked is not None and (asked.data_source or asked.data_source_ref) is not None
        return EXTERNAL if is_external else None
    if source.upload is not None:
        return UPLOAD
    imported = (
        source.http,
        source.s3,
        source.gcs,
        source.registry,
        source.blank,
        source.imageio,
        source.vddk,
    )
    return IMPORT if any(each is not None for each in imported) else None
