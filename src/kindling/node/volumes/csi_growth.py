"""Carrying out expansions: the driver's call, the claim's status, and what users are told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from kindling.node.volumes import csi_expansion, csi_records, csi_source
from kindling.node.volumes.content import MountProblem
from kindling.node.volumes.csi_expansion import Expansion
from kindling.node.volumes.csi_records import Record
from kindling.node.volumes.csi_registry import CallProblem, Driver
from kindling.node.volumes.csi_requests import CsiRequests
from kindling.node.volumes.csi_source import Source
from kubecore.client import Client
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, ResourceType

_log = logging.getLogger(__name__)

RecordEvent = Callable[[JsonObject, str, str, str], None]
"""Record an event: the object (with kind and apiVersion), type, reason, message."""


class Growth:
    """Grows file systems of published volumes. Called for one volume at a time."""

    def __init__(
        self, client: Client, requests: CsiRequests, node_name: str, record_event: RecordEvent
    ) -> None:
        self._client = client
        self._requests = requests
        self._node_name = node_name
        self._record_event = record_event
        self._not_in_use: dict[tuple[str, str], int] = {}
        """Sizes that a driver does not grow to while the pod uses the volume, by pod and volume."""
        self._refused: dict[tuple[str, str], int] = {}
        """Sizes about whose refusal users were told."""

    def forget(self, pod_uid: str) -> None:
        """Forget the volumes of a pod."""
        for known in (self._not_in_use, self._refused):
            for key in [key for key in known if key[0] == pod_uid]:
                del known[key]

    async def grow(
        self,
        driver: Driver,
        pod: JsonObject,
        source: Source,
        record: Record,
        *,
        mounting: bool,
    ) -> None:
        """Grow the volume if its claim and its PersistentVolume, as they are now, ask for it.

        Raises MountProblem when that fails while the pod starts (`mounting`); of a running pod a failure is
        only told. Raises StatusError, ConnectionFailed, OSError.
        """
        if record.claim is None:
            return
        namespace, name = record.claim
        claim = await self._client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace)
        volume = await self._client.get(PERSISTENT_VOLUMES, record.volume)
        if get_str(claim, "spec", "volumeName") != record.volume:
            return  # another claim of that name
        wanted = csi_expansion.needed(claim, volume, record.size)
        key = (record.pod_uid, record.volume)
        if mounting:
            self._not_in_use.pop(key, None)
        if wanted is None or self._not_in_use.get(key) == wanted.size:
            return
        if obstacle := _obstacle(source, driver):
            self._tell_once(key, wanted, (pod, claim), obstacle)
            return
        if not wanted.told:
            claim = await self._write(claim, csi_expansion.in_progress(claim))
        try:
            values = await self._requests.expand(source, record, driver, wanted.size)
            await driver.call("NodeExpandVolume", values)
        except CallProblem as problem:
            await self._failed(problem, wanted, pod, claim, source, mounting=mounting)
            if problem.code == "FAILED_PRECONDITION":
                self._not_in_use[key] = wanted.size
            return
        text = f'{csi_expansion.SUCCEEDED} for volume "{source.name}" {self._node_name}'
        for about in (_of(pod, PODS), _of(claim, PERSISTENT_VOLUME_CLAIMS)):
            self._record_event(about, "Normal", "FileSystemResizeSuccessful", text)
        await csi_records.store(replace(record, size=wanted.size), self._node_name)
        if not wanted.told:
            await self._write(claim, csi_expansion.finished(claim, volume))

    async def _failed(
        self,
        problem: CallProblem,
        wanted: Expansion,
        pod: JsonObject,
        claim: JsonObject,
        source: Source,
        *,
        mounting: bool,
    ) -> None:
        if not wanted.told and csi_expansion.is_final(problem.code):
            infeasible = csi_expansion.is_infeasible(problem.code)
            await self._write(claim, csi_expansion.failed(claim, str(problem), infeasible=infeasible))
        if problem.code == "FAILED_PRECONDITION":
            _log.warning("volume %s does not grow while it is in use: %s", source.name, problem)
            return
        if mounting:
            what = "MountVolume.Setup failed while expanding volume"
            raise MountProblem(what, source.name, str(problem)) from problem
        text = f'NodeExpandVolume.NodeExpandVolume failed for volume "{source.name}" : {problem}'
        self._record_event(_of(pod, PODS), "Warning", "VolumeResizeFailed", text)

    def _tell_once(
        self,
        key: tuple[str, str],
        wanted: Expansion,
        about: tuple[JsonObject, JsonObject],
        obstacle: tuple[str, str],
    ) -> None:
        if self._refused.get(key) == wanted.size:
            return
        self._refused[key] = wanted.size
        for found, resource in zip(about, (PODS, PERSISTENT_VOLUME_CLAIMS), strict=True):
            self._record_event(_of(found, resource), "Warning", *obstacle)

    async def _write(self, claim: JsonObject, patch: JsonObject | None) -> JsonObject:
        """Apply a status patch; returns the claim as it is then."""
        if patch is None:
            return claim
        namespace, name = meta.key(claim)
        return await self._client.patch(
            PERSISTENT_VOLUME_CLAIMS, name, patch, namespace, type="merge", subresource="status"
        )


def _obstacle(source: Source, driver: Driver) -> tuple[str, str] | None:
    """Reason and message of the event about a volume that this node cannot grow."""
    if source.read_only:
        text = (
            f'MountVolume.NodeExpandVolume failed for volume "{source.name}" requested read-only file system'
        )
        return "FileSystemResizeFailed", text
    if csi_source.EXPAND not in driver.capabilities:
        text = f"NodeExpand is not supported by the CSI driver {driver.name}"
        return "VolumeResizeFailed", f'NodeExpandVolume failed for volume "{source.name}" : {text}'
    return None


def _of(obj: JsonObject, resource: ResourceType) -> JsonObject:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
