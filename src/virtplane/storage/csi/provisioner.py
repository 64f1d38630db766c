"""Claims become volumes (kubernetes-csi's external-provisioner).

Before the driver is asked, the claim gets a finalizer that says that there may be storage for it; it goes
once a volume stands for the storage, or the driver has said that there is none. So a claim that is deleted
while its volume is being made, and a provisioner that is killed, leave nothing behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable

from kubecore.errors import StatusError, is_already_exists, is_lost_race, is_not_found
from kubecore.json import JsonObject
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from kubecore.runtime import DONE, Controller, Key, RequeueAfter, Result
from kubecore.wire import Message
from virtplane.api import storage_labels as names
from virtplane.api.storage_kinds import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from virtplane.cluster.objects import finalizer_patch
from virtplane.storage.csi import content_sources, requests, topology
from virtplane.storage.csi.driver import CallError
from virtplane.storage.csi.parts import (
    Environment,
    Problem,
    annotations_patch,
    patch,
    read_secret,
    versioned,
)
from virtplane.storage.csi.placement import Placement
from virtplane.storage.csi.preparation import Preparation, ProvisionerOptions
from virtplane.storage.csi.protection import let_snapshots_go
from virtplane.storage.csi.requests import Wanted
from virtplane.storage.csi.sources import FilledByOthers, Sources

logger = logging.getLogger(__name__)

_CLEANUP_TRIES = 5
_FINISH_TRIES = 5
_BY_CLASS = "class"


class Provisioner:
    """Reconciles claims."""

    def __init__(self, env: Environment, options: ProvisionerOptions, placement: Placement | None) -> None:
        """`placement` is for provisioners of which each node has its own."""
        self._env = env
        self._options = options
        self._placement = placement
        manager = env.manager
        self._claims = manager.informer(
            PERSISTENT_VOLUME_CLAIMS,
            struct=PersistentVolumeClaim,
            indexers={_BY_CLASS: lambda claim: [requests.class_of(claim)]},
        )
        self._volumes = manager.informer(PERSISTENT_VOLUMES, struct=PersistentVolume)
        self._classes = manager.informer(STORAGE_CLASSES, struct=StorageClass)
        self._retries = env.retries(lambda: asyncio.get_running_loop().time())
        self._fresh: dict[Key, str] = {}
        """Claims (with their uids) whose volumes the cache does not show yet."""
        self._told: dict[Key, Hashable] = {}
        """For which wish users were told that a claim is being provided; other writes of it are no news."""
        controller = Controller("csi-provisioner", self.reconcile, workers=env.workers, max_delay=30.0)
        controller.watch(self._claims)
        controller.watch(self._classes, self._claims_of_class)
        controller.watch(self._volumes, _claim_of)
        self._preparation = Preparation(env, options, controller)
        manager.add(controller)
        self._sources = Sources(
            env.client,
            self._claims,
            self._volumes,
            across_namespaces=options.across_namespaces,
            keeps_mode=options.keeps_mode,
        )

    def _claims_of_class(self, storage_class: StorageClass) -> list[Key]:
        found = self._claims.by_index(_BY_CLASS, storage_class.metadata.name)
        pending = [claim.metadata for claim in found if not claim.spec.volume_name]
        return [(metadata.namespace, metadata.name) for metadata in pending]

    async def reconcile(self, key: Key) -> Result:
        """Provide the claim's volume if that is for this driver to do.

        Raises StatusError, ConnectionFailed.
        """
        try:
            claim = self._claims.get(*key)
        except UnfitDocument as error:
            logger.error("a claim cannot be decoded, so no volume is made for it: %s", error)
            return DONE
        if claim is None:
            self._retries.forget(key)
            self._fresh.pop(key, None)
            self._told.pop(key, None)
            return DONE
        if requests.provisioner_of(claim) != self._env.identity.name:
            return DONE
        if self._has_volume(claim):
            self._retries.forget(key)
            self._told.pop(key, None)
            await self._finish(claim)
            return DONE
        is_begun = names.VOLUME_BEING_CREATED in claim.metadata.finalizers
        if claim.metadata.is_being_deleted and not is_begun:
            return DONE
        return await self._without_volume(key, claim)

    async def _without_volume(self, key: Key, claim: PersistentVolumeClaim) -> Result:
        storage_class = self._classes.get(None, requests.class_of(claim))
        wish = _wish(claim, storage_class)
        if delay := self._retries.remaining(key, wish):
            return RequeueAfter(delay)
        if storage_class is None:
            text = f'storageclass "{requests.class_of(claim)}" not found'
            return self._failed(claim, wish, text)
        if storage_class.provisioner != self._env.identity.name:
            return DONE
        node = claim.metadata.annotations.get(names.SELECTED_NODE, "")
        if storage_class.waits_for_consumer and not node and not claim.metadata.is_being_deleted:
            return DONE
        if self._placement is not None and node != self._placement.node_name:
            return await self._bid(claim, storage_class, node)
        return await self._provide(claim, storage_class, node, wish)

    def _has_volume(self, claim: PersistentVolumeClaim) -> bool:
        key = (claim.metadata.namespace, claim.metadata.name)
        if self._volumes.contains(None, self._options.naming.of(claim.metadata.uid)):
            self._fresh.pop(key, None)
            return True
        return bool(claim.spec.volume_name) or self._fresh.get(key) == claim.metadata.uid

    async def _finish(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """A volume stands for the claim's storage, or there is none; gives the claim as it is then."""
        for _ in range(_FINISH_TRIES):
            operations = finalizer_patch(claim.metadata, names.VOLUME_BEING_CREATED, present=False)
            try:
                document = await patch(self._env.client, PERSISTENT_VOLUME_CLAIMS, claim, operations)
            except StatusError as error:
                if not is_lost_race(error):
                    raise
                # Others write finalizers, too. Giving up here would have the driver asked once more.
                document = await self._live_claim(claim)
                if document is None:
                    break
                claim = decode(PersistentVolumeClaim, document)
            else:
                return claim if document is None else decode(PersistentVolumeClaim, document)
        return claim

    async def _bid(self, claim: PersistentVolumeClaim, storage_class: StorageClass, node: str) -> Result:
        """Take a claim that no node has yet, if this node may."""
        placement = self._placement
        assert placement is not None
        if node:
            placement.forget(claim)
            return DONE

        async def has_room() -> bool:
            what, places = await self._preparation.prepared(claim, storage_class, placement.node_name)
            return await self._preparation.has_room(what, places)

        return await placement.bid(claim, storage_class, has_room)

    async def _provide(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, node: str, wish: Hashable
    ) -> Result:
        key = (claim.metadata.namespace, claim.metadata.name)
        is_news, self._told[key] = self._told.get(key) != wish, wish
        if is_news:
            name = "/".join(key)
            text = f'External provisioner is provisioning volume for claim "{name}"'
            self._env.event(claim, "Normal", "Provisioning", text)
        try:
            what, accessibility = await self._preparation.prepared(claim, storage_class, node)
            source = await self._sources.of(claim, storage_class)
            secrets = await read_secret(self._env.client, what.secret)
        except FilledByOthers as other:
            if is_news:
                self._env.event(claim, "Normal", "Provisioning", str(other))
            return DONE
        except topology.NodeMissing as problem:
            return await self._reschedule(claim, wish, str(problem))
        except Problem as problem:
            return self._failed(claim, wish, str(problem))
        request = {**what.request, "secrets": secrets}
        if source is not None:
            request["volume_content_source"] = source
        if accessibility is not None:
            request["accessibility_requirements"] = accessibility
        live = await self._begin(claim)
        if live is None:
            return DONE
        try:
            answer = await self._env.controller("CreateVolume", request)
        except CallError as error:
            return await self._refused(live, wish, error, node)
        return await self._made(live, storage_class, what, wish, answer, secrets, source is not None)

    async def _begin(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | None:
        """Write down that there may be storage for the claim, as it was read.

        None where it has changed since, of which its event will tell. Raises StatusError.
        """
        operations = finalizer_patch(claim.metadata, names.VOLUME_BEING_CREATED, present=True)
        if operations:
            operations = versioned(claim, operations)
            document = await patch(self._env.client, PERSISTENT_VOLUME_CLAIMS, claim, operations)
            return None if document is None else decode(PersistentVolumeClaim, document)
        document = await self._live_claim(claim)
        live = decode(PersistentVolumeClaim, document) if document is not None else None
        if live is None or live.metadata.resource_version != claim.metadata.resource_version:
            return None
        return live

    async def _live_claim(self, claim: PersistentVolumeClaim) -> JsonObject | None:
        try:
            return await self._env.client.get(
                PERSISTENT_VOLUME_CLAIMS, claim.metadata.name, claim.metadata.namespace
            )
        except StatusError as error:
            if is_not_found(error):
                return None
            raise

    # What the driver answers.

    async def _refused(
        self, claim: PersistentVolumeClaim, wish: Hashable, error: CallError, node: str
    ) -> Result:
        """The driver did not make the volume, or not yet."""
        may_move = bool(node) and requests.has_topology(self._env.identity)
        if error.code == "RESOURCE_EXHAUSTED" and may_move:
            return await self._reschedule(await self._finish(claim), wish, str(error))
        if not error.is_final:
            return self._failed(claim, wish, str(error))
        await self._finish(claim)
        if error.code == "INVALID_ARGUMENT":
            text = f"Volume provisioning failed with infeasible error. Retries will be delayed. {error}"
            return self._failed(claim, wish, text, hopeless=True)
        return self._failed(claim, wish, str(error))

    async def _made(
        self,
        claim: PersistentVolumeClaim,
        storage_class: StorageClass,
        what: Wanted,
        wish: Hashable,
        answer: Message,
        secrets: dict[str, str],
        has_source: bool,
    ) -> Result:
        """The driver has made a volume: let a PersistentVolume stand for it."""
        volume = answer.volume
        if not volume.volume_id:
            return self._failed(claim, wish, "the CSI driver returned a volume without an ID")
        try:
            requests.check_answer(
                volume, what.request["capacity_range"]["required_bytes"], has_source=has_source
            )
        except Problem as problem:
            text = str(problem)
            if failure := await self._clean_up(volume.volume_id, secrets):
                text += f". Cleanup of volume {what.name} failed, volume is orphaned: {failure}"
            else:
                await self._finish(claim)
            return self._failed(claim, wish, text)
        document = requests.persistent_volume(
            claim,
            storage_class,
            self._env.identity,
            what,
            volume,
            provisioner_id=self._options.provisioner_id,
            read_only_many=self._options.read_only_many,
        )
        try:
            await self._env.client.create(PERSISTENT_VOLUMES, document)
        except StatusError as error:
            if not is_already_exists(error):
                name = f"{claim.metadata.namespace}/{claim.metadata.name}"
                text = f"Error creating provisioned PV object for claim {name}: {error.message}."
                return self._failed(claim, wish, text)
        self._env.event(
            claim, "Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {what.name}"
        )
        key = (claim.metadata.namespace, claim.metadata.name)
        self._retries.forget(key)
        self._fresh[key] = claim.metadata.uid
        await self._finish(claim)
        source = content_sources.data_source(claim, across_namespaces=True)
        if source is not None and source.is_snapshot:
            await let_snapshots_go(self._env, claim.metadata.uid)
        return DONE

    async def _clean_up(self, volume_id: str, secrets: dict[str, str]) -> str:
        """Delete a volume that is not what was asked for; gives the error where that does not work."""
        failure = ""
        for _ in range(_CLEANUP_TRIES):
            try:
                await self._env.controller("DeleteVolume", {"volume_id": volume_id, "secrets": secrets})
            except CallError as error:
                failure = str(error)
            else:
                return ""
        return failure

    async def _reschedule(self, claim: PersistentVolumeClaim, wish: Hashable, text: str) -> Result:
        """Have the scheduler choose another node."""
        operations = annotations_patch(claim, {names.SELECTED_NODE: None})
        if not operations:
            return self._failed(claim, wish, text)
        self._env.event(claim, "Warning", "ProvisioningFailed", text)
        await patch(self._env.client, PERSISTENT_VOLUME_CLAIMS, claim, operations)
        return DONE

    def _failed(
        self, claim: PersistentVolumeClaim, wish: Hashable, text: str, *, hopeless: bool = False
    ) -> Result:
        self._env.event(claim, "Warning", "ProvisioningFailed", text)
        key = (claim.metadata.namespace, claim.metadata.name)
        self._told.pop(key, None)
        return RequeueAfter(self._retries.failed(key, wish, hopeless=hopeless))


def _wish(claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> Hashable:
    """What a failure was about: where it changes, waiting makes no sense."""
    return (
        claim.metadata.uid,
        claim.metadata.is_being_deleted,
        claim.metadata.annotations.get(names.SELECTED_NODE, ""),
        content_sources.requested_bytes(claim),
        storage_class.metadata.uid if storage_class is not None else "",
    )


def _claim_of(volume: PersistentVolume) -> list[Key]:
    reference = volume.spec.claim_ref
    return [] if reference is None else [(reference.namespace, reference.name)]
