"""Snapshots: copies that share the blocks of their volume, complete when the call that makes them ends."""

from __future__ import annotations

from collections.abc import Mapping

from virtplane.storage.hostpath import images, mounts, trees, usage, volumes
from virtplane.storage.hostpath.failures import Code, CsiFailure, invalid, not_found
from virtplane.storage.hostpath.pool import (
    IMAGE,
    Pool,
    Snapshot,
    Volume,
    is_identifier,
    now,
    put,
    sync_all,
    write_record,
)
from virtplane.storage.hostpath.requests import LEGACY_POOL, POOL_PARAMETER


def create(pools: Mapping[str, Pool], name: str, source: str, parameters: Mapping[str, str]) -> Snapshot:
    """Make a snapshot of a volume, or find the one that an earlier call made. Raises CsiFailure, OSError."""
    if not name:
        raise invalid("name missing in snapshot request")
    if not source:
        raise invalid("source volume id missing in snapshot request")
    if not is_identifier(name):
        raise invalid(f"name {name!r} cannot be the name of a snapshot")
    pool = _pool(pools, source, parameters)
    with pool.making(f"snapshot {name}"):
        known = find(pools, name)
        if known is None:
            _, volume = volumes.existing({pool.name: pool}, source)
            known = pool, _make(pool, name, volume)
    snapshot = known[1]
    known[0].sync()
    if snapshot.source != source:
        raise CsiFailure(
            Code.ALREADY_EXISTS,
            f"snapshot with the same name: {name} but with different SourceVolumeId already exist",
        )
    return snapshot


def find(pools: Mapping[str, Pool], identifier: str) -> tuple[Pool, Snapshot] | None:
    """A snapshot and its pool. Raises OSError."""
    if is_identifier(identifier):
        for pool in pools.values():
            snapshot = pool.snapshot(identifier)
            if snapshot is not None:
                return pool, snapshot
    return None


def delete(pools: Mapping[str, Pool], identifier: str) -> bool:
    """Remove a snapshot; gives whether there was one. Raises OSError."""
    found = find(pools, identifier)
    if found is None or found[0].snapshots is None:
        sync_all(pools)
        return False
    found[0].discard(found[0].snapshots / identifier)
    return True


def _pool(pools: Mapping[str, Pool], source: str, parameters: Mapping[str, str]) -> Pool:
    """The pool that the class names, or that of the volume. Raises CsiFailure if it has no snapshots."""
    name = parameters.get(POOL_PARAMETER)
    if name is None:
        found = volumes.find(pools, source)
        name = found[0].name if found is not None else next(iter(pools), LEGACY_POOL)
    pool = pools.get(name)
    if pool is None:
        raise invalid(f"unable to locate volumesnapshot path for storage pool {name}")
    if pool.snapshots is None:
        raise CsiFailure(Code.FAILED_PRECONDITION, f"volumesnapshot path not set for storage pool {name}")
    if pool.info.snapshot_provider is None:
        raise CsiFailure(Code.FAILED_PRECONDITION, f"snapshot provider not set for storage pool {name}")
    return pool


def _make(pool: Pool, name: str, volume: Volume) -> Snapshot:
    assert pool.snapshots is not None
    snapshot = Snapshot(id=name, source=volume.id, content=volume.content, created=now())
    with pool.workplace(pool.snapshots) as place:
        folder = place / "new"
        folder.mkdir(mode=0o700)
        try:
            if volume.content.format == IMAGE:
                usage.copy_image(pool, volume, folder / "disk")
            else:
                trees.copy(pool.directory(volume.id), folder / "data")
                mounts.sync_file_system(folder / "data")
        except FileNotFoundError as error:
            raise not_found(f"source volume {volume.id} not found, unable to create snapshot") from error
        except images.CannotShare as error:
            raise CsiFailure(
                Code.FAILED_PRECONDITION,
                f"volume {volume.id} is in use and storage pool {pool.name} cannot share blocks: {error}",
            ) from error
        write_record(folder, snapshot)
        if not put(folder, pool.snapshots / name):
            return pool.snapshot(name) or snapshot
    return snapshot
