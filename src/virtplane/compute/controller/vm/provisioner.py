"""Creates the DataVolumes of VMs, if the service account may clone their sources."""

from __future__ import annotations

from kubecore.errors import StatusError, is_already_exists
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import DataVolumeTemplateSpec, VirtualMachine
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import described
from virtplane.compute.controller.vm import datavolumes, reading
from virtplane.compute.controller.vm.datavolumes import CloneSource
from virtplane.compute.controller.vm.status import SyncError
from virtplane.serving.rights import Authorizer
from virtplane.storage.cdi.clone_rights import SourceKind, clone_refusal, service_account


class NoContent(Exception):
    """A DataSource is not there, or leads to nothing yet. The text says so."""


async def create_missing(cluster: Cluster, vm: VirtualMachine) -> SyncError | None:
    """Create the missing DataVolumes of the templates. Raises StatusError, UnfitDocument."""
    namespace, names, subject = vm.metadata.namespace, reading.used_names(vm), described(vm)
    claims = reading.claims(cluster, namespace, names)
    made = reading.data_volumes(cluster, namespace, names)
    for template in datavolumes.missing_templates(vm, made, claims):
        name = datavolumes.name_of(template)
        try:
            source = _source(cluster, vm, template)
        except NoContent as error:
            text = f"Error creating DataVolume {name}: {error}"
            cluster.recorder.event(subject, "Warning", "FailedDataVolumeCreate", text)
            return _error(f"failed to create DataVolume: {error}")
        refusal = await _refusal(cluster, vm, name, source) if source is not None else ""
        if refusal:
            text = f"Not authorized to create DataVolume {name}: {refusal}"
            cluster.recorder.event(subject, "Warning", "UnauthorizedDataVolumeCreate", text)
            return _error(f"not authorized to create DataVolume: {refusal}")
        try:
            await cluster.client.create(kinds.DATA_VOLUMES, datavolumes.data_volume(vm, template, source))
        except StatusError as error:
            if is_already_exists(error):
                continue
            text = f"Error creating DataVolume {name}: {error.message}"
            cluster.recorder.event(subject, "Warning", "FailedDataVolumeCreate", text)
            return _error(f"failed to create DataVolume: {error.message}")
        text = f"Created DataVolume {name}"
        cluster.recorder.event(subject, "Normal", "SuccessfulDataVolumeCreate", text)
    return None


def _error(text: str) -> SyncError:
    return SyncError("FailedCreate", f"Error encountered while creating DataVolumes: {text}")


def _source(cluster: Cluster, vm: VirtualMachine, template: DataVolumeTemplateSpec) -> CloneSource | None:
    """What the DataVolume of a template is to clone; None for nothing. Raises NoContent, UnfitDocument."""
    own = vm.metadata.namespace
    reference = datavolumes.source_reference(template, own)
    if reference is None:
        return datavolumes.clone_source(template, own)
    found = reading.data_source(cluster, reference)
    if found is None:
        raise NoContent(f'datasources.cdi.kubevirt.io "{reference[1]}" not found')
    source = datavolumes.referred_source(found)
    if source is None:
        # Whose rights would CDI ask about once there is one?
        raise NoContent(f"DataSource {reference[0]}/{reference[1]} leads to no claim and no snapshot")
    return source


async def _refusal(cluster: Cluster, vm: VirtualMachine, name: str, source: CloneSource) -> str:
    """Why the VM may not clone `source` into its DataVolume `name`; empty if it may."""
    own = vm.metadata.namespace
    if source.kind == "pvc" and cluster.claims.get(source.namespace, source.name) is None:
        text = f"Source PVC {source.name} not available: Target PVC {name} will remain unpopulated"
        event = "SourcePVCNotAvailabe"
        cluster.recorder.event(described(vm), "Warning", event, f"{text} until source is created")
    if source.namespace == own:
        return ""
    account = service_account(own, datavolumes.service_account(vm))
    kind, authorizer = SourceKind(source.kind), Authorizer(cluster.client)
    return await clone_refusal(authorizer, account, kind, source.namespace, source.name)
