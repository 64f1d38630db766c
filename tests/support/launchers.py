"""Launchers that misbehave, as processes of their own or in this one."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from virtplane.compute.handler.settings import PodPaths

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def pod_paths(folder: Path, pod_uid: str = "") -> PodPaths:
    """The folders of a pod below `folder`, made as the kubelet makes them.

    Without a UID the launcher counts as one that the node itself started: its cgroup is not looked at.
    """
    paths = PodPaths(pod_uid, folder / "pod")
    for each in (paths.control_socket.parent, paths.libvirt_runtime, paths.private, paths.ephemeral):
        each.mkdir(parents=True, exist_ok=True)
    return paths


@asynccontextmanager
async def launcher(path: Path, talk: Talk) -> AsyncIterator[None]:
    """Somebody who listens on a control socket in this process."""
    talking: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talking.add(task)
        try:
            await talk(reader, writer)
        except ConnectionError:
            pass  # virt-handler hung up, as it may
        finally:
            writer.close()

    # An address has room for 107 bytes, pods' folders are longer.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        server = await asyncio.start_unix_server(serve, f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
    try:
        yield
    finally:
        server.close()
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, **more: Any) -> None:
    """Answer one request as a good launcher does."""
    request = json.loads(await reader.readline())
    said = {"id": request["id"], "done": request["command"], "started": False, "terminating": False, **more}
    writer.write(json.dumps(said).encode() + b"\n")
    await writer.drain()


async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request."""
    while not reader.at_eof():
        await answer(reader, writer)


def open_descriptors() -> int:
    """How many this process has."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the names are not used
