"""A volume changes hands: from the claim in which it was filled to the one that was asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.objects.structs import decode
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kubecore.runtime import DONE, RequeueAfter, Result
from virtplane.api.storage_kinds import PersistentVolume, PersistentVolumeClaim
from virtplane.storage.cdi.controller import claims
from virtplane.storage.cdi.controller.populators import decisions
from virtplane.storage.cdi.controller.populators.decisions import Rebinding
from virtplane.storage.cdi.controller.workers.starting import live
from virtplane.storage.csi.parts import delete, patch, versioned

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10.0


async def rebind(
    client: Client,
    prime: PersistentVolumeClaim,
    target: PersistentVolumeClaim,
    is_whole: Callable[[PersistentVolumeClaim], bool],
    given: Callable[[], None] = lambda: None,
) -> Result:
    """Give the volume of `prime` to `target`, and call `given`. The cache may be old: all is read again.

    One write does it, for the version of the volume that was read; Kubernetes then binds the target to
    it. Before, the volume is the prime claim's, and afterwards the target's. Raises StatusError.
    """
    current, whole = await live(client, target), await live(client, prime)
    if current is None or whole is None:
        return DONE
    if not decisions.may_get(current) or not is_whole(whole):
        return DONE  # newer than the cache: their events bring the target back
    volume = await read_volume(client, whole.spec.volume_name or "")
    if volume is None:
        return RequeueAfter(RETRY_SECONDS)
    owner = decisions.owner_of(volume, whole, current)
    if owner is Rebinding.FOREIGN:
        logger.error(
            "volume %s is not that of claim %s/%s, so it is not given to %s",
            volume.metadata.name,
            prime.metadata.namespace,
            prime.metadata.name,
            target.metadata.name,
        )
        return RequeueAfter(RETRY_SECONDS)
    if owner is Rebinding.OF_PRIME:
        change = {"op": "replace", "path": "/spec/claimRef", "value": decisions.given(current)}
        await patch(client, PERSISTENT_VOLUMES, volume, versioned(volume, [change]))
        given()
    return DONE


async def begin_anew(client: Client, prime: PersistentVolumeClaim) -> Result:
    """Remove a prime claim whose volume is no more; one that was given away stays. Raises StatusError."""
    current = await live(client, prime)
    if current is None or current.status.phase != claims.LOST:
        return DONE
    if await read_volume(client, current.spec.volume_name or "") is not None:
        return RequeueAfter(RETRY_SECONDS)
    logger.warning(
        "the volume of claim %s/%s is lost, so its content is fetched again",
        prime.metadata.namespace,
        prime.metadata.name,
    )
    await delete(client, PERSISTENT_VOLUME_CLAIMS, current)
    return DONE


async def read_volume(client: Client, name: str) -> PersistentVolume | None:
    """The volume as it is now; None if there is none. Raises StatusError."""
    try:
        return decode(PersistentVolume, await client.get(PERSISTENT_VOLUMES, name))
    except StatusError as error:
        if is_not_found(error):
            return None
        raise
