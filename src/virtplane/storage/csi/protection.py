"""Claims that are copied, and snapshots that are restored, stay until that is done."""

from __future__ import annotations

import asyncio
import logging

from kubecore.client import ConnectionFailed
from kubecore.errors import StatusError, is_lost_race
from kubecore.json import get_list
from kubecore.objects.structs import UnfitDocument, readable
from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from kubecore.runtime import DONE, Controller, Key, Result
from virtplane.api import resources as kinds
from virtplane.api import storage_labels as names
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.api.volumesnapshot_v1 import VolumeSnapshot
from virtplane.cluster.objects import finalizer_patch
from virtplane.storage.csi.content_sources import data_source, names_claim, names_snapshot
from virtplane.storage.csi.parts import Environment, Problem, patch

logger = logging.getLogger(__name__)

_ATTEMPTS = 5
"""Of one sweep, where somebody else was faster."""


def is_pending(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim has no volume yet."""
    return claim.status.phase in ("", "Pending")


class CloningProtection:
    """Reconciles claims that are being deleted while copies of them are made."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._claims = env.manager.informer(PERSISTENT_VOLUME_CLAIMS, struct=PersistentVolumeClaim)
        controller = Controller("csi-cloning-protection", self.reconcile, max_delay=60.0)
        controller.watch(self._claims, _itself_and_source)
        env.manager.add(controller)

    async def reconcile(self, key: Key) -> Result:
        """Let the claim go once no copy of it is pending. Raises StatusError, ConnectionFailed."""
        try:
            claim = self._claims.get(*key)
        except UnfitDocument:
            return DONE  # the provisioner says so
        if claim is None or not claim.metadata.is_being_deleted:
            return DONE
        operations = finalizer_patch(claim.metadata, names.CLONING_PROTECTION, present=False)
        if not operations or any(self._is_copying(each, key) for each in self._claims.list()):
            return DONE
        # Another node's provisioner may have begun what this cache does not show.
        if not any(self._is_copying(each, key) for each in await self._claims.read_live()):
            await patch(self._env.client, PERSISTENT_VOLUME_CLAIMS, claim, operations)
        return DONE

    def _is_copying(self, claim: PersistentVolumeClaim, source: Key) -> bool:
        return is_pending(claim) and names_claim(claim, *source)


def _itself_and_source(claim: PersistentVolumeClaim) -> list[Key]:
    own = (claim.metadata.namespace, claim.metadata.name)
    try:
        source = data_source(claim, across_namespaces=True)
    except Problem:
        return [own]
    return [own] if source is None or not source.is_claim else [own, (source.namespace, source.name)]


async def sweep_snapshots(env: Environment, seconds: float) -> None:
    """Every so many `seconds`, let go the snapshots that nothing is restored from."""
    while True:
        await let_snapshots_go(env)
        await asyncio.sleep(seconds)


async def let_snapshots_go(env: Environment, made_for: str = "") -> None:
    """Let go the snapshots that nothing is restored from; what cannot be done now, the next sweep does.

    `made_for` is the uid of a claim that has its volume already, though its status does not say so yet.
    """
    for _ in range(_ATTEMPTS):
        try:
            await sweep_once(env, made_for)
        except (StatusError, ConnectionFailed) as error:
            if is_lost_race(error):
                continue  # the snapshot controller writes to the same snapshots
            if not (isinstance(error, StatusError) and error.code in (403, 404)):
                logger.warning("restored snapshots are not let go, trying again: %s", error)
        return


async def sweep_once(env: Environment, made_for: str = "") -> None:
    """Remove the finalizer of restoring from snapshots that nothing is restored from.

    Raises StatusError (404 where the cluster knows no snapshots) and ConnectionFailed.
    """
    found = get_list(await env.client.list(kinds.VOLUME_SNAPSHOTS), "items")
    held = [
        snapshot
        for snapshot in readable(VolumeSnapshot, found)
        if names.RESTORING_PROTECTION in snapshot.metadata.finalizers
    ]
    if not held:
        return
    # Read after the snapshots: whoever protects one has a claim that is pending by then.
    live = get_list(await env.client.list(PERSISTENT_VOLUME_CLAIMS), "items")
    claims = [claim for claim in readable(PersistentVolumeClaim, live) if claim.metadata.uid != made_for]
    pending = [claim for claim in claims if is_pending(claim)]
    for snapshot in held:
        key = snapshot.metadata.namespace, snapshot.metadata.name
        if not any(names_snapshot(claim, *key) for claim in pending):
            operations = finalizer_patch(snapshot.metadata, names.RESTORING_PROTECTION, present=False)
            await patch(env.client, kinds.VOLUME_SNAPSHOTS, snapshot, operations)
