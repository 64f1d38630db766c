"""Every finalizer that a component sets, or that Kubernetes sets on what they make: who takes it off, what it
waits for, and how long.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from virtplane.api import cdi_labels, labels, storage_labels
from virtplane.deletions import disks, installations, machines
from virtplane.deletions.reading import Situation
from virtplane.deletions.waits import Wait

Rule = Callable[[Situation], Awaitable[Wait | None]]

LEGACY_INSTANCE_FINALIZER = "foregroundDeleteVirtualMachine"
"""On instances that a KubeVirt of old made."""
HOSTPATH_FINALIZER = "finalizer.delete.hostpath-provisioner"
_CONTROLLER, _CDI, _CSI = "virt-controller", "cdi-deployment", "virtplane csi (the driver's sidecar)"
_SNAPSHOTS, _CLUSTER = "the snapshot controller", "kube-controller-manager"


@dataclass(frozen=True, slots=True)
class Holder:
    """A finalizer's component, and its rule."""

    component: str
    """Who takes it off."""
    waits_for: str
    """What must be so before, for the documentation."""
    unbounded: str = ""
    """Why no deadline ends the wait; empty where clean-up that fails is given up at the deadline."""
    rule: Rule | None = None
    """What it waits for now; None where that is its component alone."""


_TWICE = "the guest may run, and would write to its disks from two places"
_LOST = "storage would be left over that no object names"

HOLDERS: Mapping[str, Holder] = {
    labels.FINALIZER_INSTANCE: Holder(
        _CONTROLLER, "all pods of the instance are gone", _TWICE, machines.of_instance
    ),
    LEGACY_INSTANCE_FINALIZER: Holder(
        _CONTROLLER, "all pods of the instance are gone", _TWICE, machines.of_instance
    ),
    labels.FINALIZER_MACHINE: Holder(
        _CONTROLLER, "the machine's instance is gone", _TWICE, machines.of_machine
    ),
    labels.FINALIZER_SNAPSHOT_SOURCE: Holder(
        _CONTROLLER,
        "the snapshot that is being taken of the machine has ended",
        "the snapshot's `failureDeadline` (five minutes, unless it says otherwise) ends it",
        machines.of_snapshot_source,
    ),
    labels.FINALIZER_POOL: Holder(_CONTROLLER, "the pool has let its machines go"),
    labels.FINALIZER_MIGRATION: Holder(
        _CONTROLLER,
        "the target pod of a failed migration is gone",
        "the guest could run on both nodes",
        machines.of_migration,
    ),
    labels.FINALIZER_SNAPSHOT: Holder(
        _CONTROLLER,
        "the machine is unlocked (10 minutes at the most) and the content deleted (no deadline: its disks"
        " would be left over)",
        rule=machines.of_vm_snapshot,
    ),
    labels.FINALIZER_SNAPSHOT_CONTENT: Holder(
        _CONTROLLER, "its snapshot is deleted, too", "the snapshot would lose its disks", machines.of_content
    ),
    labels.FINALIZER_RESTORE: Holder(_CONTROLLER, "the machine is unlocked"),
    labels.FINALIZER_KUBEVIRT: Holder(
        "virt-operator",
        "no machine, instance, pool, replica set or migration is left",
        "guests would be left without what ends them",
        installations.of_kubevirt,
    ),
    cdi_labels.DATA_VOLUME_FINALIZER: Holder(_CDI, "what was made for a clone is removed"),
    cdi_labels.CLONE_POPULATOR_FINALIZER: Holder(_CDI, "what was made for a clone is removed"),
    cdi_labels.CLONE_SOURCE_FINALIZER: Holder(_CDI, "the pod that reads the source is removed"),
    cdi_labels.IMPORT_IMAGE_STREAM_FINALIZER: Holder(
        _CDI, "the importer's pod is gone", "the pod may write to the volume", disks.of_used_claim
    ),
    cdi_labels.OBJECT_TRANSFER_FINALIZER: Holder(
        _CDI, "the volume has its claim again", "a volume would be left without a claim"
    ),
    cdi_labels.OPERATOR_FINALIZER: Holder(
        "cdi-operator",
        "no DataVolume, DataImportCron, DataSource or transfer is left",
        "they would be left without what removes their finalizers",
        installations.of_cdi,
    ),
    HOSTPATH_FINALIZER: Holder(
        "hostpath-provisioner-operator",
        "pools on claims are unmounted on every node",
        "a pool would stay mounted, and could be written to, where nobody looks after it",
    ),
    storage_labels.VOLUME_FINALIZER: Holder(
        _CSI, "the driver has deleted the storage", _LOST, disks.of_storage
    ),
    storage_labels.VOLUME_BEING_CREATED: Holder(
        _CSI, "the driver has said whether it made a volume", _LOST, disks.of_created_storage
    ),
    storage_labels.CLONING_PROTECTION: Holder(
        _CSI, "no claim is being copied from it", "the copy would be incomplete", disks.of_copied_claim
    ),
    storage_labels.RESTORING_PROTECTION: Holder(
        _CSI, "no claim is being restored from it", "the copy would be incomplete", disks.of_restored_snapshot
    ),
    storage_labels.ATTACHER_FINALIZER_PREFIX: Holder(
        _CSI, "the volume is detached", "the node may still write to it", disks.of_attachment
    ),
    storage_labels.CONTENT_FINALIZER: Holder(
        _CSI, "the driver has deleted the snapshot", _LOST, disks.of_snapshot_content
    ),
    storage_labels.GROUP_CONTENT_FINALIZER: Holder(_CSI, "the driver has deleted the snapshots", _LOST),
    storage_labels.SNAPSHOT_BOUND_FINALIZER: Holder(
        _SNAPSHOTS, "its content is gone", _LOST, disks.of_snapshot
    ),
    storage_labels.GROUP_BOUND_FINALIZER: Holder(_SNAPSHOTS, "its content is gone", _LOST),
    storage_labels.SNAPSHOT_SOURCE_FINALIZER: Holder(
        _SNAPSHOTS,
        "no claim is being restored from it",
        "the copy would be incomplete",
        disks.of_restored_snapshot,
    ),
    storage_labels.SNAPSHOT_IN_GROUP_FINALIZER: Holder(
        _SNAPSHOTS, "its group is deleted", "the group would be incomplete"
    ),
    storage_labels.CLAIM_SOURCE_FINALIZER: Holder(
        _SNAPSHOTS,
        "no snapshot is being taken of it",
        "the snapshot would be incomplete",
        disks.of_snapshotted_claim,
    ),
    "kubernetes.io/pvc-protection": Holder(
        _CLUSTER, "no pod uses the claim", "the guest may write to it", disks.of_used_claim
    ),
    "kubernetes.io/pv-protection": Holder(
        _CLUSTER, "no claim is bound to the volume", "the claim would lose its data", disks.of_bound_volume
    ),
    "foregroundDeletion": Holder(
        _CLUSTER,
        "what the object owns is gone",
        "who deleted it asked for that (`--cascade=foreground`)",
    ),
    "orphan": Holder(_CLUSTER, "what the object owns has no owner any more", "who deleted it asked for that"),
}
"""By finalizer; that of attachers begins with its key."""


def holder_of(finalizer: str) -> Holder | None:
    """The row of a finalizer; None where no component sets it."""
    if finalizer.startswith(storage_labels.ATTACHER_FINALIZER_PREFIX):
        return HOLDERS[storage_labels.ATTACHER_FINALIZER_PREFIX]
    return HOLDERS.get(finalizer)
