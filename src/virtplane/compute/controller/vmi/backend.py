"""The claim for persistent state: firmware variables, TPM state and changed block tracking."""

from __future__ import annotations

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from kubecore.objects.structs import encode
from virtplane.api import cdi_labels, storage_labels
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster import persistentstate
from virtplane.cluster.caches import Cluster
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.launcherpod.metadata import unique_name
from virtplane.compute.launcherpod.render import owner_reference

_SIZE = "10Mi"


def choose_storage_class(configured: str, classes: list[JsonObject]) -> str:
    """The StorageClass for state claims: the configured one, else the default for VMs, else the cluster's."""
    if configured:
        return configured
    for annotation in (storage_labels.DEFAULT_VIRT_CLASS, storage_labels.DEFAULT_CLASS):
        for candidate in classes:
            if meta.annotations(candidate).get(annotation) == "true":
                return meta.name(candidate)
    return ""


def new_state_claim(vmi: VirtualMachineInstance, storage_class: str, access_mode: str) -> JsonObject:
    """The claim to create for an instance."""
    name, controller = vmi.metadata.name, vmi.metadata.controller
    owner = encode(controller) if controller is not None else owner_reference(name, vmi.metadata.uid)
    prefix = f"persistent-state-for-{name}-"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": unique_name(prefix, get_str(owner, "uid")),
            "generateName": prefix,
            "namespace": vmi.metadata.namespace,
            "labels": {persistentstate.STATE_LABEL: name, cdi_labels.APPLY_STORAGE_PROFILE: "true"},
            "ownerReferences": [owner],
        },
        "spec": {
            "accessModes": [access_mode],
            "resources": {"requests": {"storage": _SIZE}},
            "storageClassName": storage_class,
            "volumeMode": "Filesystem",
        },
    }


async def ensure_state_claim(cluster: Cluster, vmi: VirtualMachineInstance) -> str | SyncError:
    """The name of a usable state claim, which is created if it does not exist."""
    claim = persistentstate.claim_of(cluster.claims.list(vmi.metadata.namespace), vmi.metadata.name)
    classes = cluster.informer(resources.STORAGE_CLASSES)
    if claim is None:
        configured = cluster.settings().configuration.vm_state_storage_class or ""
        storage_class = choose_storage_class(configured, classes.list())
        if not storage_class:
            text = "no default storage class found and no storage class is set for backend storage"
            return SyncError("FailedBackendStorageCreate", text)
        mode = "ReadWriteMany" if configured else "ReadWriteOnce"
        wanted = new_state_claim(vmi, storage_class, mode)
        try:
            await cluster.client.create(resources.PERSISTENT_VOLUME_CLAIMS, wanted)
        except StatusError as error:
            if not is_already_exists(error):
                raise
            # Created before, but not in the cache yet.
        return SyncError("BackendStorageNotReady", "backend storage PVC not ready", retries=False)
    if is_usable(claim, classes.get(None, get_str(claim, "spec", "storageClassName"))):
        return meta.name(claim)
    return SyncError("BackendStorageNotReady", "backend storage PVC not ready", retries=False)


def is_usable(claim: JsonObject, storage_class: JsonObject | None) -> bool:
    """Whether a pod may use the claim: it is bound, or waits for its first consumer."""
    if get_str(claim, "status", "phase") == "Bound":
        return True
    return get_str(storage_class, "volumeBindingMode") == "WaitForFirstConsumer"
