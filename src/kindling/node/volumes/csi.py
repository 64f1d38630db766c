"""Volumes of CSI drivers: staging and publishing on this node, and undoing both.

A record is written before the first call (`csi_records`), so that a restarted agent undoes what the last one
began. The agent never removes anything below a mount point of a driver, only the mount point when it is
empty.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from kindling.node.pods import identity
from kindling.node.secret_values import decode_text
from kindling.node.volumes import csi_records, mounts, ownership
from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.csi_records import Record
from kindling.node.volumes.csi_registry import CsiRegistry, Driver
from kindling.node.volumes.manager import Prepared
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.resources import CSI_DRIVERS, SECRETS, VOLUME_ATTACHMENTS

_log = logging.getLogger(__name__)

_ACCESS_MODES = {"ReadWriteOnce": 1, "ReadOnlyMany": 3, "ReadWriteMany": 5, "ReadWriteOncePod": 1}
_MULTI_WRITER_MODES = {"ReadWriteOnce": 7, "ReadWriteOncePod": 6}
"""Modes of drivers that tell one pod from several on one node."""
_STAGE, _MULTI_WRITER = 1, 5
"""Values of NodeServiceCapability.RPC.Type."""


class CsiVolumes:
    """The ``PersistentDriver`` of persistent volumes with a ``csi`` source.

    Calls for one volume are made one after the other. An operation whose first call has been made is finished
    although the pod is deleted meanwhile, since the driver would not stop either; the next operation undoes
    it.
    """

    def __init__(self, client: Client, registry: CsiRegistry, node_name: str) -> None:
        self._client = client
        self._registry = registry
        self._node_name = node_name
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """By driver and handle, as long as they are in use."""
        self._operations: dict[str, set[asyncio.Task[None]]] = {}
        """Operations in progress, by pod uid."""

    async def publish(self, pod: JsonObject, persistent: JsonObject, *, read_only: bool) -> Prepared:
        """Stage the volume on the node and publish it to the pod. Raises ContentProblem, OSError."""
        source = get_object(persistent, "spec", "csi")
        name, handle = get_str(source, "driver"), get_str(source, "volumeHandle")
        driver = self._driver(name)
        rules = await self._rules(name)
        block = get_str(persistent, "spec", "volumeMode") == "Block"
        record = Record(
            pod_uid=get_str(pod, "metadata", "uid"),
            volume=get_str(persistent, "metadata", "name"),
            driver=name,
            handle=handle,
            block=block,
            staged=_STAGE in driver.capabilities,
        )
        read_only = read_only or get_bool(source, "readOnly")
        attributes = get_object(source, "volumeAttributes")
        request = {
            "volume_id": handle,
            "publish_context": await self._attachment(name, handle, rules),
            "volume_capability": capability(persistent, driver.capabilities, block=block),
            **({"staging_target_path": str(record.staging)} if record.staged else {}),
        }
        shown = _pod_info(pod) if get_bool(rules, "spec", "podInfoOnMount") else {}
        stage = {
            **request,
            "volume_context": attributes,
            "secrets": await self._secrets(source, "nodeStageSecretRef") if record.staged else {},
        }
        publish = {
            **request,
            "volume_context": {**attributes, **shown},
            "target_path": str(record.target),
            "readonly": read_only,
            "secrets": await self._secrets(source, "nodePublishSecretRef"),
        }
        await self._alone(record, lambda: self._do(driver, record, stage, publish))
        if block:
            _link_device(record)
        elif not read_only and _wants_ownership(persistent, rules):
            await ownership.apply(pod, record.target)
        return Prepared(record.target, read_only, is_block=block)

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
        self, driver: Driver, record: Record, stage: Mapping[str, Any], publish: Mapping[str, Any]
    ) -> None:
        csi_records.write(record, self._node_name)
        if record.staged:
            record.staging.mkdir(parents=True, exist_ok=True, mode=0o750)
            await driver.call("NodeStageVolume", stage)
        record.target.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        await driver.call("NodePublishVolume", publish)

    async def _undo(self, record: Record) -> None:
        if not record.file.exists():
            return  # an earlier operation has already done it
        driver = self._driver(record.driver)
        values = {"volume_id": record.handle, "target_path": str(record.target)}
        await driver.call("NodeUnpublishVolume", values)
        _remove_target(record)
        staged = _STAGE in driver.capabilities if record.staged is None else record.staged
        if staged and not csi_records.is_staged_for_others(record):
            values = {"volume_id": record.handle, "staging_target_path": str(record.staging)}
            await driver.call("NodeUnstageVolume", values)
            _remove_staging(record)
        csi_records.remove(record)

    def _driver(self, name: str) -> Driver:
        driver = self._registry.get(name)
        if driver is None:
            raise ContentProblem(f"driver name {name} not found in the list of registered CSI drivers")
        return driver

    async def _rules(self, name: str) -> JsonObject:
        """The CSIDriver object of a driver; empty when it does not exist."""
        try:
            return await self._client.get(CSI_DRIVERS, name)
        except StatusError as error:
            if error.code != 404:
                raise
            return {}

    async def _attachment(self, name: str, handle: str, rules: JsonObject) -> JsonObject:
        """The context of the volume's attachment to this node, for drivers that attach."""
        if not rules or not get_bool(rules, "spec", "attachRequired", default=True):
            return {}
        attachment = "csi-" + hashlib.sha256(f"{handle}{name}{self._node_name}".encode()).hexdigest()
        try:
            found = await self._client.get(VOLUME_ATTACHMENTS, attachment)
        except StatusError as error:
            raise ContentProblem(f"attachment {attachment}: {error.message}") from error
        if not get_bool(found, "status", "attached"):
            raise ContentProblem(f"volume {handle} is not attached to {self._node_name} yet")
        return get_object(found, "status", "attachmentMetadata")

    async def _secrets(self, source: JsonObject, field: str) -> dict[str, str]:
        reference = get_object(source, field)
        if not reference:
            return {}
        try:
            found = await self._client.get(
                SECRETS, get_str(reference, "name"), get_str(reference, "namespace")
            )
        except StatusError as error:
            raise ContentProblem(f"{field}: {error.message}") from error
        return {key: decode_text(value) for key, value in get_object(found, "data").items()}


