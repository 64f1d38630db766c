"""The DataVolumes of a VM's dataVolumeTemplates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.structs import decode, encode
from virtplane.api import cdi_labels
from virtplane.api import labels as wellknown
from virtplane.api import resources as kinds
from virtplane.api.cdi_v1beta1.data_source import DataSource, DataSourceSource
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.cdi_v1beta1.data_volume_template import DataVolumeSourceRef, TemplateSource
from virtplane.api.kubevirt_v1.vm import DataVolumeTemplateSpec, VirtualMachine
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cluster.objects import described
from virtplane.compute.controller.vmi.storage import READY_PHASES

IMMEDIATE_ANNOTATION = wellknown.IMMEDIATE_DATA_VOLUMES
CREATED_BY_LABEL = wellknown.CREATED_BY


@dataclass(frozen=True, slots=True)
class CloneSource:
    """The source that a DataVolume clones; `kind` is ``pvc`` or ``snapshot``."""

    kind: str
    namespace: str
    name: str


def creates_immediately(vm: VirtualMachine) -> bool:
    """Whether DataVolumes are created at once instead of when the VM starts."""
    return vm.metadata.annotations.get(IMMEDIATE_ANNOTATION) != "false"


def templates(vm: VirtualMachine) -> list[DataVolumeTemplateSpec]:
    """The templates of the VM's DataVolumes."""
    return [template for template in vm.spec.data_volume_templates if template is not None]


def name_of(template: DataVolumeTemplateSpec) -> str:
    """The name of the DataVolume, and of the claim that it fills."""
    return decode(ObjectMeta, template.metadata or {}).name


def data_volume(
    vm: VirtualMachine, template: DataVolumeTemplateSpec, source: CloneSource | None = None
) -> JsonObject:
    """The DataVolume to create for a template, which clones `source` if any.

    It names no DataSource but the very source whose use was authorized, as in KubeVirt: a DataSource may lead
    elsewhere when CDI looks, and CDI asks about the rights of virt-controller, who may clone everything.
    """
    metadata = decode(ObjectMeta, template.metadata or {})
    spec = encode(template.spec)
    if source is not None and spec.pop("sourceRef", None) is not None:
        spec["source"] = {source.kind: {"namespace": source.namespace, "name": source.name}}
    return {
        "apiVersion": kinds.DATA_VOLUMES.api_version,
        "kind": "DataVolume",
        "metadata": {
            "name": metadata.name,
            "namespace": vm.metadata.namespace,
            "labels": {**metadata.labels, CREATED_BY_LABEL: vm.metadata.uid},
            "annotations": {cdi_labels.ALLOW_CLAIM_ADOPTION: "true", **metadata.annotations},
            "ownerReferences": [meta.new_controller_ref(described(vm), kinds.VIRTUAL_MACHINES)],
        },
        "spec": spec,
    }


def missing_templates(
    vm: VirtualMachine,
    data_volumes: Mapping[str, DataVolume],
    claims: Mapping[str, PersistentVolumeClaim],
) -> list[DataVolumeTemplateSpec]:
    """Templates without a DataVolume, and without a claim that an earlier DataVolume populated."""
    result = []
    for template in templates(vm):
        name = name_of(template)
        claim = claims.get(name)
        populated = claim.metadata.annotations.get(cdi_labels.POPULATED_FOR) if claim else None
        if name not in data_volumes and populated != name:
            result.append(template)
    return result


def are_ready(
    vm: VirtualMachine,
    data_volumes: Mapping[str, DataVolume],
    claims: Mapping[str, PersistentVolumeClaim],
) -> bool:
    """Whether all DataVolumes of the templates have succeeded, or wait for their first consumer."""
    for name in map(name_of, templates(vm)):
        found = data_volumes.get(name)
        if found is None:
            if name not in claims:
                return False
        elif found.status.phase not in READY_PHASES:
            return False
    return True


def source_reference(template: DataVolumeTemplateSpec, own: str) -> tuple[str, str] | None:
    """Namespace and name of the DataSource of a template, whose own namespace is `own`."""
    reference: DataVolumeSourceRef | None = template.spec.source_ref
    return (reference.namespace or own, reference.name) if reference else None


def clone_source(template: DataVolumeTemplateSpec, own: str) -> CloneSource | None:
    """What the DataVolume of a template clones that names it itself; None if nothing."""
    return _content(template.spec.source, own)


def referred_source(source: DataSource) -> CloneSource | None:
    """What the DataVolumes of a DataSource clone; None while it leads to nothing."""
    is_chained = source.spec.source.data_source is not None
    return _content(source.status.source if is_chained else source.spec.source, source.metadata.namespace)


def _content(source: TemplateSource | DataSourceSource | None, own: str) -> CloneSource | None:
    for kind, found in (("pvc", source.pvc), ("snapshot", source.snapshot)) if source else ():
        if found is not None:
            return CloneSource(kind, found.namespace or own, found.name)
    return None


def service_account(vm: VirtualMachine) -> str:
    """The service account for clones: that of the VM's first volume that names one."""
    for volume in vm.spec.instance.volumes:
        if volume.service_account is not None:
            return volume.service_account.service_account_name or ""
    return "default"
