"""Volumes of CSI drivers: staging, publishing and growing on this node, and undoing it.

A record is written before the first call (`csi_records`), so that a restarted agent undoes what the last one
began. The agent never removes anything below a mount point of a driver, only the mount point when it is
empty.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from kindling.node.volumes import csi_block, csi_records, csi_source, mounts, ownership
from kindling.node.volumes.content import ContentProblem, MountProblem
from kindling.node.volumes.csi_attachments import Attachments
from kindling.node.volumes.csi_growth import Growth
from kindling.node.volumes.csi_records import Record
from kindling.node.volumes.csi_registry import CsiRegistry, Driver
from kindling.node.volumes.csi_requests import CsiRequests
from kindling.node.volumes.csi_source import Source
from kindling.node.volumes.manager import Prepared
from kindling.scheduler import csi, volume_rules
from kindling.scheduler.csi import CsiVolume
from kubecore.json import JsonObject, get_str
from kubecore.objects import meta

_log = logging.getLogger(__name__)

_IN_USE = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"


@dataclass(frozen=True, slots=True)
class CsiServices:
    """What setting volumes up needs from the rest of the agent."""

    registry: CsiRegistry
    requests: CsiRequests
    attachments: Attachments
    growth: Growth
    node_name: str


@dataclass(frozen=True, slots=True)
class _Use:
    """A pod's use of a volume; without a claim it is ephemeral."""

    pod: JsonObject
    source: Source
    claim: JsonObject | None
    shown_as: str


