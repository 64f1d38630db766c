"""Volumes of CSI drivers: staging and publishing on this node, and undoing both.

What was published is read back from disk (``vol_data.json`` beside each mount), so that a restarted agent
undoes what its predecessor did. Paths are those that drivers and tools expect of a kubelet.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from kindling.node.pods import identity
from kindling.node.secret_values import decode_text
from kindling.node.volumes import mounts, ownership
from kindling.node.volumes.content import ContentProblem
from kindling.node.volumes.csi_registry import CsiRegistry, Driver
from kindling.node.volumes.manager import Prepared
from kubecore.client import Client
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.resources import CSI_DRIVERS, SECRETS, VOLUME_ATTACHMENTS

_ACCESS_MODES = {"ReadWriteOnce": 1, "ReadOnlyMany": 3, "ReadWriteMany": 5, "ReadWriteOncePod": 1}
_MULTI_WRITER_MODES = {"ReadWriteOnce": 7, "ReadWriteOncePod": 6}
"""Modes of drivers that tell one pod from several on one node."""
_STAGE, _MULTI_WRITER = 1, 5
"""Values of NodeServiceCapability.RPC.Type."""


class CsiVolumes:
    """The ``PersistentDriver`` of persistent volumes with a ``csi`` source."""

    def __init__(self, client: Client, registry: CsiRegistry, node_name: str) -> None:
        self._client = client
        self._registry = registry
        self._node_name = node_name

    async def publish(self, pod: JsonObject, persistent: JsonObject, *, read_only: bool) -> Prepared:
        """Stage the volume on the node and publish it to the pod. Raises ContentProblem."""
        source = get_object(persistent, "spec", "csi")
        name, handle = get_str(source, "driver"), get_str(source, "volumeHandle")
        driver = self._driver(name)
        rules = await self._rules(name)
        context = await self._attachment(name, handle, rules)
        uid, volume = get_str(pod, "metadata", "uid"), get_str(persistent, "metadata", "name")
        block = get_str(persistent, "spec", "volumeMode") == "Block"
        target = publish_path(uid, volume, block=block)
        read_only = read_only or get_bool(source, "readOnly")
        request = {
            "volume_id": handle,
            "publish_context": context,
            "volume_capability": capability(persistent, driver.capabilities, block=block),
            "volume_context": get_object(source, "volumeAttributes"),
        }
        if _STAGE in driver.capabilities:
            staging = staging_path(name, handle, volume, block=block)
            staging.mkdir(parents=True, exist_ok=True, mode=0o750)
            request["staging_target_path"] = str(staging)
            secrets = await self._secrets(source, "nodeStageSecretRef")
            await driver.call("NodeStageVolume", {**request, "secrets": secrets})
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        record = {
            "driverName": name,
            "volumeHandle": handle,
            "specVolID": volume,
            "nodeName": self._node_name,
        }
        _record_path(uid, volume).parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        _record_path(uid, volume).write_bytes(orjson.dumps(record | {"block": block}))
        if get_bool(rules, "spec", "podInfoOnMount"):
            request["volume_context"] = {**get_object(source, "volumeAttributes"), **_pod_info(pod)}
        secrets = await self._secrets(source, "nodePublishSecretRef")
        values = {"target_path": str(target), "readonly": read_only, "secrets": secrets}
        await driver.call("NodePublishVolume", {**request, **values})
        if block:
            link = identity.pod_directory(uid) / "volumeDevices" / "kubernetes.io~csi" / volume
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(target)
        elif not read_only and _wants_ownership(persistent, rules):
            await ownership.apply(pod, target)
        return Prepared(target, read_only, is_block=block)

    async def unpublish(self, pod_uid: str) -> None:
        """Undo `publish` for all volumes of a pod; unstage what no other pod uses. Raises OSError."""
        base = identity.pod_directory(pod_uid) / "volumes" / "kubernetes.io~csi"
        for record_file in base.glob("*/vol_data.json") if base.is_dir() else ():
            record = orjson.loads(record_file.read_bytes())
            name, handle, volume = record["driverName"], record["volumeHandle"], record["specVolID"]
            block = bool(record.get("block"))
            target = publish_path(pod_uid, volume, block=block)
            try:
                driver = self._driver(name)
                values = {"volume_id": handle, "target_path": str(target)}
                await driver.call("NodeUnpublishVolume", values)
                staging = staging_path(name, handle, volume, block=block)
                if _STAGE in driver.capabilities and not _used_by_others(pod_uid, volume):
                    values = {"volume_id": handle, "staging_target_path": str(staging)}
                    await driver.call("NodeUnstageVolume", values)
                    shutil.rmtree(staging, ignore_errors=True)
            except ContentProblem as problem:
                raise OSError(f"volume {volume}: {problem}") from problem
            mounts.unmount(target)
            if target.is_dir():
                target.rmdir()
            else:
                target.unlink(missing_ok=True)
            shutil.rmtree(record_file.parent)

    def _driver(self, name: str) -> Driver:
        driver = self._registry.get(name)
        if driver is None:
            raise ContentProblem(f"driver name {name} not found in the list of registered CSI drivers")
        return driver

    async def _rules(self, name: str) -> JsonObject:
        """The CSIDriver object, empty when there is none."""
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


def publish_path(pod_uid: str, volume: str, *, block: bool) -> Path:
    """Where a driver publishes a volume for a pod."""
    if block:
        return identity.ROOT / "plugins/kubernetes.io/csi/volumeDevices/publish" / volume / pod_uid
    return identity.volume_directory(pod_uid, "csi", volume) / "mount"


def staging_path(driver: str, handle: str, volume: str, *, block: bool) -> Path:
    """Where a driver stages a volume for all pods of the node."""
    base = identity.ROOT / "plugins/kubernetes.io/csi"
    if block:
        return base / "volumeDevices/staging" / volume
    return base / driver / hashlib.sha256(handle.encode()).hexdigest() / "globalmount"


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


def _record_path(pod_uid: str, volume: str) -> Path:
    return identity.volume_directory(pod_uid, "csi", volume) / "vol_data.json"


def _used_by_others(pod_uid: str, volume: str) -> bool:
    pattern = f"*/volumes/kubernetes.io~csi/{volume}/vol_data.json"
    return any(path.parts[-5] != pod_uid for path in (identity.ROOT / "pods").glob(pattern))


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
