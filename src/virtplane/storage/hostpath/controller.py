"""CSI's Controller service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from kubecore.wire import Message
from virtplane.storage.hostpath import health, snapshots, usage, volumes
from virtplane.storage.hostpath.configuration import Configuration
from virtplane.storage.hostpath.failures import Code, CsiFailure, invalid, not_found
from virtplane.storage.hostpath.pool import DIRECTORY, IMAGE, Pool, Snapshot, Volume, sync_all
from virtplane.storage.hostpath.requests import (
    aligned,
    is_supported,
    new_volume,
    pool_name,
    range_of,
)

TOPOLOGY_KEY = "topology.hostpath.csi/node"

_CAPABILITIES = {
    "CREATE_DELETE_VOLUME": 1,
    "LIST_VOLUMES": 3,
    "GET_CAPACITY": 4,
    "CREATE_DELETE_SNAPSHOT": 5,
    "LIST_SNAPSHOTS": 6,
    "CLONE_VOLUME": 7,
    "EXPAND_VOLUME": 9,
    "VOLUME_CONDITION": 11,
    "GET_VOLUME": 12,
    "GET_SNAPSHOT": 15,
}
_SECOND = 1_000_000_000
_Listed = TypeVar("_Listed", Volume, Snapshot)


class Controller:
    """Volumes and snapshots of the pools of one node."""

    def __init__(self, configuration: Configuration, pools: Mapping[str, Pool]) -> None:
        self._node = configuration.node
        self._pools = pools

    def controller_get_capabilities(self, _: Message) -> dict[str, Any]:
        """What this service can do; snapshots only where a pool has them."""
        has_snapshots = any(pool.info.snapshot_provider is not None for pool in self._pools.values())
        return {
            "capabilities": [
                {"rpc": {"type": number}}
                for name, number in _CAPABILITIES.items()
                if has_snapshots or "SNAPSHOT" not in name
            ]
        }

    # Volumes.

    def create_volume(self, request: Message) -> dict[str, Any]:
        """Make a volume in the class's pool."""
        wanted = new_volume(request)
        pool = self._pool(pool_name(request.parameters))
        if not pool.info.shared:
            self._check_topology(request)
        volume = volumes.create(self._pools, pool, wanted)
        answer = self._volume(pool, volume)
        if volume.content.format == DIRECTORY:
            capacity = max(answer["capacity_bytes"], wanted.range.required)
            # 0 is unknown: it is the pool's, of which more than the limit may be used.
            answer["capacity_bytes"] = capacity if wanted.range.allows(capacity) else 0
        answer["volume_context"] = dict(request.parameters)
        if request.HasField("volume_content_source"):
            answer["content_source"] = request.volume_content_source
        return {"volume": answer}

    def delete_volume(self, request: Message) -> dict[str, Any]:
        """Remove a volume; it is no error if there is none."""
        if not request.volume_id:
            raise invalid("Volume ID missing in request")
        found = volumes.find(self._pools, request.volume_id)
        if found is None:
            self._check_all_there(f"volume {request.volume_id[:128]}")
            sync_all(self._pools)
        else:
            volumes.delete(*found)
        return {}

    def validate_volume_capabilities(self, request: Message) -> dict[str, Any]:
        """Whether a volume can be used in some ways."""
        if not request.volume_id:
            raise invalid("volume ID not provided")
        if not request.volume_capabilities:
            raise invalid(f"volumeCapabilities not provided for {request.volume_id}")
        _, volume = volumes.existing(self._pools, request.volume_id)
        if any(capability.WhichOneof("access_type") is None for capability in request.volume_capabilities):
            raise invalid("mount type is undefined")
        if not is_supported(request.volume_capabilities, volume.content):
            return {"message": f"the volume's mode is {volume.content.mode}"}
        return {
            "confirmed": {
                "volume_context": dict(request.volume_context),
                "volume_capabilities": list(request.volume_capabilities),
                "parameters": dict(request.parameters),
            }
        }

    def list_volumes(self, request: Message) -> dict[str, Any]:
        """The volumes of all pools, in the order in which they were made."""
        found = {
            volume.id: (pool, volume)
            for pool in self._pools.values()
            for volume in pool.list_volumes()
            if volume.is_whole
        }
        page, token = _page([volume for _, volume in found.values()], request, "volume")
        return {"entries": [self._entry(*found[volume.id]) for volume in page], "next_token": token}

    def controller_get_volume(self, request: Message) -> dict[str, Any]:
        """One volume and its condition."""
        if not request.volume_id:
            raise invalid("volume ID not provided")
        return self._entry(*volumes.existing(self._pools, request.volume_id))

    def controller_expand_volume(self, request: Message) -> dict[str, Any]:
        """Make a volume larger. Its node does the rest, also where the volume is on another node."""
        if not request.volume_id:
            raise invalid("volume ID not provided")
        if not request.HasField("capacity_range"):
            raise invalid("capacity range not provided")
        sizes = range_of(request.capacity_range)
        found = volumes.find(self._pools, request.volume_id)
        if found is None and not all(pool.info.shared for pool in self._pools.values()):
            # One resizer serves all nodes, but a local pool's volumes are on one of them: NodeExpandVolume
            # does there all that this call would.
            return {"capacity_bytes": aligned(sizes.required), "node_expansion_required": True}
        pool, volume = volumes.existing(self._pools, request.volume_id)
        volume = volumes.expand(pool, volume, sizes)
        return {
            "capacity_bytes": volume.content.size,
            "node_expansion_required": volume.content.format == IMAGE,
        }

    def get_capacity(self, request: Message) -> dict[str, Any]:
        """The free space of a pool, and the size of the largest volume, which may exceed it."""
        pool = self._pool(pool_name(request.parameters))
        space = pool.space()
        if not pool.info.shared and request.HasField("accessible_topology"):
            segments = request.accessible_topology.segments
            if segments and segments.get(TOPOLOGY_KEY) != self._node:
                return {"available_capacity": 0}
        return {
            "available_capacity": space.f_bavail * space.f_frsize,
            "maximum_volume_size": {"value": space.f_blocks * space.f_frsize},
            "minimum_volume_size": {"value": 0},
        }

    def controller_publish_volume(self, _: Message) -> dict[str, Any]:
        """Volumes are not attached to nodes."""
        raise CsiFailure(Code.UNIMPLEMENTED, "ControllerPublishVolume is not supported")

    def controller_unpublish_volume(self, _: Message) -> dict[str, Any]:
        """Volumes are not attached to nodes."""
        raise CsiFailure(Code.UNIMPLEMENTED, "ControllerUnpublishVolume is not supported")

    def controller_modify_volume(self, _: Message) -> dict[str, Any]:
        """Volumes have no attributes that can change."""
        raise CsiFailure(Code.UNIMPLEMENTED, "controllerModifyVolume is not supported")

    # Snapshots.

    def create_snapshot(self, request: Message) -> dict[str, Any]:
        """Make a snapshot of a volume."""
        parameters = dict(request.parameters)
        return {
            "snapshot": _snapshot(
                snapshots.create(self._pools, request.name, request.source_volume_id, parameters)
            )
        }

    def delete_snapshot(self, request: Message) -> dict[str, Any]:
        """Remove a snapshot; it is no error if there is none."""
        if not request.snapshot_id:
            raise invalid("snapshot id missing in request")
        if not snapshots.delete(self._pools, request.snapshot_id):
            self._check_all_there(f"snapshot {request.snapshot_id[:128]}")
        return {}

    def list_snapshots(self, request: Message) -> dict[str, Any]:
        """The snapshots of all pools, or one, or those of one volume, in the order of their making."""
        if request.snapshot_id:
            found = snapshots.find(self._pools, request.snapshot_id)
            listed = [found[1]] if found is not None else []
        else:
            listed = [one for pool in self._pools.values() for one in pool.list_snapshots()]
        if request.source_volume_id:
            listed = [one for one in listed if one.source == request.source_volume_id]
        page, token = _page(listed, request, "snapshot")
        return {"entries": [{"snapshot": _snapshot(one)} for one in page], "next_token": token}

    def get_snapshot(self, request: Message) -> dict[str, Any]:
        """One snapshot."""
        if not request.snapshot_id:
            raise invalid("snapshot id missing in request")
        found = snapshots.find(self._pools, request.snapshot_id)
        if found is None:
            raise not_found(f"snapshot {request.snapshot_id[:128]} not found")
        return {"snapshot": _snapshot(found[1])}

    # Parts.

    def _pool(self, name: str) -> Pool:
        pool = self._pools.get(name)
        if pool is None:
            raise invalid(f"unable to locate path for storage pool {name}")
        _check_there(pool)
        return pool

    def _check_all_there(self, missing: str) -> None:
        """What is not found does not exist only if all pools can be looked at. Raises CsiFailure."""
        for pool in self._pools.values():
            _check_there(pool, f"{missing} is not known: ")

    def _check_topology(self, request: Message) -> None:
        if not request.HasField("accessibility_requirements"):
            return
        wanted = request.accessibility_requirements
        for topology in (*wanted.requisite, *wanted.preferred):
            if topology.segments.get(TOPOLOGY_KEY) == self._node:
                return
        raise invalid("not correct node")

    def _volume(self, pool: Pool, volume: Volume) -> dict[str, Any]:
        capacity = volume.content.size
        if volume.content.format == DIRECTORY:
            space = pool.space()
            capacity = health.rounded_down(space.f_blocks * space.f_frsize)
        topology = [] if pool.info.shared else [{"segments": {TOPOLOGY_KEY: self._node}}]
        return {"volume_id": volume.id, "capacity_bytes": capacity, "accessible_topology": topology}

    def _entry(self, pool: Pool, volume: Volume) -> dict[str, Any]:
        image = volume.content.format == IMAGE
        nodes = sorted(usage.users(pool, volume.id)) if image else [self._node]
        status = {"published_node_ids": nodes, "volume_condition": health.of_source(pool, volume)}
        return {"volume": self._volume(pool, volume), "status": status}


