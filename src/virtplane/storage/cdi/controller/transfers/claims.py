"""The transfer of a claim: its volume is kept, the claim goes, the target claim gets the volume.

The volume's own reference says whose it is, with the uid of the claim. It changes hands by one write, from
a claim that is gone to one that is there; until then, and for as long as no claim has it, it is retained.
"""

from __future__ import annotations

from kubecore.errors import StatusError, is_already_exists
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from virtplane.api.cdi_v1beta1.object_transfer import ObjectTransfer
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim
from virtplane.cluster.objects import AnyObject
from virtplane.storage.cdi.controller.deletion import delete_as_read
from virtplane.storage.cdi.controller.transfers import decisions
from virtplane.storage.cdi.controller.transfers.decisions import Holder, Step
from virtplane.storage.cdi.controller.transfers.objects import Objects, remembered_source
from virtplane.storage.csi.parts import patch, versioned

_POLICY = "/spec/persistentVolumeReclaimPolicy"


class ClaimTransfer:
    """Takes the steps. All methods raise StatusError, ConnectionFailed, UnfitDocument."""

    kind = PERSISTENT_VOLUME_CLAIMS

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def pending(self, transfer: ObjectTransfer) -> Step:
        """Whether the transfer can begin."""
        source = transfer.spec.source
        claim = await self._claim(source.namespace, source.name)
        if claim is None or claim.metadata.is_being_deleted:
            return decisions.waiting("No source")
        volume = await self._volume(claim.spec.volume_name or "")
        obstacle = decisions.claim_obstacle(claim, volume)
        if obstacle is not None or volume is None:
            return obstacle or decisions.waiting("PV not bound")
        if await self._objects.is_used(source.name, source.namespace):
            return decisions.waiting_for_pods("Pods using PVC")
        refusal = decisions.refusal(transfer, claim.metadata)
        if refusal is not None:
            return refusal
        namespace, name = decisions.target_of(transfer)
        if await self._claim(namespace, name) is not None:
            return decisions.waiting_for_target(namespace, name)
        document = await self._objects.take(transfer, self.kind, claim)
        return decisions.running(
            transfer,
            **{
                decisions.SOURCE: decisions.remembered(document),
                decisions.VOLUME_NAME: volume.metadata.name,
                decisions.RECLAIM: volume.spec.persistent_volume_reclaim_policy,
            },
        )

    async def running(self, transfer: ObjectTransfer) -> Step:
        """The next step of a transfer that has begun."""
        data, document = transfer.status.data, remembered_source(transfer)
        if decisions.VOLUME_NAME not in data or document is None:
            return decisions.failed(transfer, "PV name missing")
        source = decode(AnyObject, document).metadata
        volume = await self._volume(data[decisions.VOLUME_NAME])
        if volume is None:
            return decisions.failed(transfer, "PV name missing")
        claim = await self._claim(source.namespace, source.name)
        if claim is not None and claim.metadata.uid == source.uid:
            return await self._give_up(transfer, claim, volume)
        return await self._hand_over(transfer, source, document, volume)

    async def _give_up(
        self, transfer: ObjectTransfer, claim: PersistentVolumeClaim, volume: PersistentVolume
    ) -> Step:
        """Have the volume outlive the source claim, then delete that."""
        if volume.spec.persistent_volume_reclaim_policy != decisions.RETAIN:
            await self._set_policy(volume, decisions.RETAIN)
        else:
            await delete_as_read(self._objects.client, self.kind, claim)
        return decisions.running(transfer)

    async def _hand_over(
        self, transfer: ObjectTransfer, source: ObjectMeta, document: JsonObject, volume: PersistentVolume
    ) -> Step:
        """Have the target claim get the volume."""
        namespace, name = target = decisions.target_of(transfer)
        claim = await self._claim(namespace, name)
        if claim is not None and claim.spec.volume_name != volume.metadata.name:
            return decisions.failed(transfer, decisions.target_exists(namespace, name))
        held_by = decisions.holder(volume, source, target, claim.metadata.uid if claim is not None else "")
        if held_by is Holder.OTHER:
            return decisions.failed(transfer, "PV bound to wrong PVC")
        if volume.spec.persistent_volume_reclaim_policy != decisions.RETAIN and (
            held_by is not Holder.TARGET or claim is None
        ):
            await self._set_policy(volume, decisions.RETAIN)
            return decisions.running(transfer)
        if claim is None:
            return await self._make_target(transfer, document)
        if held_by is not Holder.TARGET:
            await self._assign(volume, claim)
            return decisions.running(transfer)
        if claim.status.phase != decisions.BOUND:
            return decisions.running(transfer, "Waiting for target to be bound")
        before = transfer.status.data.get(decisions.RECLAIM, decisions.RETAIN)
        if volume.spec.persistent_volume_reclaim_policy != before:
            await self._set_policy(volume, before)
            return decisions.running(transfer)
        return decisions.complete()

    async def _make_target(self, transfer: ObjectTransfer, source: JsonObject) -> Step:
        try:
            await self._objects.client.create(self.kind, decisions.target_document(transfer, source))
        except StatusError as error:
            if error.code in (403, 422):
                return decisions.failed(transfer, error.message)
            if not is_already_exists(error):
                raise
        return decisions.running(transfer)

    async def _assign(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        """Write into the volume that it is that very claim's."""
        reference = {
            "apiVersion": "v1",
            "kind": self.kind.kind,
            "namespace": claim.metadata.namespace,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
        }
        await self._change(volume, "/spec/claimRef", reference)

    async def _set_policy(self, volume: PersistentVolume, policy: str) -> None:
        await self._change(volume, _POLICY, policy)

    async def _change(self, volume: PersistentVolume, path: str, value: object) -> None:
        changes: list[JsonObject] = [{"op": "add", "path": path, "value": value}]
        await patch(self._objects.client, PERSISTENT_VOLUMES, volume, versioned(volume, changes))

    async def abandon(self, transfer: ObjectTransfer) -> None:
        """Leave a source that is still there as it was found. A volume without claim stays retained."""
        # The mark goes first: the deletion of a source that was given up does not take effect after that.
        await self._objects.release(transfer, self.kind)
        document = remembered_source(transfer)
        before = transfer.status.data.get(decisions.RECLAIM)
        source = transfer.spec.source
        claim = await self._claim(source.namespace, source.name)
        uid = decode(AnyObject, document).metadata.uid if document is not None else ""
        if claim is not None and claim.metadata.uid == uid and not claim.metadata.is_being_deleted:
            volume = await self._volume(claim.spec.volume_name or "")
            if volume is not None and before and volume.spec.persistent_volume_reclaim_policy != before:
                await self._set_policy(volume, before)

    async def _claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return await self._objects.read(PersistentVolumeClaim, self.kind, name, namespace)

    async def _volume(self, name: str) -> PersistentVolume | None:
        return await self._objects.read(PersistentVolume, PERSISTENT_VOLUMES, name) if name else None
