"""CSI's Node service."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kubecore import loop_devices
from kubecore.wire import Message
from virtplane.storage.hostpath import health, images, mounts, usage, volumes
from virtplane.storage.hostpath.configuration import Configuration
from virtplane.storage.hostpath.controller import TOPOLOGY_KEY
from virtplane.storage.hostpath.failures import Code, CsiFailure, invalid, not_found
from virtplane.storage.hostpath.locks import locked
from virtplane.storage.hostpath.pool import BLOCK, DIRECTORY, FILE_SYSTEM, IMAGE, Pool, Volume, is_identifier
from virtplane.storage.hostpath.requests import EPHEMERAL, Range, is_of_one_node, pool_name, range_of

_CAPABILITIES = {"STAGE_UNSTAGE_VOLUME": 1, "GET_VOLUME_STATS": 2, "EXPAND_VOLUME": 3, "VOLUME_CONDITION": 4}


class Node:
    """Volumes in use on this node."""

    def __init__(self, configuration: Configuration, pools: Mapping[str, Pool]) -> None:
        self._node = configuration.node
        self._pools = pools

    def node_get_info(self, _: Message) -> dict[str, Any]:
        """This node's name, and its segment of the topology."""
        return {"node_id": self._node, "accessible_topology": {"segments": {TOPOLOGY_KEY: self._node}}}

    def node_get_capabilities(self, _: Message) -> dict[str, Any]:
        """What this service can do."""
        return {"capabilities": [{"rpc": {"type": number}} for number in _CAPABILITIES.values()]}

    # Staging: the image's loop device, and its file system.

    def node_stage_volume(self, request: Message) -> dict[str, Any]:
        """Attach an image, and mount its file system; a directory needs neither."""
        _check_given(request, "staging target path", request.staging_target_path)
        _check_capability(request)
        pool, volume = volumes.existing(self._pools, request.volume_id)
        self._check_mode(request, volume)
        if volume.content.format == DIRECTORY:
            return {}
        staging = _path(request.staging_target_path)
        with locked(pool.record_folder(volume.id), f"volume {volume.id}"):
            if is_of_one_node(request.volume_capability) and not mounts.is_mounted(staging):
                usage.take(pool, volume, self._node, staging)
            usage.add_user(pool, volume, self._node)
            with _attach(pool, volume) as loop:
                if volume.content.mode == FILE_SYSTEM:
                    self._mount(pool, volume, loop, staging, request.volume_capability.mount.mount_flags)
        return {}

    def _mount(
        self, pool: Pool, volume: Volume, loop: loop_devices.Loop, staging: Path, flags: Iterable[str]
    ) -> None:
        kind = volume.content.fs_type
        loop.refresh_size()
        if not mounts.is_mounted(staging):
            staging.mkdir(mode=0o750, parents=True, exist_ok=True)
            mounts.mount_device(loop.path, staging, kind, (*images.mount_options(kind), *flags))
        # Also where it was mounted: the call that did so may have failed, or been killed, after that.
        if os.statvfs(staging).f_flag & os.ST_RDONLY:
            return
        images.grow_file_system(kind, loop.path, staging)
        if volume.is_fresh:
            # As directories of this driver: writable for whichever user the first pod runs as.
            staging.chmod(0o777)
            pool.write_volume(msgspec.structs.replace(volume, is_fresh=False))

    def node_unstage_volume(self, request: Message) -> dict[str, Any]:
        """Unmount an image's file system, and detach the image once no node uses it."""
        _check_given(request, "staging target path", request.staging_target_path)
        found = volumes.find(self._pools, request.volume_id)
        if found is None or found[1].content.format == DIRECTORY:
            mounts.unmount(_path(request.staging_target_path))
            return {}
        pool, volume = found
        with locked(pool.record_folder(volume.id), f"volume {volume.id}"):
            mounts.unmount(_path(request.staging_target_path))
            usage.remove_user(pool, volume.id, self._node)
            usage.detach_unused(pool, volume.id)
        return {}

    # Publishing: bind mounts in a pod's folder.

    def node_publish_volume(self, request: Message) -> dict[str, Any]:
        """Show a volume at a pod's path."""
        _check_given(request, "target path", request.target_path)
        _check_capability(request)
        if request.volume_context.get(EPHEMERAL) == "true":
            pool, volume = self._ephemeral(request)
        else:
            pool, volume = volumes.existing(self._pools, request.volume_id)
        self._check_mode(request, volume)
        target = _path(request.target_path)
        if volume.content.mode == BLOCK:
            if not mounts.is_mounted(target):
                self._publish_device(pool, volume, target)
            return {}
        if volume.content.format == IMAGE:
            _check_given(request, "staging target path", request.staging_target_path)
            source = _path(request.staging_target_path)
            if not mounts.is_mounted(source):
                raise CsiFailure(Code.FAILED_PRECONDITION, f"volume {volume.id} is not staged at {source}")
        else:
            source = pool.directory(volume.id)
        target.mkdir(mode=0o750, exist_ok=True)
        flags: tuple[str, ...] = ()
        if volume.content.format == DIRECTORY:
            # Tenants can make device nodes in it, on the disk of the node: they open nothing.
            flags = ("nodev", *request.volume_capability.mount.mount_flags)
        try:
            mounts.bind(source, target, flags, read_only=request.readonly)
        except mounts.UnknownOption as error:
            raise invalid(f"mount option {error} is not possible for directory volumes") from error
        return {}

    def _publish_device(self, pool: Pool, volume: Volume, target: Path) -> None:
        with locked(pool.record_folder(volume.id), f"volume {volume.id}"):
            with pool.image(volume.id).open("rb") as file:
                loop = loop_devices.find(file.fileno(), usage.tail(volume.id))
            if loop is None or self._node not in usage.users(pool, volume.id):
                if loop is not None:
                    loop.close()
                raise CsiFailure(Code.FAILED_PRECONDITION, f"volume {volume.id} is not staged on this node")
            with loop:
                target.touch(mode=0o600, exist_ok=True)
                mounts.bind(loop.path, target)

    def node_unpublish_volume(self, request: Message) -> dict[str, Any]:
        """Remove a volume from a pod's path; the path goes, but nothing that is in it."""
        _check_given(request, "target path", request.target_path)
        target = _path(request.target_path)
        mounts.unmount(target)
        if target.is_dir() and not target.is_symlink():
            target.rmdir()
        else:
            target.unlink(missing_ok=True)
        found = volumes.find(self._pools, request.volume_id)
        if found is not None and found[1].is_ephemeral:
            volumes.end_ephemeral(*found)
        return {}

    def _ephemeral(self, request: Message) -> tuple[Pool, Volume]:
        pool = self._pools.get(pool_name(request.volume_context)) or next(iter(self._pools.values()), None)
        if pool is None:
            raise CsiFailure(Code.FAILED_PRECONDITION, "there is no storage pool for inline volumes")
        if not is_identifier(request.volume_id):
            raise invalid(f"volume ID {request.volume_id!r} cannot be that of an inline volume")
        return pool, volumes.create_ephemeral(pool, request.volume_id)

    def _check_mode(self, request: Message, volume: Volume) -> None:
        """The mode is the volume's, whatever the request says: no disk of a tenant is ever mounted."""
        kind = request.volume_capability.WhichOneof("access_type")
        if volume.content.mode == FILE_SYSTEM and kind == "block":
            raise invalid("cannot publish a non-block volume as block volume")
        if volume.content.mode == FILE_SYSTEM and kind != "mount":
            raise invalid("can only publish a non-block volume")
        if volume.content.mode == BLOCK and kind != "block":
            raise invalid("cannot publish a block volume as non-block volume")

    # Size and condition.

    def node_expand_volume(self, request: Message) -> dict[str, Any]:
        """Make a volume's image, its device and its file system as large as is wanted."""
        _check_given(request, "volume path", request.volume_path)
        pool, volume = volumes.existing(self._pools, request.volume_id)
        sizes = range_of(request.capacity_range) if request.HasField("capacity_range") else Range(0, 0)
        volume = volumes.expand(pool, volume, sizes)
        if volume.content.format == IMAGE:
            with locked(pool.record_folder(volume.id), f"volume {volume.id}"), _find(pool, volume) as loop:
                loop.refresh_size()
                if volume.content.mode == FILE_SYSTEM:
                    path = _path(request.staging_target_path or request.volume_path)
                    if not mounts.is_mounted(path):
                        raise CsiFailure(
                            Code.FAILED_PRECONDITION, f"volume {volume.id} is not mounted at {path}"
                        )
                    images.grow_file_system(volume.content.fs_type, loop.path, path)
        return {"capacity_bytes": volume.content.size}

    def node_get_volume_stats(self, request: Message) -> dict[str, Any]:
        """The space on a volume, and its condition."""
        _check_given(request, "volume path", request.volume_path)
        pool, volume = volumes.existing(self._pools, request.volume_id)
        path = Path(request.volume_path)
        try:
            status = path.stat()
        except OSError as error:
            raise not_found(f"Could not get file information from {path}: {error}") from error
        if stat.S_ISBLK(status.st_mode) or volume.content.mode == BLOCK:
            space = health.device_usage(volume.content.size)
            condition = health.condition("" if mounts.is_mounted(path) else "The volume isn't mounted")
        else:
            space, condition = health.usage(os.statvfs(path)), health.of_mounted(path)
        if volume.content.format == IMAGE and not condition["abnormal"] and pool.is_full():
            # There may be room in the volume, but not below it.
            condition = health.condition(f"Storage pool {pool.name} is full")
        return {"usage": space, "volume_condition": condition}


