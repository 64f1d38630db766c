"""Keeps phase and condition of ObjectTransfers, and takes their steps."""

from __future__ import annotations

import logging

from kubecore.client import Client
from kubecore.json import JsonObject
from kubecore.objects import times
from kubecore.objects.structs import UnfitDocument
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kubecore.runtime import DONE, Controller, Informer, Key, Manager, RequeueAfter, Result
from virtplane.api import cdi_labels as names
from virtplane.api import resources as kinds
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.api.cdi_v1beta1.data_volume import DataVolume
from virtplane.api.cdi_v1beta1.object_transfer import ObjectTransfer, ObjectTransferStatus
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim
from virtplane.cluster.caches import HasMetadata
from virtplane.cluster.objects import finalizer_patch, status_patch
from virtplane.storage.cdi.controller.conditions import documents, with_condition
from virtplane.storage.cdi.controller.installation import active, recommended_labels
from virtplane.storage.cdi.controller.transfers import decisions
from virtplane.storage.cdi.controller.transfers.claims import ClaimTransfer
from virtplane.storage.cdi.controller.transfers.data_volumes import DataVolumeTransfer
from virtplane.storage.cdi.controller.transfers.decisions import Step
from virtplane.storage.cdi.controller.transfers.objects import Objects
from virtplane.storage.csi.parts import patch

logger = logging.getLogger(__name__)

NAME = "objecttransfer-controller"
_CONDITION = "Complete"
_BY_OBJECT, _BY_VOLUME, _BY_NAME = "object", "volume", "name"

Mover = ClaimTransfer | DataVolumeTransfer


def _objects_of(transfer: ObjectTransfer) -> list[str]:
    """Source and target, ``namespace/name``: of either kind, since the claim of a DataVolume moves too."""
    source = transfer.spec.source
    namespace, name = decisions.target_of(transfer)
    claim = transfer.status.data.get(decisions.CLAIM_NAME, source.name)
    return list(
        dict.fromkeys(
            [f"{source.namespace}/{source.name}", f"{source.namespace}/{claim}", f"{namespace}/{name}"]
        )
    )


def _volume_of(transfer: ObjectTransfer) -> list[str]:
    volume = transfer.status.data.get(decisions.VOLUME_NAME)
    return [volume] if volume else []


class TransferController:
    """Reconciles ObjectTransfers."""

    def __init__(self, client: Client, manager: Manager) -> None:
        self._client, self._objects = client, Objects(client)
        indexers = {_BY_OBJECT: _objects_of, _BY_VOLUME: _volume_of}
        self._transfers = manager.informer(kinds.OBJECT_TRANSFERS, struct=ObjectTransfer, indexers=indexers)
        self._installations: Informer[CDI] = manager.informer(kinds.CDIS, struct=CDI)
        claims = manager.informer(PERSISTENT_VOLUME_CLAIMS, struct=PersistentVolumeClaim)
        data_volumes = manager.informer(kinds.DATA_VOLUMES, struct=DataVolume)
        volumes = manager.informer(PERSISTENT_VOLUMES, struct=PersistentVolume)
        controller = Controller(NAME, self.reconcile, workers=3, max_delay=60.0)
        controller.watch(self._transfers)
        controller.watch(self._transfers, _parent)
        controller.watch(claims, self._moving)
        controller.watch(data_volumes, self._moving)
        controller.watch(volumes, lambda volume: self._keys(_BY_VOLUME, volume.metadata.name))
        controller.depend(self._installations)
        manager.add(controller)

    def _moving(self, found: HasMetadata) -> list[Key]:
        return self._keys(_BY_OBJECT, f"{found.metadata.namespace}/{found.metadata.name}")

    def _keys(self, index: str, value: str) -> list[Key]:
        return [("", each.metadata.name) for each in self._transfers.by_index(index, value)]

    async def reconcile(self, key: Key) -> Result:
        """Take a transfer one step further. Raises StatusError, ConnectionFailed."""
        try:
            # What is remembered must be what was written last: a step taken twice is another step.
            if not self._transfers.contains(*key):
                return DONE
            transfer = await self._objects.read(ObjectTransfer, kinds.OBJECT_TRANSFERS, key[1])
            return await self._advance(transfer) if transfer is not None else DONE
        except UnfitDocument as error:
            logger.error("ObjectTransfer %s waits until an object is corrected: %s", key[1], error)
            return DONE

    async def _advance(self, transfer: ObjectTransfer) -> Result:
        mover, phase = self._mover(transfer), transfer.status.phase
        if mover is None:
            logger.error(
                "ObjectTransfer %s moves no %s; delete it", transfer.metadata.name, transfer.spec.source.kind
            )
            return await self._finish(transfer)
        if phase == decisions.COMPLETE:
            return await self._finish(transfer)
        if transfer.metadata.is_being_deleted and phase != decisions.RUNNING:
            await mover.abandon(transfer)
            return await self._finish(transfer)
        if phase == decisions.EMPTY:
            return await self._begin(transfer)
        if phase == decisions.PENDING:
            return await self._write(transfer, await mover.pending(transfer))
        return await self._write(transfer, await mover.running(transfer))

    def _mover(self, transfer: ObjectTransfer) -> Mover | None:
        match transfer.spec.source.kind.lower():
            case "persistentvolumeclaim":
                return ClaimTransfer(self._objects)
            case "datavolume":
                labels = recommended_labels(active(self._installations))
                return DataVolumeTransfer(self._objects, labels)
        return None

    async def _begin(self, transfer: ObjectTransfer) -> Result:
        """Have the transfer stay until it is done: the volume has no claim meanwhile."""
        changes = finalizer_patch(transfer.metadata, names.OBJECT_TRANSFER_FINALIZER, present=True)
        if changes:
            await patch(self._client, kinds.OBJECT_TRANSFERS, transfer, changes)
            return DONE  # its event brings it back
        return await self._write(transfer, Step(decisions.PENDING, "Initializing"))

    async def _finish(self, transfer: ObjectTransfer) -> Result:
        changes = finalizer_patch(transfer.metadata, names.OBJECT_TRANSFER_FINALIZER, present=False)
        await patch(self._client, kinds.OBJECT_TRANSFERS, transfer, changes)
        return DONE

    async def _write(self, transfer: ObjectTransfer, step: Step) -> Result:
        before = transfer.status.conditions
        status = "True" if step.is_complete else "False"
        conditions = with_condition(
            before, _CONDITION, status, step.reason, step.message, times.now_rfc3339()
        )
        after: JsonObject = {"conditions": documents(conditions), "phase": step.phase}
        if step.data:
            after["data"] = dict(step.data)
        changes = status_patch(transfer, ObjectTransferStatus, transfer.status, after)
        await patch(self._client, kinds.OBJECT_TRANSFERS, transfer, changes, "status")
        if changes or step.after_seconds is None:
            return DONE  # its event, or that of what it waits for, brings it back
        return RequeueAfter(step.after_seconds)


def _parent(transfer: ObjectTransfer) -> list[Key]:
    return [("", transfer.spec.parent_name)] if transfer.spec.parent_name else []
