"""/populator-validate: VolumeImportSources and VolumeUploadSources."""

from __future__ import annotations

from msgspec.structs import replace

from kubecore.objects.names import LABEL_MAX
from virtplane.api import resources
from virtplane.api.cdi_v1beta1.volume_sources import (
    VolumeImportSource,
    VolumeImportSourceSpec,
    VolumeUploadSource,
)
from virtplane.serving.responses import Cause, Response
from virtplane.storage.cdi.apiserver.answers import long_name, refused, refused_update
from virtplane.storage.cdi.apiserver.data_volumes import is_same
from virtplane.storage.cdi.apiserver.requests import Request, Services
from virtplane.storage.cdi.apiserver.sources import content_type_causes, source_causes

_IMPORTS, _UPLOADS = resources.VOLUME_IMPORT_SOURCES, resources.VOLUME_UPLOAD_SOURCES


async def validate(request: Request, services: Services) -> Response:
    """Whether a source may be created or changed. Raises Refused, UnfitDocument."""
    request.expect(_IMPORTS.group, _IMPORTS.plural, _UPLOADS.plural)
    is_upload = request.raw["resource"]["resource"] == _UPLOADS.plural
    return _upload(request) if is_upload else _import(request)


def _upload(request: Request) -> Response:
    wanted, before = request.read(VolumeUploadSource), request.before(VolumeUploadSource)
    if before is not None and not is_same(before.spec, wanted.spec):
        return refused_update("VolumeUploadSource")
    causes = long_name(request.name, LABEL_MAX)
    causes = causes or content_type_causes(wanted.spec.content_type or "", "spec")
    return refused(causes) if causes else Response.allow()


def _import(request: Request) -> Response:
    wanted, before = request.read(VolumeImportSource), request.before(VolumeImportSource)
    if before is not None and not _may_become(before.spec, wanted.spec):
        return refused_update("VolumeImportSource")
    causes = long_name(request.name, LABEL_MAX) or _import_causes(wanted.spec)
    return refused(causes) if causes else Response.allow()


def _import_causes(spec: VolumeImportSourceSpec) -> list[Cause]:
    content_type = spec.content_type or ""
    causes = content_type_causes(content_type, "spec")
    if causes:
        return causes
    if _is_staged(spec) and not spec.target_claim:
        text = "Unable to do multi-stage import without specifying a target claim"
        return [Cause(text, "spec.targetClaim")]
    return source_causes(spec.source, "VolumeImport", content_type, "spec")


def _may_become(before: VolumeImportSourceSpec, wanted: VolumeImportSourceSpec) -> bool:
    if _is_staged(wanted):
        before = replace(before, checkpoints=(), final_checkpoint=None)
        wanted = replace(wanted, checkpoints=(), final_checkpoint=None)
    return is_same(before, wanted)


def _is_staged(spec: VolumeImportSourceSpec) -> bool:
    source = spec.source
    return source is not None and bool(spec.checkpoints) and bool(source.vddk or source.imageio)