def _check_given(request: Message, what: str, path: str) -> None:
    if not request.volume_id:
        raise invalid("volume ID not provided")
    if not path:
        raise invalid(f"{what} not provided")


def _check_capability(request: Message) -> None:
    if not request.HasField("volume_capability"):
        raise invalid("volume capability not provided")


def _path(path: str) -> Path:
    if not path.startswith("/") or ".." in path.split("/"):
        raise invalid(f"{path!r} is not an absolute path")
    # As the list of mounts has it, where the kubelet's folder is a link.
    return Path(path).parent.resolve() / Path(path).name


def _attach(pool: Pool, volume: Volume) -> loop_devices.Loop:
    descriptor = os.open(pool.image(volume.id), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        is_block = volume.content.mode == BLOCK
        sector = images.DEVICE_SECTOR if is_block else images.FILE_SYSTEM_SECTOR
        return loop_devices.attach(descriptor, usage.tail(volume.id), sector=sector, keep=is_block)
    finally:
        os.close(descriptor)


def _find(pool: Pool, volume: Volume) -> loop_devices.Loop:
    with pool.image(volume.id).open("rb") as file:
        loop = loop_devices.find(file.fileno(), usage.tail(volume.id))
    if loop is None:
        raise CsiFailure(Code.FAILED_PRECONDITION, f"volume {volume.id} is not staged on this node")
    return loop
