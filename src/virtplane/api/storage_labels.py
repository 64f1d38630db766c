"""Annotations, finalizers and labels of Kubernetes' storage, as controllers and CSI's sidecars name them."""

from __future__ import annotations

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
MIGRATED_TO = "pv.kubernetes.io/migrated-to"
STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
STORAGE_PROVISIONER_BETA = "volume.beta.kubernetes.io/storage-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
DELETION_SECRET_NAME = "volume.kubernetes.io/provisioner-deletion-secret-name"
DELETION_SECRET_NAMESPACE = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
MODIFY_SECRET_NAME = "volume.kubernetes.io/controller-modify-secret-name"
MODIFY_SECRET_NAMESPACE = "volume.kubernetes.io/controller-modify-secret-namespace"
STORAGE_CLASS_BETA = "volume.beta.kubernetes.io/storage-class"
PRE_RESIZE_CAPACITY = "volume.alpha.kubernetes.io/pre-resize-capacity"
NODE_EXPANSION_NOT_REQUIRED = "volume.kubernetes.io/node-expansion-not-required"
NODE_ID = "csi.alpha.kubernetes.io/node-id"

VOLUME_FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
"""On a volume whose storage is deleted with it."""
CLONING_PROTECTION = "provisioner.storage.kubernetes.io/cloning-protection"
RESTORING_PROTECTION = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
VOLUME_BEING_CREATED = "provisioner.virtplane.io/volume-being-created"
"""On a claim for which there may be storage that no volume stands for yet (decision 027)."""
ATTACHER_FINALIZER_PREFIX = "external-attacher/"

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
DEFAULT_VIRT_CLASS = "storageclass.kubevirt.io/is-default-virt-class"
"""The class for disks of virtual machines, where it is another than the cluster's default."""

CAPACITY_DRIVER = "csi.storage.k8s.io/drivername"
CAPACITY_MANAGED_BY = "csi.storage.k8s.io/managed-by"

_SNAPSHOT = "snapshot.storage.kubernetes.io/"
CONTENT_FINALIZER = _SNAPSHOT + "volumesnapshotcontent-bound-protection"
SNAPSHOT_BOUND_FINALIZER = _SNAPSHOT + "volumesnapshot-bound-protection"
SNAPSHOT_SOURCE_FINALIZER = _SNAPSHOT + "volumesnapshot-as-source-protection"
CLAIM_SOURCE_FINALIZER = _SNAPSHOT + "pvc-as-source-protection"
DEFAULT_SNAPSHOT_CLASS = _SNAPSHOT + "is-default-class"
SNAPSHOT_BEING_CREATED = _SNAPSHOT + "volumesnapshot-being-created"
SNAPSHOT_BEING_DELETED = _SNAPSHOT + "volumesnapshot-being-deleted"
SNAPSHOT_SECRET_NAME = _SNAPSHOT + "deletion-secret-name"
SNAPSHOT_SECRET_NAMESPACE = _SNAPSHOT + "deletion-secret-namespace"
SNAPSHOT_MANAGED_BY = _SNAPSHOT + "managed-by"
ALLOW_VOLUME_MODE_CHANGE = _SNAPSHOT + "allow-volume-mode-change"
GROUP_SNAPSHOT_HANDLE = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle"

FULL_POOL_PERCENT = 2
"""A storage pool of the hostpath driver of which less than this is left is full."""
