"""/datavolume-validate."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kubecore import resources as core
from kubecore.objects.names import SUBDOMAIN_MAX
from kubecore.objects.quantity import Quantity
from kubecore.objects.structs import decode, encode
from virtplane.api import cdi_labels, cdi_names, resources
from virtplane.api.cdi_v1beta1.cdi_config import CDIConfig
from virtplane.api.cdi_v1beta1.data_volume import DataVolume, DataVolumeSpec
from virtplane.api.cdi_v1beta1.data_volume_template import DataVolumeSourceRef
from virtplane.api.markers import ApiStruct
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.serving.lookups import Lookups
from virtplane.serving.responses import DUPLICATE, Cause, Response
from virtplane.storage.cdi.apiserver.answers import long_name, refused, refused_update
from virtplane.storage.cdi.apiserver.claims_asked_for import claim_causes, external_causes, references
from virtplane.storage.cdi.apiserver.requests import CREATE, Request, Services
from virtplane.storage.cdi.apiserver.sources import content_type_causes, source_causes

ADOPTION_GATE = "DataVolumeClaimAdoption"
_TRUE = ("1", "t", "T", "TRUE", "true", "True")


async def validate(request: Request, services: Services) -> Response:
    """Whether a DataVolume may be created or changed. Raises Refused, StatusError, UnfitDocument."""
    request.expect(resources.DATA_VOLUMES.group, resources.DATA_VOLUMES.plural)
    wanted, before = request.read(DataVolume), request.before(DataVolume)
    if before is not None and not _may_become(before.spec, wanted.spec):
        return refused_update("DataVolume")
    causes = long_name(request.name, SUBDOMAIN_MAX)
    if not causes and request.operation == CREATE:
        causes = await _existing_claim(wanted, request.namespace, services.lookups)
    causes = causes or spec_causes(wanted.spec, "spec")
    return refused(causes) if causes else Response.allow()


def spec_causes(spec: DataVolumeSpec, path: str) -> list[Cause]:
    """What is wrong with the spec of a DataVolume at `path`, in CDI's order."""
    causes = claim_causes(spec, path)
    if causes:
        return causes
    if any(reference is not None for reference in references(spec)):
        return external_causes(spec, path)
    if (spec.source is None) == (spec.source_ref is None):
        text = "Data volume should have either Source or SourceRef, or be externally populated"
        return [Cause(text, f"{path}.source")]
    if spec.source_ref is not None:
        return _source_ref_causes(spec.source_ref, f"{path}.sourceRef")
    content_type = spec.content_type or ""
    return content_type_causes(content_type, path) or source_causes(
        spec.source, "Data volume", content_type, path
    )


def _source_ref_causes(reference: DataVolumeSourceRef, field: str) -> list[Cause]:
    if not reference.kind:
        return [Cause("Missing sourceRef kind", f"{field}.Kind")]
    if reference.kind != "DataSource":
        text = f"Unsupported sourceRef kind {reference.kind}, currently only DataSource is supported"
        return [Cause(text, f"{field}.Kind")]
    if not reference.name:
        return [Cause("Missing sourceRef name", f"{field}.Name")]
    return []


def _may_become(before: DataVolumeSpec, wanted: DataVolumeSpec) -> bool:
    """Whether a spec may change so: stages are added to a multi-stage import, all else must stay."""
    source = wanted.source
    is_staged = source is not None and (source.vddk is not None or source.imageio is not None)
    if is_staged and wanted.checkpoints:
        before = replace(before, checkpoints=(), final_checkpoint=None)
        wanted = replace(wanted, checkpoints=(), final_checkpoint=None)
    return is_same(before, wanted)


def is_same(before: ApiStruct, wanted: ApiStruct) -> bool:
    """Whether two specs mean the same, however their amounts are written."""
    return bool(_comparable(encode(before)) == _comparable(encode(wanted)))


def _comparable(value: Any) -> Any:
    if isinstance(value, list):
        return [_comparable(member) for member in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _amounts(member) if key in ("requests", "limits") else _comparable(member)
        for key, member in value.items()
        if member or key != "resources"  # CDI writes it where nothing is asked for, too
    }


def _amounts(value: dict[str, str | int]) -> dict[str, Quantity]:
    return {name: Quantity.parse(amount) for name, amount in value.items()}


async def _existing_claim(data_volume: DataVolume, namespace: str, lookups: Lookups) -> list[Cause]:
    """The cause against a DataVolume whose claim is somebody else's."""
    found = await lookups.get(core.PERSISTENT_VOLUME_CLAIMS, data_volume.metadata.name, namespace)
    if found is None:
        return []
    claim = decode(PersistentVolumeClaim, found)
    config = await lookups.get(resources.CDI_CONFIGS, cdi_names.CONFIG)
    if may_take_over(data_volume, claim, decode(CDIConfig, config or {})):
        return []
    owner = claim.metadata.controller
    if owner is not None and owner.kind == "DataVolume":
        return []
    text = f"Destination PVC {namespace}/{claim.metadata.name} already exists"
    return [Cause(text, "DataVolume.Name", DUPLICATE)]


def may_take_over(data_volume: DataVolume, claim: PersistentVolumeClaim, config: CDIConfig) -> bool:
    """Whether the claim may exist before its DataVolume: it was filled for it, or may be adopted."""
    marks, wishes = claim.metadata.annotations, data_volume.metadata.annotations
    if marks.get(cdi_labels.POPULATED_FOR) == data_volume.metadata.name:
        return True
    made_for = marks.get(cdi_labels.CREATED_FOR_DATA_VOLUME)
    if made_for is not None and made_for == data_volume.metadata.uid:
        return False
    allowed = wishes.get(cdi_labels.ALLOW_CLAIM_ADOPTION)
    if allowed is not None:
        return allowed in _TRUE
    return ADOPTION_GATE in config.spec.feature_gates