class CsiVolumes:
    """The ``PersistentDriver`` of volumes with a ``csi`` source.

    Calls for one volume are made one after the other. An operation whose first call has been made is finished
    although the pod is deleted meanwhile, since the driver would not stop either; the next operation undoes
    it.
    """

    def __init__(self, services: CsiServices) -> None:
        self._services = services
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """By driver and handle, as long as they are in use."""
        self._operations: dict[str, set[asyncio.Task[None]]] = {}
        """Operations in progress, by pod uid."""

    async def publish(
        self, pod: JsonObject, shown_as: str, claim: JsonObject, persistent: JsonObject, *, read_only: bool
    ) -> Prepared:
        """Stage a persistent volume on the node and publish it to the pod, which calls it `shown_as`.

        Raises ContentProblem, StatusError, ConnectionFailed, OSError.
        """
        source = csi_source.persistent(persistent, read_only=read_only)
        return await self._set_up(_Use(pod, source, claim, shown_as))

    async def publish_inline(self, pod: JsonObject, volume: JsonObject) -> Prepared:
        """Publish an ephemeral volume that the pod describes itself. Raises as `publish`."""
        source = csi_source.inline(pod, volume)
        return await self._set_up(_Use(pod, source, None, source.name))

    async def _set_up(self, use: _Use) -> Prepared:
        source, services = use.source, self._services
        driver = self._driver(source.driver)
        rules = await services.requests.rules(source.driver)
        if problem := csi_source.mode_problem(source, rules):
            raise ContentProblem(problem)
        record = _new_record(use, driver)
        context: JsonObject = {}
        if not source.ephemeral and csi.needs_attachment(rules):
            volume = CsiVolume(source.driver, source.handle)
            record = replace(record, attachment=volume.attachment_name(services.node_name))
            context = await services.attachments.wait(record.pod_uid, volume)
        stage: dict[str, Any] = {}
        if record.staged:
            stage = await services.requests.stage(use.pod, source, record, driver, context)
        publish = await services.requests.publish(use.pod, source, record, driver, context, rules)
        await self._alone(record, lambda: self._do(driver, source, record, stage, publish))
        if csi_source.wants_ownership(source, rules, driver.capabilities):
            await ownership.apply(use.pod, record.target)
        await self.grow(use.pod, source, record, mounting=True)
        return Prepared(record.target, source.read_only, is_block=source.block)

    async def republish(self, pod: JsonObject, source: Source, record: Record) -> None:
        """Publish a volume again that is in use, for drivers that renew its contents. Raises as `publish`."""
        driver = self._driver(source.driver)
        rules = await self._services.requests.rules(source.driver)
        context: JsonObject = {}
        if record.attachment:
            volume = CsiVolume(source.driver, source.handle)
            context = await self._services.attachments.wait(record.pod_uid, volume)
        values = await self._services.requests.publish(pod, source, record, driver, context, rules)

        async def again() -> None:
            if csi_records.is_published(record):
                await _call(driver, "NodePublishVolume", values, source)

        await self._alone(record, again)

    async def grow(self, pod: JsonObject, source: Source, record: Record, *, mounting: bool = False) -> None:
        """Grow a published volume's file system if its claim asks for it.

        Raises ContentProblem, StatusError, ConnectionFailed, OSError.
        """
        driver = self._driver(source.driver)

        async def growing() -> None:
            if csi_records.is_published(record):
                known = csi_records.read(record.file)
                await self._services.growth.grow(driver, pod, source, known, mounting=mounting)

        await self._alone(record, growing)

    async def unpublish(self, pod_uid: str) -> None:
        """Undo `publish` for all volumes of a pod; unstage what no other pod uses.

        Tries all volumes; then raises OSError if a step failed for one.
        """
        while begun := self._operations.get(pod_uid):
            await asyncio.wait(begun)
        problems = []
        for file in csi_records.files_of_pod(pod_uid):
            try:
                record = csi_records.read(file)
                await self._alone(record, partial(self._undo, record))
            except (ContentProblem, OSError) as problem:
                problems.append(f"volume {file.parent.name}: {problem}")
        if problems:
            raise OSError("; ".join(problems))
        self._services.attachments.forget(pod_uid)
        self._services.growth.forget(pod_uid)

    async def close(self) -> None:
        """Cancel operations in progress; the next agent continues them from the records."""
        tasks = [task for tasks in self._operations.values() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _alone(self, record: Record, operation: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `operation` to its end with the volume locked, also when this task is cancelled.

        A task that is cancelled while it still waits for the lock does not start the operation.
        """
        lock = self._locks.setdefault((record.driver, record.handle), asyncio.Lock())
        await lock.acquire()
        task = asyncio.create_task(operation(), name=f"csi-{record.volume}-{record.pod_uid}")
        self._operations.setdefault(record.pod_uid, set()).add(task)

        def ended(_task: asyncio.Task[None]) -> None:
            lock.release()
            others = self._operations[record.pod_uid]
            others.discard(task)
            if not others:
                del self._operations[record.pod_uid]

        task.add_done_callback(ended)
        await asyncio.shield(task)

    async def _do(
        self,
        driver: Driver,
        source: Source,
        record: Record,
        stage: Mapping[str, Any],
        publish: Mapping[str, Any],
    ) -> None:
        if source.is_single_pod and csi_records.is_staged_for_others(record):
            raise MountProblem(f"{_steps(source)[1]} failed", source.name, _IN_USE, _reason(source))
        if record.file.exists():
            before = csi_records.read(record.file)
            record = replace(record, size=before.size, published=before.published)
        await csi_records.store(record, self._services.node_name)
        if record.staged:
            record.staging.mkdir(parents=True, exist_ok=True, mode=0o750)
            await _call(driver, "NodeStageVolume", stage, source)
        record.target.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        await _call(driver, "NodePublishVolume", publish, source)
        if record.block:
            await csi_block.map_device(record)
        if not record.published:
            await csi_records.store(replace(record, published=True), self._services.node_name)

    async def _undo(self, record: Record) -> None:
        if not record.file.exists():
            return  # an earlier operation has already done it
        driver = self._driver(record.driver)
        if record.published:
            await csi_records.store(replace(record, published=False), self._services.node_name)
        if record.block:
            await csi_block.unmap_device(record)
        values = {"volume_id": record.handle, "target_path": str(record.target)}
        await driver.call("NodeUnpublishVolume", values)
        _remove_target(record)
        staged = csi_source.STAGE in driver.capabilities if record.staged is None else record.staged
        if staged and not csi_records.is_staged_for_others(record):
            values = {"volume_id": record.handle, "staging_target_path": str(record.staging)}
            await driver.call("NodeUnstageVolume", values)
            _remove_staging(record)
        csi_records.remove(record)
        if record.attachment:
            volume = CsiVolume(record.driver, record.handle)
            self._services.attachments.forget(record.pod_uid, volume.unique_name)

    def _driver(self, name: str) -> Driver:
        driver = self._services.registry.get(name)
        if driver is None:
            raise ContentProblem(f"driver name {name} not found in the list of registered CSI drivers")
        return driver


def _new_record(use: _Use, driver: Driver) -> Record:
    source = use.source
    return Record(
        pod_uid=get_str(use.pod, "metadata", "uid"),
        volume=source.name,
        driver=source.driver,
        handle=source.handle,
        block=source.block,
        staged=not source.ephemeral and csi_source.STAGE in driver.capabilities,
        ephemeral=source.ephemeral,
        claim=meta.key(use.claim) if use.claim else None,
        shown_as=use.shown_as,
        size=volume_rules.size_of(use.claim) if use.claim else None,
    )


def _steps(source: Source) -> tuple[str, str]:
    """A kubelet's names of staging and publishing."""
    if source.block:
        return "MapVolume.SetUpDevice", "MapVolume.MapPodDevice"
    return "MountVolume.MountDevice", "MountVolume.SetUp"


def _reason(source: Source) -> str:
    return "FailedMapVolume" if source.block else "FailedMount"


async def _call(driver: Driver, method: str, values: Mapping[str, Any], source: Source) -> None:
    """Call a driver, and name the step of an error. Raises MountProblem."""
    try:
        await driver.call(method, values)
    except ContentProblem as problem:
        step = _steps(source)[0 if method == "NodeStageVolume" else 1]
        raise MountProblem(f"{step} failed", source.name, str(problem), _reason(source)) from problem


def _remove_target(record: Record) -> None:
    """Remove the target path of an unpublished volume, if it is empty. Raises OSError."""
    target = record.target
    mounts.unmount(target)
    if mounts.is_mounted(target):
        raise OSError(f"{target} is still mounted")
    if target.is_dir() and not target.is_symlink():
        target.rmdir()
    else:
        target.unlink(missing_ok=True)
    if record.block:
        _remove_if_empty(target.parent)


def _remove_staging(record: Record) -> None:
    """Remove the staging path of an unstaged volume, if it is empty. Raises OSError.

    Files in it belong to the volume or to the driver: the agent must not remove them.
    """
    staging = record.staging
    if mounts.is_mounted(staging):
        raise OSError(f"{staging} is still mounted although driver {record.driver} has unstaged the volume")
    if _remove_if_empty(staging) and not record.block:
        _remove_if_empty(staging.parent)


def _remove_if_empty(directory: Path) -> bool:
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        _log.info("directory %s is not removed: it is not empty", directory)
        return False
    return True
