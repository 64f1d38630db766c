"""Keeps one guest's metrics: rewrites the disk every few seconds, and answers requests on the channel."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import metrics as places
from virtplane.compute.handler.downwardmetrics import host, report
from virtplane.compute.handler.launchers.process import Process
from virtplane.compute.handler.launchers.sockets import reachable
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.libvirtd.figures import GuestFigures
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import PodPaths
from virtplane.compute.handler.threads import in_thread
from virtplane.compute.handler.troubles import Trouble

logger = logging.getLogger(__name__)

_REFRESH_SECONDS = 5.0
_REQUEST_SECONDS = 1.0
"""A guest gets one answer in this time."""

_DISK, _CHANNEL = "disk", "channel"

_LINE_BYTES = 1024
_REQUEST = b"GET /metrics/XML"
_INVALID = b"INVALID REQUEST\n\n"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the metrics of one guest come from."""

    node: str
    vmi: str
    """Namespace and name, for log lines."""
    figures: Callable[[], Awaitable[GuestFigures]]
    """Raises HypervisorError."""

    async def document(self) -> str:
        """The metrics as XML. Raises HypervisorError, OSError, ValueError."""
        guest = await self.figures()
        return report.document(report.metrics(self.node, guest, await in_thread("metrics", host.read)))


class MetricsProvider:
    """The tasks that give a guest its metrics, while virt-handler knows it."""

    def __init__(self, source: Source, paths: PodPaths) -> None:
        self._source = source
        self._paths = paths
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._troubles = {name: _trouble(source, name) for name in (_DISK, _CHANNEL)}

    def keep(self, vmi: VirtualMachineInstance, launcher: Process) -> None:
        """Start what the running guest needs and what has ended: a disk, a channel, both, or nothing."""
        if any(volume.downward_metrics is not None for volume in vmi.spec.volumes):
            self._ensure(_DISK, lambda: self._keep_disk(launcher))
        if vmi.spec.domain.devices.downward_metrics is not None:
            self._ensure(_CHANNEL, self._serve_channel)

    async def close(self) -> None:
        """End all tasks."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    def _ensure(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        task = self._tasks.get(name)
        if task is None or task.done():
            self._tasks[name] = asyncio.create_task(
                self._guarded(name, run), name=f"metrics-{name}-{self._source.vmi}"
            )

    async def _guarded(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run until it fails; the next reconciliation starts it again."""
        try:
            await run()
        except (HypervisorError, OSError, ValueError) as error:
            self._troubles[name].met(error)

    async def _keep_disk(self, launcher: Process) -> None:
        while launcher.is_alive:
            body = report.disk_body(await self._source.document())
            await in_thread("metrics", write_disk, launcher, body)
            self._troubles[_DISK].over()
            await asyncio.sleep(_REFRESH_SECONDS)

    async def _serve_channel(self) -> None:
        folder = self._paths.private
        with reachable(folder / places.CHANNEL, folder) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=_LINE_BYTES)
        try:
            while True:
                request = await _read_request(reader)
                if request is None:
                    return
                writer.write(await self._answer(request))
                await writer.drain()
                await asyncio.sleep(_REQUEST_SECONDS)
        finally:
            writer.transport.abort()

    async def _answer(self, request: bytes) -> bytes:
        if request != _REQUEST:
            return _INVALID
        try:
            document = await self._source.document()
        except (HypervisorError, OSError, ValueError) as error:
            self._troubles[_CHANNEL].met(error)
            return report.NOT_AVAILABLE.encode()
        self._troubles[_CHANNEL].over()
        return f"{document}\n\n".encode()


def _trouble(source: Source, way: str) -> Trouble:
    message = "A guest does not get the metrics of its node; trying again"
    return Trouble(logger, message, vmi=source.vmi, by=way)


async def _read_request(reader: asyncio.StreamReader) -> bytes | None:
    """The line of a request, which an empty line ends; empty for a malformed one, None at the end."""
    try:
        line = await reader.readline()
        blank = await reader.readline()
    except ValueError:
        return b""  # a line that is too long; what is left of it is a malformed request again
    if not line or not blank:
        return None
    return line.rstrip(b"\r\n") if not blank.strip() else b""


def write_disk(launcher: Process, body: bytes) -> None:
    """Write the document to the guest's disk. Blocks. Raises OSError as ``Root.give``."""
    with launcher.root() as root, root.opened_disk(places.DISK, os.O_RDWR) as descriptor:
        start = report.header(body, is_busy=True)
        os.pwrite(descriptor, start, 0)
        os.pwrite(descriptor, body, len(start))
        os.pwrite(descriptor, report.header(body, is_busy=False), 0)


def create_disk(root: Root) -> None:
    """Make the disk without metrics, unless it is there. Raises OSError."""
    if root.is_file(places.DISK):
        return
    body = report.disk_body(report.document([]))

    def write(descriptor: int) -> None:
        os.truncate(descriptor, report.DISK_BYTES)
        os.pwrite(descriptor, report.header(body, is_busy=False) + body, 0)

    root.create(places.DISK, write)
