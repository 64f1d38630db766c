"""What is asked of the driver for a claim, and the volume that its answer becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubecore.json import JsonObject
from kubecore.objects.quantity import BINARY_SI, Quantity
from kubecore.objects.structs import encode
from kubecore.wire import Message
from kubecore.wire.csi import numbers, volume_capability
from virtplane.api import storage_labels as names
from virtplane.api.storage_kinds import PersistentVolumeClaim, SecretReference, StorageClass
from virtplane.storage.csi import parameters, topology
from virtplane.storage.csi.content_sources import requested_bytes
from virtplane.storage.csi.driver import Identity
from virtplane.storage.csi.parts import Problem

_IDENTITY_KEY = "storage.kubernetes.io/csiProvisionerIdentity"
_VOLUME_SECRETS = {
    "controllerPublishSecretRef": parameters.CONTROLLER_PUBLISH,
    "nodeStageSecretRef": parameters.NODE_STAGE,
    "nodePublishSecretRef": parameters.NODE_PUBLISH,
    "controllerExpandSecretRef": parameters.CONTROLLER_EXPAND,
    "nodeExpandSecretRef": parameters.NODE_EXPAND,
}


@dataclass(frozen=True, slots=True)
class Naming:
    """How volumes are named: `uuid_length` characters of the claim's uid, -1 for all of it as it is."""

    prefix: str = "pvc"
    uuid_length: int = -1

    def of(self, uid: str) -> str:
        """The name for the object `uid`."""
        if self.uuid_length < 0:
            return f"{self.prefix}-{uid}"
        return f"{self.prefix}-{uid.replace('-', '')[: self.uuid_length]}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A volume to be made: the request, and what the volume gets beside the driver's answer."""

    request: dict[str, Any]
    """Without secrets, content source and topology."""
    secret: SecretReference | None
    secrets: Mapping[str, SecretReference]
    """Secrets for later calls, by the field of the volume."""
    modify_secret: SecretReference | None
    fs_type: str

    @property
    def name(self) -> str:
        """The name of the volume, in the storage and in the cluster."""
        return str(self.request["name"])


def class_of(claim: PersistentVolumeClaim) -> str:
    """The class that a claim names, by annotation or field, as quotas see it."""
    return claim.metadata.annotations.get(names.STORAGE_CLASS_BETA, claim.spec.storage_class_name or "")


def provisioner_of(claim: PersistentVolumeClaim) -> str:
    """The driver that is to provide the claim's volume, as the cluster's volume controller says."""
    annotations = claim.metadata.annotations
    found = annotations.get(names.STORAGE_PROVISIONER)
    return annotations.get(names.STORAGE_PROVISIONER_BETA, "") if found is None else found


def check_driver(identity: Identity, *, restores: bool, clones: bool, has_attributes: bool) -> None:
    """Raises Problem where the driver cannot do what a claim needs."""
    dynamic = "CSI driver does not support dynamic provisioning: "
    if "CONTROLLER_SERVICE" not in identity.plugin:
        raise Problem(f"{dynamic}plugin CONTROLLER_SERVICE capability is not reported")
    needed = [(True, "CREATE_DELETE_VOLUME", dynamic)]
    needed.append((restores, "CREATE_DELETE_SNAPSHOT", "CSI driver does not support snapshot restore: "))
    needed.append((clones, "CLONE_VOLUME", "CSI driver does not support clone operations: "))
    needed.append((has_attributes, "MODIFY_VOLUME", "CSI driver does not support VolumeAttributesClass: "))
    for is_needed, capability, text in needed:
        if is_needed and capability not in identity.controller:
            raise Problem(f"{text}controller {capability} capability is not reported")


def wanted(
    claim: PersistentVolumeClaim,
    storage_class: StorageClass,
    identity: Identity,
    naming: Naming,
    *,
    default_fs_type: str,
    extra_metadata: bool,
) -> Wanted:
    """What is asked of the driver. Raises Problem."""
    if claim.spec.selector is not None:
        raise Problem("claim Selector is not supported")
    name, given = naming.of(claim.metadata.uid), storage_class.parameters
    fs_type = parameters.fs_type(given, default_fs_type)
    try:
        capabilities = [
            volume_capability(
                [mode],
                block=claim.block,
                fs_type=fs_type,
                mount_flags=storage_class.mount_options,
                tells_pods_apart=identity.tells_pods_apart,
            )
            for mode in claim.spec.access_modes
        ]
    except ValueError as error:
        raise Problem(str(error)) from error

    def secret(keys: parameters.SecretKeys) -> SecretReference | None:
        return secret_for(keys, given, name, claim)

    passed = parameters.for_driver(given, parameters.STORAGE_CLASS_KEYS, parameters.FS_TYPE)
    if extra_metadata:
        passed["csi.storage.k8s.io/pvc/name"] = claim.metadata.name
        passed["csi.storage.k8s.io/pvc/namespace"] = claim.metadata.namespace
        passed["csi.storage.k8s.io/pv/name"] = name
    limits = claim.spec.resources.limits if claim.spec.resources is not None else {}
    limit = Quantity.parse(limits.get("storage", 0)).value
    capacity = {"required_bytes": requested_bytes(claim), **({"limit_bytes": limit} if limit else {})}
    return Wanted(
        request={
            "name": name,
            "capacity_range": capacity,
            "volume_capabilities": capabilities,
            "parameters": passed,
        },
        secret=secret(parameters.PROVISIONER),
        secrets={
            field: found for field, keys in _VOLUME_SECRETS.items() if (found := secret(keys)) is not None
        },
        modify_secret=secret(parameters.CONTROLLER_MODIFY),
        fs_type=fs_type,
    )


