"""What the finalizers of installations wait for."""

from __future__ import annotations

from collections.abc import Iterable

from kubecore.objects import meta
from kubecore.resources import ResourceType
from virtplane.api import resources as kinds
from virtplane.deletions.reading import Situation
from virtplane.deletions.waits import Wait

_SHOWN = 3
_USERS = (
    kinds.VIRTUAL_MACHINE_POOLS,
    kinds.VIRTUAL_MACHINES,
    kinds.VIRTUAL_MACHINE_INSTANCE_REPLICA_SETS,
    kinds.VIRTUAL_MACHINE_INSTANCE_MIGRATIONS,
    kinds.VIRTUAL_MACHINE_INSTANCES,
)
_CDI_USERS = (
    kinds.DATA_IMPORT_CRONS,
    kinds.DATA_VOLUMES,
    kinds.OBJECT_TRANSFERS,
    kinds.DATA_SOURCES,
    kinds.VOLUME_CLONE_SOURCES,
    kinds.VOLUME_IMPORT_SOURCES,
    kinds.VOLUME_UPLOAD_SOURCES,
)
"""The operators delete these first, while their controllers still work."""


async def of_kubevirt(situation: Situation) -> Wait | None:
    """KubeVirt waits for its users' objects. Raises StatusError."""
    return await _of_users(situation, _USERS)


async def of_cdi(situation: Situation) -> Wait | None:
    """CDI waits for its users' objects. Raises StatusError."""
    return await _of_users(situation, _CDI_USERS)


async def _of_users(situation: Situation, listed: Iterable[ResourceType]) -> Wait | None:
    """An installation waits until no object of its users is left. Raises StatusError."""
    for kind in listed:
        found = await situation.listed(kind)
        if not found:
            continue
        names = ", ".join(f"{meta.namespace(each)}/{meta.name(each)}".lstrip("/") for each in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        first = found[0]
        where = f" -n {meta.namespace(first)}" if meta.namespace(first) else ""
        return Wait(
            f"{len(found)} {kind.plural} are there ({names}{more})",
            f"see why the first one is: virtctl explain-status {kind.plural}/{meta.name(first)}{where}",
            unsafe="they would be left without what ends their guests and keeps their disks",
        )
    return None
