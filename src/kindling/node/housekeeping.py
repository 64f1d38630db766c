"""Regular work of a node: rotating container logs, removing what nobody needs any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from kindling.node.pods.pleg import Pleg
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import Container, ContainerState, RuntimeFailure
from kindling.node.runtime.shims import LostShims
from kindling.node.server import logs

_log = logging.getLogger(__name__)

PERIOD_SECONDS = 10.0
LOG_MAX_BYTES = 10 * 1024 * 1024
LOG_MAX_FILES = 5
SHIM_PERIOD_ROUNDS = 3
IMAGE_PERIOD_ROUNDS = 30


class Housekeeping:
    """The regular work of one node. A chore that fails keeps no other from being done."""

    def __init__(
        self,
        runtime: Containerd,
        pleg: Pleg,
        chores: Sequence[Callable[[], Awaitable[None]]],
        lost_shims: LostShims,
        collect_images: Callable[[], Awaitable[None]],
    ) -> None:
        self._runtime = runtime
        self._pleg = pleg
        self._chores = chores
        self._lost_shims = lost_shims
        self._collect_images = collect_images

    async def run(self) -> None:
        """Run until cancelled."""
        rounds = 0
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            rounds += 1
            due = [self._rotate_logs, *self._chores]
            if rounds % SHIM_PERIOD_ROUNDS == 0:
                due.append(self._end_lost_shims)
            if rounds % IMAGE_PERIOD_ROUNDS == 0:
                due += [self.remove_dead_containers, self._collect_images]
            for chore in due:
                await _attempt(chore)

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
        if logs.rotate(path, LOG_MAX_BYTES, LOG_MAX_FILES) or not path.exists():
            await self._runtime.reopen_log(container.id)

    async def _end_lost_shims(self) -> None:
        shims = await asyncio.to_thread(self._lost_shims.find)
        if not shims:
            return
        sandboxes, containers = await self._runtime.list_sandboxes(), await self._runtime.list_containers()
        known = {item.id for item in sandboxes} | {item.id for item in containers}
        await asyncio.to_thread(self._lost_shims.end, shims, known)

    async def remove_dead_containers(self) -> None:
        """Remove ended containers that others have replaced; the newest tells how the pod fares.

        Raises RuntimeFailure.
        """
        for uid in self._pleg.uids():
            for group in self._pleg.runtime_status(uid).containers.values():
                for old in group[1:]:
                    if old.state is ContainerState.EXITED:
                        await self._runtime.remove_container(old.id)
                        if old.log_path:
                            logs.remove(Path(old.log_path))


async def _attempt(chore: Callable[[], Awaitable[None]]) -> None:
    name = getattr(chore, "__qualname__", repr(chore))
    try:
        await chore()
    except (RuntimeFailure, OSError) as error:
        _log.warning("housekeeping (%s) failed, trying again in %g s: %s", name, PERIOD_SECONDS, error)
    except Exception:
        # What one pod shows of itself must not end the agent of all pods.
        _log.exception("housekeeping (%s) failed, trying again in %g s", name, PERIOD_SECONDS)
