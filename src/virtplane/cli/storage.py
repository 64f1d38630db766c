"""The storage of the embedded cluster: the hostpath provisioner on kindling's pool, with its classes."""

from __future__ import annotations

import time
from pathlib import Path

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_list
from kubecore.objects import meta
from kubecore.resources import STORAGE_CLASSES, ResourceType
from virtplane.api import storage_labels
from virtplane.api.resources import HOSTPATH_PROVISIONERS
from virtplane.cli.install import apply
from virtplane.cli.terminal import step

_POOL_FILE = "pool.img"
"""In the state directory where kindling has a pool; its nodes have it mounted below `_POOL`."""
_POOL = "/var/lib/storage"
_DRIVER = "kubevirt.io.hostpath-provisioner"
SHARED, LOCAL = "hostpath", "hostpath-local"
"""The class whose volumes every node reaches, and the one whose volumes stay on their node."""
_SNAPSHOT_CLASSES = ResourceType(
    "snapshot.storage.k8s.io", "v1", "volumesnapshotclasses", "VolumeSnapshotClass", namespaced=False
)


async def install(client: Client, state: Path, deadline: float) -> None:
    """Apply the provisioner and its classes where the cluster has a pool. Raises CommandError.

    Classes that exist stay as they are: which one is the default is the administrator's choice.
    """
    if not (state / _POOL_FILE).exists():
        return
    with step("Applying the storage pools"):
        has_default = any(
            meta.annotations(each).get(storage_labels.DEFAULT_CLASS) == "true"
            for each in get_list(await client.list(STORAGE_CLASSES), "items")
        )
        for name, pool, mode in ((SHARED, "shared", "Immediate"), (LOCAL, "local", "WaitForFirstConsumer")):
            is_default = name == SHARED and not has_default
            await _create(client, STORAGE_CLASSES, _storage_class(name, pool, mode, is_default), deadline)
            await _create(client, _SNAPSHOT_CLASSES, _snapshot_class(name, pool), deadline)
        # The operator makes the class of a shared pool itself unless it is there.
        if not get_list(await client.list(HOSTPATH_PROVISIONERS), "items"):
            await apply(client, _provisioner(), deadline)


async def _create(client: Client, resource: ResourceType, document: JsonObject, deadline: float) -> None:
    try:
        await client.get(resource, meta.name(document))
    except StatusError as error:
        if not is_not_found(error):
            raise
        # A kind that is being established is not found either; applying waits for it.
        await apply(client, document, deadline)


def deadline_in(seconds: float) -> float:
    """The moment until which to wait."""
    return time.monotonic() + seconds


def _provisioner() -> JsonObject:
    pools = [
        {"name": name, "path": f"{_POOL}/{name}", "snapshotProvider": "reflink"}
        for name in ("shared", "local")
    ]
    pools[0]["overlayClassName"] = SHARED
    return {
        "apiVersion": "hostpathprovisioner.kubevirt.io/v1beta1",
        "kind": "HostPathProvisioner",
        "metadata": {"name": "hostpath-provisioner"},
        "spec": {
            "imagePullPolicy": "IfNotPresent",
            "featureGates": ["Snapshotting"],
            "storagePools": pools,
            "workload": {"nodeSelector": {"kubernetes.io/os": "linux"}},
        },
    }


def _storage_class(name: str, pool: str, mode: str, is_default: bool) -> JsonObject:
    annotations = {storage_labels.DEFAULT_CLASS: "true"} if is_default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations},
        "provisioner": _DRIVER,
        "parameters": {"storagePool": pool, "volumeFormat": "image"}
        | ({"overlayCSI": "true"} if name == SHARED else {}),
        "reclaimPolicy": "Delete",
        "volumeBindingMode": mode,
        "allowVolumeExpansion": True,
    }


def _snapshot_class(name: str, pool: str) -> JsonObject:
    annotations = {storage_labels.DEFAULT_SNAPSHOT_CLASS: "true"} if name == SHARED else {}
    return {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotClass",
        "metadata": {"name": name, "annotations": annotations},
        "driver": _DRIVER,
        "parameters": {"storagePool": pool},
        "deletionPolicy": "Delete",
    }
