"""The transfer of a DataVolume: it goes without its claim, a transfer moves that, it is made anew."""

from __future__ import annotations

from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from virtplane.api import cdi_labels as names
from virtplane.api import cdi_names
from virtplane.api import resources as kinds
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.cdi_v1beta1.object_transfer import ObjectTransfer
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cluster.objects import AnyObject, owners_patch
from virtplane.storage.cdi.controller.deletion import delete_as_read
from virtplane.storage.cdi.controller.transfers import decisions
from virtplane.storage.cdi.controller.transfers.decisions import Step
from virtplane.storage.cdi.controller.transfers.objects import Objects, remembered_source
from virtplane.storage.csi.parts import annotations_patch, delete, patch, versioned


class DataVolumeTransfer:
    """Takes the steps. All methods raise StatusError, ConnectionFailed, UnfitDocument."""

    kind = kinds.DATA_VOLUMES

    def __init__(self, objects: Objects, labels: dict[str, str]) -> None:
        """`labels` are those of what the controllers make."""
        self._objects, self._labels = objects, labels

    async def pending(self, transfer: ObjectTransfer) -> Step:
        """Whether the transfer can begin."""
        source = transfer.spec.source
        found = await self._data_volume(source.namespace, source.name)
        if found is None or found.metadata.is_being_deleted:
            return decisions.waiting("No source")
        if found.status.phase != decisions.SUCCEEDED:
            return decisions.waiting("Source not populated")
        claim = decisions.claim_of(found)
        if await self._objects.is_used(claim, source.namespace):
            return decisions.waiting_for_pods("Pods using DataVolume PVC")
        refusal = decisions.refusal(transfer, found.metadata)
        if refusal is not None:
            return refusal
        namespace, name = decisions.target_of(transfer)
        if await self._data_volume(namespace, name) or await self._claim(namespace, name):
            return decisions.waiting_for_target(namespace, name)
        document = await self._objects.take(transfer, self.kind, found)
        remembered = {decisions.SOURCE: decisions.remembered(document), decisions.CLAIM_NAME: claim}
        return decisions.running(transfer, **remembered)

    async def running(self, transfer: ObjectTransfer) -> Step:
        """The next step of a transfer that has begun."""
        document = remembered_source(transfer)
        claim = transfer.status.data.get(decisions.CLAIM_NAME)
        if document is None or not claim:
            return decisions.failed(transfer, "Source DV has no PVC")
        uid = decode(AnyObject, document).metadata.uid
        source = transfer.spec.source
        found = await self._data_volume(source.namespace, source.name)
        if found is not None and found.metadata.uid == uid:
            return await self._give_up(transfer, found, claim)
        namespace, name = decisions.target_of(transfer)
        target = await self._data_volume(namespace, name)
        if target is None:
            return await self._move(transfer, document, claim)
        if target.status.phase != decisions.SUCCEEDED:
            return decisions.running(transfer, "Waiting for target DataVolume")
        child = await self._child(transfer)
        if child is not None:
            await delete(self._objects.client, kinds.OBJECT_TRANSFERS, child)
        return decisions.complete()

    async def _give_up(self, transfer: ObjectTransfer, found: DataVolume, name: str) -> Step:
        """Take the claim from the DataVolume, then delete that."""
        claim = await self._claim(found.metadata.namespace, name)
        if claim is None:
            return decisions.running(transfer, "Source DV has no PVC")
        others = [each for each in claim.metadata.owner_references if each.uid != found.metadata.uid]
        changes = owners_patch(claim, others) if len(others) < len(claim.metadata.owner_references) else []
        changes += annotations_patch(claim, {names.POPULATED_FOR: None})
        if changes:
            changes = versioned(claim, changes)
            await patch(self._objects.client, PERSISTENT_VOLUME_CLAIMS, claim, changes)
        else:
            # Its controller may just have taken the claim again.
            await delete_as_read(self._objects.client, self.kind, found, propagation_policy="Orphan")
        return decisions.running(transfer)

    async def _move(self, transfer: ObjectTransfer, document: JsonObject, claim: str) -> Step:
        """Have the claim moved, then make the DataVolume for it."""
        child = await self._child(transfer)
        if child is None:
            await self._objects.create(kinds.OBJECT_TRANSFERS, self._child_document(transfer, claim))
            return decisions.running(transfer, "PVC transfer in progress")
        if child.status.phase != decisions.COMPLETE:
            return decisions.running(transfer, "PVC transfer in progress")
        namespace, name = decisions.target_of(transfer)
        moved = await self._claim(namespace, name)
        if moved is None:
            return decisions.failed(transfer, "Transferred PVC does not exist")
        populated_for = moved.metadata.annotations.get(names.POPULATED_FOR)
        if populated_for not in (None, name):
            return decisions.failed(transfer, "PVC populated for a different DataVolume")
        changes = annotations_patch(moved, {names.POPULATED_FOR: name})
        if changes:
            await patch(self._objects.client, PERSISTENT_VOLUME_CLAIMS, moved, changes)
        try:
            await self._objects.create(self.kind, decisions.target_document(transfer, document))
        except StatusError as error:
            if error.code in (403, 422):
                return decisions.failed(transfer, error.message)
            raise
        return decisions.running(transfer, "Waiting for target DataVolume")

    def _child_document(self, transfer: ObjectTransfer, claim: str) -> JsonObject:
        namespace, name = decisions.target_of(transfer)
        kind = kinds.OBJECT_TRANSFERS
        spec: JsonObject = {
            "source": {
                "kind": PERSISTENT_VOLUME_CLAIMS.kind,
                "namespace": transfer.spec.source.namespace,
                "name": claim,
            },
            "target": {"namespace": namespace, "name": name},
            "parentName": transfer.metadata.name,
        }
        metadata = {
            "name": cdi_names.transfer_of_claim(transfer.metadata.uid),
            "labels": {"app": names.APP, names.COMPONENT: "", **self._labels},
        }
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}

    async def abandon(self, transfer: ObjectTransfer) -> None:
        """Leave a source that is still there as it was found."""
        await self._objects.release(transfer, self.kind)

    async def _child(self, transfer: ObjectTransfer) -> ObjectTransfer | None:
        name = cdi_names.transfer_of_claim(transfer.metadata.uid)
        return await self._objects.read(ObjectTransfer, kinds.OBJECT_TRANSFERS, name)

    async def _data_volume(self, namespace: str, name: str) -> DataVolume | None:
        return await self._objects.read(DataVolume, self.kind, name, namespace)

    async def _claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return await self._objects.read(PersistentVolumeClaim, PERSISTENT_VOLUME_CLAIMS, name, namespace)
