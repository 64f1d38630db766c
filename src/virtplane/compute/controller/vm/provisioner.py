"""Creates the DataVolumes of VMs, if the service account may clone their sources."""

from __future__ import annotations

from kubecore.errors import StatusError, is_already_exists
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vm import DataVolumeTemplateSpec, VirtualMachine
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import described
from virtplane.compute.controller.vm import datavolumes, reading
from virtplane.compute.controller.vm.status import SyncError
from virtplane.serving.rights import Authorizer
from virtplane.storage.cdi.clone_rights import SourceKind, clone_refusal, service_account


async def create_missing(cluster: Cluster, vm: VirtualMachine) -> SyncError | None:
    """Create the missing DataVolumes of the templates. Raises StatusError, UnfitDocument."""
    namespace, names, subject = vm.metadata.namespace, reading.used_names(vm), described(vm)
    claims = reading.claims(cluster, namespace, names)
    made = reading.data_volumes(cluster, namespace, names)
    for template in datavolumes.missing_templates(vm, made, claims):
        refusal = await _refusal(cluster, vm, template)
        name = datavolumes.name_of(template)
        if refusal:
            text = f"Not authorized to create DataVolume {name}: {refusal}"
            cluster.recorder.event(subject, "Warning", "UnauthorizedDataVolumeCreate", text)
            return _error(f"not authorized to create DataVolume: {refusal}")
        try:
            await cluster.client.create(kinds.DATA_VOLUMES, datavolumes.data_volume(vm, template))
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


async def _refusal(cluster: Cluster, vm: VirtualMachine, template: DataVolumeTemplateSpec) -> str:
    """Why the VM may not clone the source of a template; empty if it may or clones nothing."""
    own = vm.metadata.namespace
    reference = datavolumes.source_reference(template, own)
    referred = reading.data_source(cluster, reference) if reference else None
    source = datavolumes.clone_source(template, referred, own)
    if source is None:
        return ""
    if source.kind == "pvc" and cluster.claims.get(source.namespace, source.name) is None:
        name = datavolumes.name_of(template)
        text = f"Source PVC {source.name} not available: Target PVC {name} will remain unpopulated"
        event = "SourcePVCNotAvailabe"
        cluster.recorder.event(described(vm), "Warning", event, f"{text} until source is created")
    if source.namespace == own:
        return ""
    account = service_account(own, datavolumes.service_account(vm))
    kind, authorizer = SourceKind(source.kind), Authorizer(cluster.client)
    return await clone_refusal(authorizer, account, kind, source.namespace, source.name)