def secret_for(
    keys: parameters.SecretKeys, given: Mapping[str, str], volume: str, claim: PersistentVolumeClaim
) -> SecretReference | None:
    """A secret of a storage class for one claim. Raises Problem."""
    namespaces = {"pv.name": volume, "pvc.namespace": claim.metadata.namespace}
    annotations = {f"pvc.annotations['{key}']": value for key, value in claim.metadata.annotations.items()}
    tokens = {**namespaces, "pvc.name": claim.metadata.name, **annotations}
    return parameters.secret_reference(keys, given, tokens, namespaces, has_default=True)


def check_answer(volume: Message, needed_bytes: int, *, has_source: bool) -> None:
    """Raises Problem where the driver made another volume than asked for; it must be deleted again."""
    if 0 < volume.capacity_bytes < needed_bytes:
        raise Problem(
            f"created volume capacity {volume.capacity_bytes} less than requested capacity {needed_bytes}"
        )
    if has_source and not volume.HasField("content_source"):
        raise Problem("volume content source missing")


def persistent_volume(
    claim: PersistentVolumeClaim,
    storage_class: StorageClass,
    identity: Identity,
    what: Wanted,
    volume: Message,
    *,
    provisioner_id: str,
    read_only_many: bool,
) -> JsonObject:
    """The volume that stands for what the driver made.

    `read_only_many`: volumes that many nodes may only read are published read-only.
    """
    capacity = volume.capacity_bytes or what.request["capacity_range"]["required_bytes"]
    spec: JsonObject = {
        "accessModes": list(claim.spec.access_modes),
        "capacity": {"storage": Quantity.of(capacity, BINARY_SI).canonical()},
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "name": claim.metadata.name,
            "namespace": claim.metadata.namespace,
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
        },
        "csi": {
            "driver": identity.name,
            "volumeAttributes": {_IDENTITY_KEY: provisioner_id, **dict(volume.volume_context)},
            **_csi_source(what, volume, block=claim.block, read_only_many=read_only_many),
        },
        "persistentVolumeReclaimPolicy": storage_class.reclaim_policy or "Delete",
        "storageClassName": class_of(claim),
    }
    if storage_class.mount_options:
        spec["mountOptions"] = list(storage_class.mount_options)
    if claim.spec.volume_mode:
        spec["volumeMode"] = claim.spec.volume_mode
    if claim.spec.volume_attributes_class_name:
        spec["volumeAttributesClassName"] = claim.spec.volume_attributes_class_name
    affinity = topology.node_affinity(volume.accessible_topology)
    if affinity is not None and has_topology(identity):
        spec["nodeAffinity"] = affinity
    annotations = {names.PROVISIONED_BY: storage_class.provisioner, **_secret_annotations(what)}
    metadata = {"name": what.name, "annotations": annotations, "finalizers": [names.VOLUME_FINALIZER]}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def _csi_source(what: Wanted, volume: Message, *, block: bool, read_only_many: bool) -> JsonObject:
    """How nodes get at the volume: members of the source ``csi``."""
    csi: JsonObject = {
        "volumeHandle": volume.volume_id,
        **{field: encode(reference) for field, reference in what.secrets.items()},
    }
    modes = [each["access_mode"]["mode"] for each in what.request["volume_capabilities"]]
    if read_only_many and modes == [numbers("VolumeCapability.AccessMode.Mode")["MULTI_NODE_READER_ONLY"]]:
        csi["readOnly"] = True
    if what.fs_type and not block:
        csi["fsType"] = what.fs_type
    return csi


def _secret_annotations(what: Wanted) -> dict[str, str]:
    """Where the secrets are found that are needed once the storage class is gone."""
    annotations = {
        names.DELETION_SECRET_NAME: what.secret.name if what.secret else "",
        names.DELETION_SECRET_NAMESPACE: what.secret.namespace if what.secret else "",
    }
    if what.modify_secret is not None:
        annotations[names.MODIFY_SECRET_NAME] = what.modify_secret.name
        annotations[names.MODIFY_SECRET_NAMESPACE] = what.modify_secret.namespace
    return annotations


def has_topology(identity: Identity) -> bool:
    """Whether the driver's volumes are not the same from everywhere."""
    return "VOLUME_ACCESSIBILITY_CONSTRAINTS" in identity.plugin
