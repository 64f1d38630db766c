"""Regular work of a node: rotating container logs, and image garbage collection when the disk fills."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from kindling.node.images.references import normalize
from kindling.node.pods.pleg import Pleg
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import Container, ContainerState, Image, RuntimeFailure
from kindling.node.runtime.shims import LostShims
from kindling.node.server.logs import rotate

_log = logging.getLogger(__name__)

PERIOD_SECONDS = 10.0
LOG_MAX_BYTES = 10 * 1024 * 1024
LOG_MAX_FILES = 5
SHIM_PERIOD_ROUNDS = 3
IMAGE_PERIOD_ROUNDS = 30
DISK_HIGH_PERCENT = 85
"""Use of the disk above which unused images go."""


class Housekeeping:
    """The regular work of one node."""

    def __init__(
        self,
        runtime: Containerd,
        pleg: Pleg,
        chores: Sequence[Callable[[], Awaitable[None]]],
        lost_shims: LostShims,
    ) -> None:
        self._runtime = runtime
        self._pleg = pleg
        self._chores = chores
        self._lost_shims = lost_shims

    async def run(self) -> None:
        """Run until cancelled; a failure is logged and the work is tried again."""
        rounds = 0
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            rounds += 1
            try:
                await self._rotate_logs()
                for chore in self._chores:
                    await chore()
                if rounds % SHIM_PERIOD_ROUNDS == 0:
                    await self._end_lost_shims()
                if rounds % IMAGE_PERIOD_ROUNDS == 0:
                    await self._collect_images()
            except (RuntimeFailure, OSError) as error:
                _log.warning("housekeeping failed, trying again in %g s: %s", PERIOD_SECONDS, error)

    async def _rotate_logs(self) -> None:
        for uid in self._pleg.uids():
            for container in self._pleg.runtime_status(uid).all_containers():
                if container.state is ContainerState.RUNNING and container.log_path:
                    try:
                        await self._rotate_log(container)
                    except (RuntimeFailure, OSError) as error:
                        _log.warning("rotating log %s failed, trying again: %s", container.log_path, error)

    async def _rotate_log(self, container: Container) -> None:
        path = Path(container.log_path)
        # Until the runtime opens a new file, it writes to the file that was renamed before.
        if rotate(path, LOG_MAX_BYTES, LOG_MAX_FILES) or not path.exists():
            await self._runtime.reopen_log(container.id)

    async def _end_lost_shims(self) -> None:
        shims = await asyncio.to_thread(self._lost_shims.find)
        if not shims:
            return
        sandboxes, containers = await self._runtime.list_sandboxes(), await self._runtime.list_containers()
        known = {item.id for item in sandboxes} | {item.id for item in containers}
        await asyncio.to_thread(self._lost_shims.end, shims, known)

    async def _collect_images(self) -> None:
        usage = shutil.disk_usage("/var/lib/kubelet")
        if usage.used * 100 < usage.total * DISK_HIGH_PERCENT:
            return
        used = {
            reference
            for uid in self._pleg.uids()
            for container in self._pleg.runtime_status(uid).all_containers()
            for reference in (container.image_ref, normalize(container.image))
        }
        for image in unused_images(await self._runtime.list_images(), used):
            _log.info("removing unused image %s", image.tags or image.id)
            await self._runtime.remove_image(image.id)


def unused_images(images: list[Image], used: set[str]) -> list[Image]:
    """Images that no container refers to, largest first; built-in and pinned ones stay."""

    def is_used(image: Image) -> bool:
        names = {image.id, *image.tags, *image.digests}
        built_in = any(tag.startswith("kindling.local/") for tag in image.tags)
        return image.pinned or built_in or bool(names & used)

    return sorted((image for image in images if not is_used(image)), key=lambda image: -image.size)
