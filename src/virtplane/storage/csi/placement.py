"""Which node's provisioner takes a claim that no node was chosen for, where each node has its own.

All of them would like to: each waits for a time of chance, looks whether another one was faster, and writes
its node down. The write tests that nobody has.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping

from kubecore.resources import PERSISTENT_VOLUME_CLAIMS
from kubecore.runtime import DONE, RequeueAfter, Result
from kubecore.runtime.queue import ItemBackoff
from virtplane.api import storage_labels as names
from virtplane.api.storage_kinds import PersistentVolumeClaim, StorageClass
from virtplane.storage.csi.driver import CallError
from virtplane.storage.csi.parts import Environment, Problem, annotations_patch, patch

logger = logging.getLogger(__name__)


class Placement:
    """The bids of one node."""

    def __init__(
        self,
        env: Environment,
        node_name: str,
        topology: Mapping[str, str],
        *,
        immediate: bool = True,
        base_delay_seconds: float = 20.0,
        most_delay_seconds: float = 60.0,
    ) -> None:
        """`topology` is what the driver says of this node; `immediate`: claims without a node are taken."""
        self.node_name = node_name
        self.topology = topology
        self._env = env
        self._immediate = immediate
        self._base_seconds = base_delay_seconds
        self._backoff: ItemBackoff[str] = ItemBackoff(base_delay_seconds, most_delay_seconds)
        self._due: dict[str, float] = {}
        """When to bid for a claim, by its uid."""

    def forget(self, claim: PersistentVolumeClaim) -> None:
        """Another node has it, or nobody needs to."""
        self._backoff.forget(claim.metadata.uid)
        self._due.pop(claim.metadata.uid, None)

    async def bid(
        self,
        claim: PersistentVolumeClaim,
        storage_class: StorageClass,
        has_room: Callable[[], Awaitable[bool]],
    ) -> Result:
        """Wait, or take the claim for this node.

        `has_room` asks the driver; it may raise Problem, CallError.
        """
        if storage_class.waits_for_consumer or not self._immediate or claim.metadata.is_being_deleted:
            return DONE
        uid, now = claim.metadata.uid, asyncio.get_running_loop().time()
        if uid not in self._due:
            self._due[uid] = now + self._wait(uid)
        if self._due[uid] > now:
            return RequeueAfter(self._due[uid] - now)
        del self._due[uid]
        try:
            if not await has_room():
                return RequeueAfter(self._again(uid))
        except Problem as problem:
            # This node is none of the class's, or the claim is wrong: whoever takes it says so.
            name = f"{claim.metadata.namespace}/{claim.metadata.name}"
            logger.debug("claim %s is not taken: %s", name, problem)
            return RequeueAfter(self._again(uid))
        except CallError as error:
            logger.info("the CSI driver does not say how much room it has; assuming enough: %s", error)
        operations = annotations_patch(claim, {names.SELECTED_NODE: self.node_name})
        await patch(self._env.client, PERSISTENT_VOLUME_CLAIMS, claim, operations)
        self._backoff.forget(uid)
        return DONE

    def _wait(self, uid: str) -> float:
        return max(0.0, self._backoff.next_delay(uid) - random.uniform(0.0, self._base_seconds))

    def _again(self, uid: str) -> float:
        delay = self._wait(uid)
        self._due[uid] = asyncio.get_running_loop().time() + delay
        return max(delay, 0.01)
