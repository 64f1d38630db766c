"""What differs between the kinds of sources that claims may name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kubecore.resources import ResourceType
from virtplane.api import cdi_labels as names
from virtplane.api import resources
from virtplane.api.cdi_v1beta1.volume_sources import VolumeImportSource, VolumeUploadSource
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.storage.cdi.controller.sources import import_annotations
from virtplane.storage.cdi.controller.workers.checkpoints import Stages
from virtplane.storage.cdi.rendering import content_type


class HasSpec(Protocol):
    """A source."""

    @property
    def metadata(self) -> ObjectMeta: ...


Source = TypeVar("Source", bound=HasSpec)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Reasons and texts of the events on a target; the texts take its name."""

    failed: tuple[str, str]
    succeeded: tuple[str, str]


@dataclass(frozen=True, slots=True)
class SourceKind(Generic[Source]):
    """A kind of sources, and the controller for it.

    `annotations` of a source are those by which a prime claim is filled; the flag says whether volumes are
    preallocated by default. `stages` are those of a multi-stage import.
    """

    controller: str
    resource: ResourceType
    struct: type[Source]
    annotations: Callable[[Source, bool], dict[str, str]]
    stages: Callable[[Source], Stages]
    outcomes: Outcomes
    has_progress: bool


def _of_import(source: VolumeImportSource, preallocates: bool) -> dict[str, str]:
    spec = source.spec
    return {**_shared(spec.content_type, spec.preallocation, preallocates), **import_annotations(spec.source)}


def _of_upload(source: VolumeUploadSource, preallocates: bool) -> dict[str, str]:
    spec = source.spec
    return {**_shared(spec.content_type, spec.preallocation, preallocates), names.UPLOAD_TARGET: ""}


def _shared(content: str | None, preallocation: bool | None, preallocates: bool) -> dict[str, str]:
    wanted = preallocates if preallocation is None else preallocation
    return {
        names.CONTENT_TYPE: content_type(content),
        names.PREALLOCATION_REQUESTED: "true" if wanted else "false",
    }


IMPORT: SourceKind[VolumeImportSource] = SourceKind(
    controller="import-populator",
    resource=resources.VOLUME_IMPORT_SOURCES,
    struct=VolumeImportSource,
    annotations=_of_import,
    stages=lambda source: Stages(source.spec.checkpoints, bool(source.spec.final_checkpoint)),
    outcomes=Outcomes(
        ("importFailed", "import into {} failed"),
        ("importSucceeded", "Successfully imported into {}"),
    ),
    has_progress=True,
)
UPLOAD: SourceKind[VolumeUploadSource] = SourceKind(
    controller="upload-populator",
    resource=resources.VOLUME_UPLOAD_SOURCES,
    struct=VolumeUploadSource,
    annotations=_of_upload,
    stages=lambda _: Stages(),
    outcomes=Outcomes(
        ("UploadFailed", "Upload into {} failed"),
        ("UploadSucceeded", "Successfully uploaded into {}"),
    ),
    has_progress=False,
)
