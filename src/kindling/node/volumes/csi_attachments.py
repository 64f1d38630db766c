"""Attached volumes, from the node's side: what it reports in use, and waiting until a volume is attached.

The attach/detach controller detaches a volume that is not in ``volumesInUse`` of the node's status. The agent
therefore reports a volume there before it looks whether the volume is attached, and until its record is gone.
"""

from __future__ import annotations

import asyncio
import logging

from kindling.node.volumes import csi_records
from kindling.node.volumes.content import NotAttached
from kindling.scheduler.csi import CsiVolume
from kubecore.client import Client, ConnectionFailed
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.resources import NODES, VOLUME_ATTACHMENTS

_log = logging.getLogger(__name__)

WAIT_SECONDS = 123.0
"""How long a pod waits before its event says so, and it starts anew."""
_FIRST_LOOK_SECONDS, _LOOK_SECONDS = 0.2, 2.0
_CHECK_SECONDS = 60.0
_RETRY_SECONDS = 1.0


class Attachments:
    """The attachable volumes that pods of this node use or are about to use."""

    def __init__(self, client: Client, node_name: str) -> None:
        self._client = client
        self._node_name = node_name
        self._awaited: dict[str, set[str]] = {}
        """Unique names of volumes without a record yet, by pod uid."""
        self._reporting = asyncio.Lock()
        self._changed = asyncio.Event()

    async def wait(self, pod_uid: str, volume: CsiVolume) -> JsonObject:
        """Wait until the volume is attached; returns the attachment's metadata (CSI's publish context).

        The volume counts as in use from here on until `forget`. Raises NotAttached, StatusError,
        ConnectionFailed.
        """
        self._awaited.setdefault(pod_uid, set()).add(volume.unique_name)
        pause = _FIRST_LOOK_SECONDS
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while (context := await self._context(volume)) is None:
                    await asyncio.sleep(pause)
                    pause = min(_LOOK_SECONDS, 2 * pause)
        except TimeoutError as error:
            raise NotAttached("context deadline exceeded") from error
        return context

    def forget(self, pod_uid: str, unique_name: str | None = None) -> None:
        """Stop reporting a volume of a pod (None: all that it awaited) unless a record says otherwise."""
        if unique_name is None:
            if self._awaited.pop(pod_uid, None):
                self._changed.set()
            return
        self._awaited.get(pod_uid, set()).discard(unique_name)
        self._changed.set()

    async def run(self) -> None:
        """Keep ``volumesInUse`` up to date until cancelled."""
        while True:
            self._changed.clear()
            pause = _CHECK_SECONDS
            try:
                await self._report()
            except (StatusError, ConnectionFailed, OSError) as error:
                pause = _RETRY_SECONDS
                _log.warning(
                    "reporting the volumes in use of node %s failed, trying again: %s", self._node_name, error
                )
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue
            if pause == _RETRY_SECONDS:
                await asyncio.sleep(pause)

    async def _context(self, volume: CsiVolume) -> JsonObject | None:
        """The context of an attached volume; None while it is not attached."""
        node = await self._report()
        # Both lists are of one moment: the controller sees the volume in use before it can detach it.
        attached = {get_str(entry, "name") for entry in get_list(node, "status", "volumesAttached")}
        if volume.unique_name not in attached:
            return None
        try:
            found = await self._client.get(VOLUME_ATTACHMENTS, volume.attachment_name(self._node_name))
        except StatusError as error:
            if error.code in (403, 404):  # the authorizer knows no relation to what does not exist
                return None
            raise
        if meta.is_being_deleted(found) or not get_bool(found, "status", "attached"):
            return None
        return get_object(found, "status", "attachmentMetadata")

    async def _report(self) -> JsonObject:
        """Bring the node's ``volumesInUse`` up to date; returns the node as it is then."""
        # Read with the lock held: compared with an older state, a change could seem to be none.
        async with self._reporting:
            node = await self._client.get(NODES, self._node_name)
            listed = list(get_object(node, "status").get("volumesInUse") or [])
            wanted = self._in_use(listed)
            if wanted == listed:
                return node
            patch = {"status": {"volumesInUse": wanted or None}}
            return await self._client.patch(NODES, self._node_name, patch, type="merge", subresource="status")

    def _in_use(self, listed: list[str]) -> list[str]:
        """The unique names of all attachable volumes in use. Raises OSError."""
        names = set().union(*self._awaited.values())
        for file in csi_records.all_files():
            try:
                record = csi_records.read(file)
            except FileNotFoundError:
                continue
            except csi_records.DamagedRecord:
                # It may be of any volume: nothing that was reported is taken back.
                names.update(listed)
                continue
            if record.attachment:
                names.add(CsiVolume(record.driver, record.handle).unique_name)
        return sorted(names)
