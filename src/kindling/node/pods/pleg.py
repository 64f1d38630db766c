"""The pod lifecycle event generator (PLEG): caches what the container runtime has of every pod.

It relists sandboxes and containers on the runtime's events and at regular intervals, and wakes the workers of
pods that changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from kindling.node.files import read_end
from kindling.node.pods import identity
from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import Change, Container, ContainerState, RuntimeFailure, Sandbox

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_Item = TypeVar("_Item", Sandbox, Container)

RELIST_SECONDS = 10.0
"""Relisting without any event."""
_GATHER_SECONDS = 0.01
"""From an event to relisting: CRI shows the change a little later, and other events may come."""
_AFTER_EVENT = (0.03, 0.1, 0.5, 2.0)
"""Pauses before relisting again, while CRI does not show the change."""
_ANYTHING = Change("", ContainerState.UNKNOWN)
"""Expected when events may have been missed: nothing shows that all of it was seen."""
_PAUSE_SECONDS = 0.5
"""Before relisting after the runtime did not answer."""
_DETAIL_SECONDS = 5.0
"""For the status of one sandbox or container; the next relist asks again."""
_MAX_MESSAGE = 4096
"""The last bytes of a termination file that count, as for the kubelet."""
_FALLBACK_LINES = 80
_FALLBACK_BYTES = 2048
# This much of a log holds all lines whose last bytes become the message: containerd splits lines after 16
# KiB, and puts a time, the stream and a tag before each.
_FALLBACK_WINDOW = 16 * 1024 + _FALLBACK_BYTES + 64 * (_FALLBACK_LINES + 1)


class Pleg:
    """The runtime status of every pod, by uid. `changed` is called with the uid of each pod that changed."""

    def __init__(self, runtime: Containerd, changed: Callable[[str], None]) -> None:
        self._runtime = runtime
        self._changed = changed
        self._pods: dict[str, PodRuntimeStatus] = {}
        self._containers: dict[str, Container] = {}
        self._sandboxes: dict[str, Sandbox] = {}
        self._unanswered: set[str] = set()
        """Ids of sandboxes and containers whose status the runtime did not return."""
        self._expected: set[Change] = set()
        """Changes that the runtime announced and does not list yet."""
        self._lock = asyncio.Lock()
        self.last_relist = 0.0
        """Loop time of the last successful relist; the node is healthy while it is recent."""

    def runtime_status(self, uid: str) -> PodRuntimeStatus:
        """What the runtime had of a pod at the last relist."""
        return self._pods.get(uid, PodRuntimeStatus())

    def sandboxes(self) -> list[Sandbox]:
        """All sandboxes, of all pods."""
        return list(self._sandboxes.values())

    def uids(self) -> set[str]:
        """The pods that have a sandbox or container."""
        return set(self._pods)

    async def run(self) -> None:
        """Relist on every event of the runtime, and every `RELIST_SECONDS`."""
        wake = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(wake), name="runtime-events")
            pauses: list[float] = []
            while True:
                await self._until_due(wake, pauses)
                try:
                    await self.relist()
                except RuntimeFailure as error:
                    _log.warning(
                        "listing pods in the container runtime failed, trying again in %g s: %s",
                        _PAUSE_SECONDS,
                        error,
                    )
                    await asyncio.sleep(_PAUSE_SECONDS)
                    self._expected.add(_ANYTHING)
                    wake.set()

    async def _until_due(self, wake: asyncio.Event, pauses: list[float]) -> None:
        """Wait until a relist is due. `pauses` are those left since the last event; workers relist as well,
        and what they have seen needs no other look.
        """
        while True:
            if not pauses and not wake.is_set():
                self._expected.clear()  # it was waited for long enough
            is_regular = not (self._expected and pauses)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), RELIST_SECONDS if is_regular else pauses.pop(0))
            if wake.is_set():
                await asyncio.sleep(_GATHER_SECONDS)
                wake.clear()
                pauses[:] = _AFTER_EVENT
                is_regular = False
            if is_regular or self._expected:
                return

    async def _listen(self, wake: asyncio.Event) -> None:
        async for change in self._runtime.changes():
            if change is None or not self._shows(change):
                self._expected.add(change or _ANYTHING)
                wake.set()

    def _shows(self, change: Change) -> bool:
        """Whether the last relist has seen a change, or what came after it."""
        sandbox, container = self._sandboxes.get(change.id), self._containers.get(change.id)
        if sandbox is not None:
            return sandbox.ready is (change.state is ContainerState.RUNNING)
        return container is not None and container.state in (change.state, ContainerState.EXITED)

    async def relist(self) -> None:
        """List all sandboxes and containers now. Raises RuntimeFailure."""
        async with self._lock:
            sandboxes = await self._runtime.list_sandboxes(self._sandboxes)
            containers = await self._runtime.list_containers(self._containers)
            before = self._pods
            self._sandboxes = await self._looked_at(sandboxes, self._sandboxes, self._with_ips)
            self._containers = await self._looked_at(containers, self._containers, self._with_details)
            self._expected = {change for change in self._expected if not self._shows(change)}
            self._unanswered &= set(self._sandboxes) | set(self._containers)
            self._pods = self._group()
            self.last_relist = asyncio.get_running_loop().time()
        for uid in set(before) | set(self._pods):
            if before.get(uid) != self._pods.get(uid):
                self._changed(uid)

    async def _looked_at(
        self, listed: Sequence[_Item], known: Mapping[str, _Item], look: Callable[[_Item], Awaitable[_Item]]
    ) -> dict[str, _Item]:
        """What was listed, by id; `look` gives more of what is not as it was `known`."""
        found = {item.id: item for item in listed}
        news = [item for item in listed if known.get(item.id) is not item or item.id in self._unanswered]
        for item in await asyncio.gather(*map(look, news)):
            found[item.id] = item
        return found

    async def _with_ips(self, item: Sandbox) -> Sandbox:
        known = self._sandboxes.get(item.id)
        if known is not None and known.ready == item.ready and item.id not in self._unanswered:
            return known
        if not item.ready:
            return item
        status = await self._ask(item.id, f"sandbox of pod {item.uid}", self._runtime.sandbox_status)
        return status or item

    async def _with_details(self, item: Container) -> Container:
        known = self._containers.get(item.id)
        if known is not None and known.state is item.state and item.id not in self._unanswered:
            return known
        what = f"container {item.name} of pod {item.labels.get(identity.LABEL_UID)}"
        status = await self._ask(item.id, what, self._runtime.container_status)
        if status is None and item.id in self._unanswered:
            # The exit code is unknown yet, so do not report the container as ended.
            unclear = replace(item, state=ContainerState.RUNNING)
            return (known or unclear) if item.state is ContainerState.EXITED else item
        if status is None:
            return replace(item, state=ContainerState.UNKNOWN)
        detailed = replace(status, sandbox_id=item.sandbox_id)
        if detailed.state is ContainerState.EXITED:
            return replace(detailed, message=await asyncio.to_thread(termination_message, detailed))
        return detailed

    async def _ask(self, id: str, what: str, ask: Callable[[str], Awaitable[_T]]) -> _T | None:
        """The status of a sandbox or container; None when it is gone or (`_unanswered`) not returned.

        Raises RuntimeFailure when the runtime cannot be reached.
        """
        self._unanswered.discard(id)
        try:
            async with asyncio.timeout(_DETAIL_SECONDS):
                return await ask(id)
        except TimeoutError:
            _log.warning("the container runtime did not return the status of %s (%s) in time", what, id)
        except RuntimeFailure as error:
            if error.code == "UNAVAILABLE":
                raise
            if error.is_not_found:
                return None
            _log.warning("the container runtime did not return the status of %s (%s): %s", what, id, error)
        self._unanswered.add(id)
        return None

    def _group(self) -> dict[str, PodRuntimeStatus]:
        sandboxes: dict[str, list[Sandbox]] = {}
        containers: dict[str, dict[str, list[Container]]] = {}
        for sandbox in self._sandboxes.values():
            sandboxes.setdefault(sandbox.uid, []).append(sandbox)
        for container in self._containers.values():
            uid = container.labels.get(identity.LABEL_UID, "")
            containers.setdefault(uid, {}).setdefault(container.name, []).append(container)
        return {
            uid: PodRuntimeStatus(
                tuple(sorted(sandboxes.get(uid, ()), key=lambda item: item.created_at, reverse=True)),
                {
                    name: tuple(sorted(group, key=lambda item: item.created_at, reverse=True))
                    for name, group in containers.get(uid, {}).items()
                },
            )
            for uid in set(sandboxes) | set(containers)
        }


def termination_message(container: Container) -> str:
    """The content of an ended container's termination file, or the end of its log where the container's
    policy says so.
    """
    message = container.message
    name = container.annotations.get(identity.ANNOTATION_TERMINATION_FILE, "")
    if name:
        try:
            written = read_end(Path(name), _MAX_MESSAGE).decode("utf-8", "replace")
        except OSError:
            written = ""
        if written:
            return f"{message}: {written}" if message else written
    policy = container.annotations.get(identity.ANNOTATION_TERMINATION_POLICY)
    if policy == "FallbackToLogsOnError" and container.exit_code != 0 and container.log_path:
        return _log_tail(Path(container.log_path)) or message
    return message


def _log_tail(path: Path) -> str:
    """The end of a container's log. A last line that the container did not finish gets no newline."""
    try:
        with path.open("rb") as stream:
            start = stream.seek(max(0, stream.seek(0, 2) - _FALLBACK_WINDOW))
            lines = stream.read().removesuffix(b"\n").split(b"\n")  # what is written may have other breaks
    except OSError:
        return ""
    whole = lines[1:] if start else lines
    texts = [_text_of(line) for line in whole[-_FALLBACK_LINES:]]
    return b"".join(texts)[-_FALLBACK_BYTES:].decode("utf-8", "replace")


def _text_of(line: bytes) -> bytes:
    """The text of one log line (``TIME stream F|P text``). Tag P: the line continues, so no newline
    is added.
    """
    parts = line.split(b" ", 3)
    if len(parts) < 4:
        return b""
    return parts[3] if parts[2] == b"P" else parts[3] + b"\n"
