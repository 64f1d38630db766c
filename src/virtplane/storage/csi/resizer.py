"""Claims grow (kubernetes-csi's external-resizer)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable

from kubecore.json import JsonObject, deep_copy
from kubecore.objects.quantity import BINARY_SI, Quantity
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from kubecore.runtime import DONE, Controller, Key, RequeueAfter, Result
from kubecore.wire.csi import volume_capability
from virtplane.api import storage_labels as names
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim
from virtplane.storage.csi import resizing
from virtplane.storage.csi.claim_users import PodWithClaims, claims_in_use
from virtplane.storage.csi.driver import CallError
from virtplane.storage.csi.parts import (
    Environment,
    Problem,
    annotations_patch,
    members_patch,
    patch,
    read_secret,
    versioned,
)

logger = logging.getLogger(__name__)

_INFEASIBLE = frozenset({"INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND"})
_BY_CLAIM = "claim"
Change = Callable[[JsonObject], None]
"""Changes a claim's status document."""


class Resizer:
    """Reconciles claims."""

    def __init__(self, env: Environment, *, driver_grows: bool, heeds_use: bool = True) -> None:
        """`driver_grows`: the driver itself grows volumes, not only its nodes. `heeds_use`: after the driver
        has said that a volume is in use it is asked again only once it is not.
        """
        self._env = env
        self._driver_grows = driver_grows
        manager = env.manager
        self._claims = manager.informer(PERSISTENT_VOLUME_CLAIMS, struct=PersistentVolumeClaim)
        self._volumes = manager.informer(PERSISTENT_VOLUMES, struct=PersistentVolume)
        self._retries = env.retries(lambda: asyncio.get_running_loop().time())
        self._refused: set[str] = set()
        """Claims (by uid) of which the driver has finally refused the recorded size."""
        self._in_use: set[str] = set()
        """Claims (by uid) of which the driver has said that it cannot grow volumes in use."""
        controller = Controller("csi-resizer", self.reconcile, workers=env.workers, max_delay=30.0)
        controller.watch(self._claims)
        controller.watch(self._volumes, _claim_of)
        self._pods = None
        if heeds_use:
            indexers = {_BY_CLAIM: claims_in_use}
            self._pods = manager.informer(PODS, struct=PodWithClaims, indexers=indexers)
            controller.depend(self._pods)
        manager.add(controller)

    async def reconcile(self, key: Key) -> Result:
        """Grow the claim's volume as far as its user wants. Raises StatusError, ConnectionFailed."""
        try:
            claim = self._claims.get(*key)
            volume = self._volumes.get(None, claim.spec.volume_name or "") if claim is not None else None
        except UnfitDocument as error:
            logger.error("a claim or its volume cannot be decoded, so it does not grow: %s", error)
            return DONE
        if claim is None or volume is None:
            self._retries.forget(key)
            return DONE
        if not resizing.belong_together(claim, volume, self._env.identity.name):
            return DONE
        await self._forget_former_size(claim, volume)
        if not resizing.wants_growth(claim):
            self._retries.forget(key)
            self._refused.discard(claim.metadata.uid)
            self._in_use.discard(claim.metadata.uid)
            return DONE
        growth = resizing.next_growth(
            claim,
            volume,
            refused=claim.metadata.uid in self._refused,
            driver_grows=self._driver_grows,
        )
        if growth is None:
            return DONE
        wish: Hashable = (claim.metadata.uid, growth.size.nano)
        if delay := self._retries.remaining(key, wish):
            return RequeueAfter(delay)
        return await self._grow(key, claim, volume, growth, wish)

    async def _forget_former_size(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Once the node has grown the file system, nobody needs to know how large it was."""
        former = volume.metadata.annotations.get(names.PRE_RESIZE_CAPACITY)
        here, there = resizing.amount(claim.status.capacity), resizing.amount(volume.spec.capacity)
        if former is None or here is None or there is None or here < there:
            return
        operations = annotations_patch(volume, {names.PRE_RESIZE_CAPACITY: None})
        await patch(self._env.client, PERSISTENT_VOLUMES, volume, operations)

    async def _grow(
        self,
        key: Key,
        claim: PersistentVolumeClaim,
        volume: PersistentVolume,
        growth: resizing.Growth,
        wish: Hashable,
    ) -> Result:
        live = await self._begin(claim, growth)
        if live is None:
            return DONE
        uid = claim.metadata.uid
        if uid in self._in_use and self._is_used(key):
            text = (
                f"Unable to expand {key[0]}/{key[1]} because CSI driver {self._env.identity.name} only "
                "supports offline expansion and volume is currently in-use"
            )
            self._env.event(live, "Warning", "VolumeResizeFailed", text)
            return RequeueAfter(self._retries.failed(key, wish))
        text = f"External resizer is resizing volume {volume.metadata.name}"
        self._env.event(live, "Normal", "Resizing", text)
        self._in_use.discard(uid)
        try:
            size, needs_node = await self._ask(volume, growth.size)
        except (Problem, CallError) as problem:
            return await self._failed(key, live, volume, problem, wish)
        self._refused.discard(uid)
        self._retries.forget(key)
        await self._write_volume(claim, volume, size, needs_node=needs_node)
        await self._write_claim(live, size, needs_node=needs_node)
        return DONE

    async def _begin(
        self, claim: PersistentVolumeClaim, growth: resizing.Growth
    ) -> PersistentVolumeClaim | None:
        """Write down which size is asked for; None where the claim is gone."""

        def change(status: JsonObject) -> None:
            status["conditions"] = resizing.merged(
                claim.status.conditions, resizing.RESIZING, keep=growth.is_recorded
            )
            if not growth.is_recorded:
                resizing.with_status(status, resizing.CONTROLLER_IN_PROGRESS)
            allocated = {**claim.status.allocated_resources, resizing.STORAGE: str(growth.size)}
            status["allocatedResources"] = allocated

        written = await self._change(claim, change)
        if not growth.is_recorded:
            self._refused.discard(claim.metadata.uid)
        return written

    async def _ask(self, volume: PersistentVolume, size: Quantity) -> tuple[Quantity, bool]:
        """The new size, and whether the node must do its part. Raises Problem, CallError."""
        if not self._driver_grows:
            return size, True
        csi = volume.spec.csi
        if csi is None or not csi.volume_handle:
            raise Problem("empty volume handle")
        try:
            capability = volume_capability(
                volume.spec.access_modes,
                block=volume.spec.volume_mode == "Block",
                fs_type=csi.fs_type,
                mount_flags=volume.spec.mount_options,
                tells_pods_apart=self._env.identity.tells_pods_apart,
            )
        except ValueError as error:
            name = volume.metadata.name
            raise Problem(f"failed to get capabilities of volume {name} with {error}") from error
        values = {
            "volume_id": csi.volume_handle,
            "capacity_range": {"required_bytes": size.value},
            "secrets": await read_secret(self._env.client, csi.controller_expand_secret_ref),
            "volume_capability": capability,
        }
        answer = await self._env.controller("ControllerExpandVolume", values)
        if answer.capacity_bytes < size.value:
            raise Problem(
                f"the CSI driver has grown the volume to {answer.capacity_bytes} bytes only, not {size.value}"
            )
        return Quantity.of(answer.capacity_bytes, BINARY_SI), bool(answer.node_expansion_required)

    async def _failed(
        self,
        key: Key,
        claim: PersistentVolumeClaim,
        volume: PersistentVolume,
        problem: Problem | CallError,
        wish: Hashable,
    ) -> Result:
        """The volume did not grow, or not yet."""
        uid, hopeless = claim.metadata.uid, False
        if isinstance(problem, CallError):
            if problem.code == "FAILED_PRECONDITION":
                self._in_use.add(uid)
            hopeless = problem.code in _INFEASIBLE
            if problem.is_final_or_full:
                self._refused.add(uid)
                await self._record_failure(claim, str(problem), hopeless=hopeless)
            else:
                self._refused.discard(uid)
        delay = self._retries.failed(key, wish, hopeless=hopeless)
        driver = self._env.identity.name
        text = f'resize volume "{volume.metadata.name}" by resizer "{driver}" failed: {problem}'
        self._env.event(claim, "Warning", "VolumeResizeFailed", text)
        return RequeueAfter(delay)

    async def _record_failure(self, claim: PersistentVolumeClaim, text: str, *, hopeless: bool) -> None:
        def change(status: JsonObject) -> None:
            message = f"failed to expand pvc with {text}"
            status["conditions"] = resizing.merged(
                claim.status.conditions, resizing.CONTROLLER_ERROR, message, keep=True
            )
            if hopeless:
                resizing.with_status(status, resizing.CONTROLLER_INFEASIBLE)

        await self._change(claim, change)

    async def _write_volume(
        self, claim: PersistentVolumeClaim, volume: PersistentVolume, size: Quantity, *, needs_node: bool
    ) -> None:
        operations: list[JsonObject] = []
        if (resizing.amount(volume.spec.capacity) or Quantity.of(0)) != size:
            value = size.canonical()
            operations.append({"op": "add", "path": "/spec/capacity/storage", "value": value})
        annotations = volume.metadata.annotations
        if needs_node and names.PRE_RESIZE_CAPACITY not in annotations:
            former = str(claim.status.capacity.get(resizing.STORAGE, "0"))
            operations += annotations_patch(volume, {names.PRE_RESIZE_CAPACITY: former})
        operations = versioned(volume, operations)
        if operations and await patch(self._env.client, PERSISTENT_VOLUMES, volume, operations) is None:
            logger.warning("volume %s is gone although it has grown", volume.metadata.name)

    async def _write_claim(self, claim: PersistentVolumeClaim, size: Quantity, *, needs_node: bool) -> None:
        def pending(status: JsonObject) -> None:
            status["conditions"] = resizing.merged(
                claim.status.conditions, resizing.FILE_SYSTEM_PENDING, resizing.PENDING_MESSAGE, keep=True
            )
            resizing.with_status(status, resizing.NODE_PENDING)

        def finished(status: JsonObject) -> None:
            status["conditions"] = resizing.merged(claim.status.conditions)
            status["capacity"] = {**claim.status.capacity, resizing.STORAGE: size.canonical()}
            resizing.with_status(status, "")

        written = await self._change(claim, pending if needs_node else finished, needs_node=needs_node)
        if written is None:
            return
        if needs_node:
            text = "Require file system resize of volume on node"
            self._env.event(claim, "Normal", "FileSystemResizeRequired", text)
        else:
            self._env.event(claim, "Normal", "VolumeResizeSuccessful", "Resize volume succeeded")

    async def _change(
        self, claim: PersistentVolumeClaim, change: Change, *, needs_node: bool = True
    ) -> PersistentVolumeClaim | None:
        """Write the claim's status, unless somebody else has since; None where the claim is gone.

        An annotation tells the node's kubelet where it has nothing to do.
        """
        before = _status(claim)
        after = deep_copy(before)
        change(after)
        mark = {names.NODE_EXPANSION_NOT_REQUIRED: None if needs_node else "true"}
        operations = versioned(claim, members_patch("/status", before, after))
        operations += annotations_patch(claim, mark)
        if not operations:
            return claim
        document = await patch(self._env.client, PERSISTENT_VOLUME_CLAIMS, claim, operations, "status")
        return None if document is None else decode(PersistentVolumeClaim, document)

    def _is_used(self, key: Key) -> bool:
        return self._pods is not None and bool(self._pods.by_index(_BY_CLAIM, f"{key[0]}/{key[1]}"))


def _status(claim: PersistentVolumeClaim) -> JsonObject:
    """The members of the status that growth concerns, as they were read."""
    status = claim.status
    document: JsonObject = {}
    for field, value in (
        ("conditions", [dict(each) for each in status.conditions]),
        ("capacity", dict(status.capacity)),
        ("allocatedResources", dict(status.allocated_resources)),
        ("allocatedResourceStatuses", dict(status.allocated_resource_statuses)),
    ):
        if value:
            document[field] = value
    return document


def _claim_of(volume: PersistentVolume) -> list[Key]:
    reference = volume.spec.claim_ref
    return [] if reference is None else [(reference.namespace, reference.name)]
