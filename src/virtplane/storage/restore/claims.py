"""The claims of a restored machine: room is made for them, they are filled, and they get their owner."""

from __future__ import annotations

from collections.abc import Iterable

from kubecore import resources
from kubecore.errors import StatusError, is_already_exists, is_conflict, is_not_found
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.objects.structs import decode, encode, readable
from virtplane.api import cdi_labels
from virtplane.api import labels as wellknown
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.volumes import claim_name
from virtplane.api.meta_v1 import ObjectMeta, OwnerReference
from virtplane.api.snapshot_v1beta1.restore import VirtualMachineRestore
from virtplane.api.snapshot_v1beta1.snapshot import VirtualMachineSnapshotContent
from virtplane.api.storage_kinds import PersistentVolumeClaim, StorageClass
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import owners_patch, patch
from virtplane.storage.restore import decisions
from virtplane.storage.restore.decisions import RestoredVolume
from virtplane.storage.restore.outcomes import Errs, Waits
from virtplane.storage.snapshot.documents import HeldMachine

_CREATING = "Creating new PVCs"


async def make_room(
    cluster: Cluster, restore: VirtualMachineRestore, items: list[RestoredVolume], status: JsonObject
) -> None:
    """Delete the claims that are restored in place. Raises Waits until they are gone, Errs, StatusError.

    Which DataVolumes have them is written into `status` first, since nothing else tells it afterwards.
    """
    namespace = restore.metadata.namespace
    before = decisions.replaced_claims(restore, items, cluster.claims_of(namespace))
    if not before:
        return
    _refuse_loss(cluster, namespace, items, before)
    status["restores"] = decisions.restores_of(decisions.with_data_volumes(items, before))
    if [encode(each) for each in restore.status.restores] != status["restores"]:
        raise Waits(_CREATING)
    for item in items:
        claim = before.get(item.claim)
        if claim is None or meta.is_being_deleted(claim):
            continue
        if item.data_volume:
            await _keep_empty(cluster, restore, item.data_volume)
        await _delete(cluster, claim)
    raise Waits(_CREATING)


def _refuse_loss(
    cluster: Cluster, namespace: str, items: Iterable[RestoredVolume], before: dict[str, JsonObject]
) -> None:
    """Raise Errs if a claim would be deleted that a guest uses, or that nothing could be restored to."""
    for item in items:
        if item.claim in before:
            _source(cluster, namespace, item)
    for vmi in cluster.vmis.list(namespace):
        used = next((each for each in map(claim_name, vmi.spec.volumes) if each in before), None)
        if used is not None:
            user = f"VirtualMachineInstance {namespace}/{vmi.metadata.name}"
            raise Errs(f"PVC {namespace}/{used} cannot be restored in place while {user} uses it")


def _source(cluster: Cluster, namespace: str, item: RestoredVolume) -> VolumeSnapshot:
    """The VolumeSnapshot of which a claim is to be made. Raises Errs, UnfitDocument."""
    informer = cluster.optional(kinds.VOLUME_SNAPSHOTS)
    found = informer.get(namespace, item.volume_snapshot) if informer else None
    if found is None or meta.is_being_deleted(found):
        raise Errs(f"missing volumeSnapshot {item.volume_snapshot}")
    return decode(VolumeSnapshot, found)


async def _keep_empty(cluster: Cluster, restore: VirtualMachineRestore, name: str) -> None:
    """Have the DataVolume wait for the restored claim instead of making one anew. Raises StatusError."""
    known = cluster.data_volumes_of(restore.metadata.namespace).get(name)
    wanted = {wellknown.RESTORE_NAME: restore.metadata.name, cdi_labels.PRE_POPULATED: name}
    if known is None or wanted.items() <= meta.annotations(known).items():
        return
    change = {"metadata": {"uid": meta.uid(known), "annotations": wanted}}
    await cluster.client.patch(kinds.DATA_VOLUMES, name, change, restore.metadata.namespace, type="merge")


async def _delete(cluster: Cluster, claim: JsonObject) -> None:
    kind = resources.PERSISTENT_VOLUME_CLAIMS
    try:
        await cluster.client.delete(kind, meta.name(claim), meta.namespace(claim), uid=meta.uid(claim))
    except StatusError as error:
        if not is_not_found(error) and not is_conflict(error):  # gone, and not in the cache yet
            raise


async def create(
    cluster: Cluster,
    restore: VirtualMachineRestore,
    content: VirtualMachineSnapshotContent,
    items: list[RestoredVolume],
) -> None:
    """Create the missing claims. Raises Waits until all can be used, Errs, StatusError, UnfitDocument."""
    namespace, source = restore.metadata.namespace, content.spec.source.virtual_machine.metadata.name
    claims = cluster.claims_of(namespace)
    for item in items:
        found = claims.get(item.claim)
        if found is not None and meta.annotations(found).get(wellknown.RESTORE_NAME) != restore.metadata.name:
            # It would become a disk of the machine, and go with it.
            raise Errs(f"PVC {namespace}/{item.claim} already exists and is not of this restore")
    missing = [item for item in items if item.claim not in claims]
    for item in missing:
        snapshot = _source(cluster, namespace, item)
        document = decisions.new_claim(restore, source, item, snapshot)
        try:
            await cluster.client.create(resources.PERSISTENT_VOLUME_CLAIMS, document)
        except StatusError as error:
            if not is_already_exists(error):
                raise
    if missing:
        raise Waits(_CREATING)
    restored = {item.claim: decode(PersistentVolumeClaim, claims[item.claim]) for item in items}
    if not decisions.are_bound(items, restored, _late_classes(cluster)):
        raise Waits("Waiting for new PVCs")


def _late_classes(cluster: Cluster) -> frozenset[str]:
    """The storage classes with volumeBindingMode WaitForFirstConsumer."""
    classes = cluster.informer(resources.STORAGE_CLASSES).list()
    return frozenset(
        item.metadata.name
        for item in readable(StorageClass, classes)
        if item.volume_binding_mode == "WaitForFirstConsumer"
    )


async def give(
    cluster: Cluster,
    restore: VirtualMachineRestore,
    items: Iterable[RestoredVolume],
    source: ObjectMeta,
    machine: HeldMachine,
) -> None:
    """Have those claims deleted together with the machine that go with it, unless the restore says otherwise.

    `source` is the machine of the snapshot. Raises StatusError, UnfitDocument.
    """
    if restore.spec.volume_ownership_policy == "None":
        return
    claims = cluster.claims_of(restore.metadata.namespace)
    for item in items:
        if not decisions.goes_with(item, source, machine.metadata):
            continue
        claim = decode(PersistentVolumeClaim, claims[item.claim])
        operations = owners_patch(claim, with_owner(claim.metadata, machine))
        if operations:
            await patch(cluster, resources.PERSISTENT_VOLUME_CLAIMS, claim, operations)


def with_owner(owned: ObjectMeta, machine: HeldMachine | None) -> tuple[OwnerReference, ...]:
    """The owners of a restore or of a restored claim; the target is one of them, if it exists."""
    owners = owned.owner_references
    if machine is None or any(owner.uid == machine.metadata.uid for owner in owners):
        return owners
    # A clone controls the restores that it creates.
    refer = meta.new_owner_ref if owned.controller is not None else meta.new_controller_ref
    vm = {"metadata": encode(machine.metadata)}
    return (*owners, decode(OwnerReference, refer(vm, kinds.VIRTUAL_MACHINES)))
