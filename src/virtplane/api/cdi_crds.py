"""The definitions of CDI's kinds, as CDI 1.66 serves them (decision 031)."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api import resources
from virtplane.api.cdi_v1beta1.cdi import CDI as CDIKind
from virtplane.api.cdi_v1beta1.cdi_config import CDIConfig
from virtplane.api.cdi_v1beta1.data_import_cron import DataImportCron
from virtplane.api.cdi_v1beta1.data_source import DataSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.cdi_v1beta1.object_transfer import ObjectTransfer
from virtplane.api.cdi_v1beta1.storage_profile import StorageProfile
from virtplane.api.cdi_v1beta1.volume_sources import (
    VolumeCloneSource,
    VolumeImportSource,
    VolumeUploadSource,
)
from virtplane.api.crds import Column, Definition, Version, custom_resource_definition
from virtplane.api.forklift_v1beta1.populators import OpenstackVolumePopulator, OvirtVolumePopulator

_BETA = (Version("v1beta1", storage=True),)
_TRANSFERS_END = "cdi.kubevirt.io/v1beta1 ObjectTransfers is now deprecated and will be removed in v1."
_AGE = Column("Age", "date", ".metadata.creationTimestamp")
_PHASE = Column("Phase", "string", ".status.phase")

DEFINITIONS: tuple[Definition, ...] = (
    Definition(resources.CDI_CONFIGS, CDIConfig, _BETA, categories=(), status=False),
    Definition(
        resources.DATA_IMPORT_CRONS,
        DataImportCron,
        _BETA,
        ("dic", "dics"),
        (Column("Format", "string", ".status.sourceFormat", "The format in which imports are kept"),),
        status=False,
    ),
    Definition(resources.DATA_SOURCES, DataSource, _BETA, ("das",), status=False),
    Definition(
        resources.DATA_VOLUMES,
        DataVolume,
        _BETA,
        ("dv", "dvs"),
        (
            Column("Phase", "string", ".status.phase", "How far the content is"),
            Column("Progress", "string", ".status.progress", "The share of the content that has arrived"),
            Column("Restarts", "integer", ".status.restartCount", "How often the pod was started again"),
            _AGE,
        ),
    ),
    Definition(
        resources.OBJECT_TRANSFERS,
        ObjectTransfer,
        (Version("v1beta1", storage=True, deprecation=_TRANSFERS_END),),
        ("ot", "ots"),
        (_AGE, _PHASE),
        categories=(),
    ),
    Definition(resources.STORAGE_PROFILES, StorageProfile, _BETA, categories=()),
    Definition(resources.VOLUME_CLONE_SOURCES, VolumeCloneSource, _BETA, categories=(), status=False),
    Definition(resources.VOLUME_IMPORT_SOURCES, VolumeImportSource, _BETA, categories=(), status=False),
    Definition(resources.VOLUME_UPLOAD_SOURCES, VolumeUploadSource, _BETA, categories=(), status=False),
    Definition(
        resources.OPENSTACK_VOLUME_POPULATORS,
        OpenstackVolumePopulator,
        _BETA,
        ("osvp", "osvps"),
        categories=(),
        status=False,
    ),
    Definition(
        resources.OVIRT_VOLUME_POPULATORS,
        OvirtVolumePopulator,
        _BETA,
        ("ovvp", "ovvps"),
        categories=(),
        status=False,
    ),
)
"""Every kind that an installation of CDI defines."""

CDI = Definition(resources.CDIS, CDIKind, _BETA, ("cdi", "cdis"), (_AGE, _PHASE), categories=(), status=False)
"""What cdi-operator reconciles. It comes with that operator's manifests."""

_LABEL = "cdi.kubevirt.io"
_OPERATOR_LABEL = "operator.cdi.kubevirt.io"


def custom_resource_definitions() -> list[JsonObject]:
    """All definitions but that of the installation itself, ready to be applied."""
    return [_labelled(definition, _LABEL) for definition in DEFINITIONS]


def installation_definition() -> JsonObject:
    """The definition of CDI, for the manifests of cdi-operator."""
    return _labelled(CDI, _OPERATOR_LABEL)


def _labelled(definition: Definition, label: str) -> JsonObject:
    document = custom_resource_definition(definition)
    document["metadata"]["labels"] = {label: ""}
    if definition.resource is resources.DATA_IMPORT_CRONS:
        # Upstream's definition has the member, with nothing in it.
        document["spec"]["versions"][0]["subresources"] = {}
    return document