def capability(persistent: JsonObject, offered: frozenset[int], *, block: bool) -> dict[str, Any]:
    """CSI's VolumeCapability of a persistent volume."""
    modes = get_list(persistent, "spec", "accessModes") or ["ReadWriteOnce"]
    table: Mapping[str, int] = _ACCESS_MODES
    if _MULTI_WRITER in offered:
        table = {**_ACCESS_MODES, **_MULTI_WRITER_MODES}
    # The widest mode that the volume allows comes first.
    order = ("ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce", "ReadWriteOncePod")
    mode = next((table[name] for name in order if name in modes), 0)
    if block:
        return {"block": {}, "access_mode": {"mode": mode}}
    mount = {
        "fs_type": get_str(persistent, "spec", "csi", "fsType"),
        "mount_flags": get_list(persistent, "spec", "mountOptions"),
    }
    return {"mount": mount, "access_mode": {"mode": mode}}


def _link_device(record: Record) -> None:
    link = identity.pod_directory(record.pod_uid) / "volumeDevices" / "kubernetes.io~csi" / record.volume
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(record.target)


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


def _wants_ownership(persistent: JsonObject, rules: JsonObject) -> bool:
    policy = get_str(rules, "spec", "fsGroupPolicy", default="ReadWriteOnceWithFSType")
    if policy == "ReadWriteOnceWithFSType":
        once = "ReadWriteOnce" in get_list(persistent, "spec", "accessModes")
        return once and bool(get_str(persistent, "spec", "csi", "fsType"))
    return policy == "File"


def _pod_info(pod: JsonObject) -> dict[str, str]:
    metadata = get_object(pod, "metadata")
    return {
        "csi.storage.k8s.io/pod.name": get_str(metadata, "name"),
        "csi.storage.k8s.io/pod.namespace": get_str(metadata, "namespace"),
        "csi.storage.k8s.io/pod.uid": get_str(metadata, "uid"),
        "csi.storage.k8s.io/serviceAccount.name": get_str(pod, "spec", "serviceAccountName"),
        "csi.storage.k8s.io/ephemeral": "false",
    }