def _check_there(pool: Pool, before: str = "") -> None:
    if not pool.is_there():
        problem = f"the claim of storage pool {pool.name} is not mounted on this node yet"
        raise CsiFailure(Code.FAILED_PRECONDITION, before + problem)


def _snapshot(snapshot: Snapshot) -> dict[str, Any]:
    seconds, nanos = divmod(snapshot.created, _SECOND)
    return {
        "snapshot_id": snapshot.id,
        "source_volume_id": snapshot.source,
        "size_bytes": snapshot.content.size,
        "creation_time": {"seconds": seconds, "nanos": nanos},
        "ready_to_use": True,
    }


def _page(listed: Sequence[_Listed], request: Message, what: str) -> tuple[Sequence[_Listed], str]:
    """The entries that a list request asks for, and the token of the next page.

    A token is the moment at which the last entry was made: entries that come and go between two pages neither
    hide nor repeat others.
    """
    if request.max_entries < 0:
        raise invalid("maxEntries < 0")
    entries = sorted(listed, key=lambda one: (one.created, one.id))
    if request.starting_token:
        if not request.starting_token.isdecimal():
            raise CsiFailure(Code.ABORTED, "the type of startingToken should be integer")
        after = int(request.starting_token[:20])
        entries = [one for one in entries if one.created > after]
        if not entries and not listed:
            raise CsiFailure(Code.ABORTED, f"{what} {request.starting_token[:20]} not found")
    if not request.max_entries or len(entries) <= request.max_entries:
        return entries, ""
    page = entries[: request.max_entries]
    return page, str(page[-1].created)
