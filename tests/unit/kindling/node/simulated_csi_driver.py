"""A CSI driver that checks what it is asked for; the agents that call it may be killed, it goes on.

The driver is a process of its own: what it has begun it ends, whatever becomes of the agent. A file in
each place that it mounts stands for the data there, so that whoever removes below a mount is seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from kindling.node.volumes.csi_registry import CallProblem

DRIVER = "d.example.com"


class Driver:
    """What a driver has staged and published, and what it was asked for that it must not be."""

    def __init__(self) -> None:
        self.staged: dict[str, str] = {}
        self.published: dict[str, str] = {}
        """Target -> volume."""
        self.wrong: list[str] = []
        self.calls: set[asyncio.Task[None]] = set()
        self.attached: set[str] = set()
        self.sizes: dict[str, int] = {}
        """The sizes of file systems."""
        self.failing = 0
        """So many calls fail after they have done their work."""
        self._busy: dict[str, int] = {}

    @property
    def mounted(self) -> set[str]:
        return {*self.staged.values(), *self.published}

    async def serve(self, agent: int, method: str, values: dict[str, Any]) -> None:
        volume = values["volume_id"]
        if volume in self._busy:
            if self._busy[volume] == agent:
                self.wrong.append(f"{method} beside another call for {volume}")
            raise CallProblem("rpc error: code = Aborted desc = an operation is pending", "ABORTED")
        self._busy[volume] = agent
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            getattr(self, method)(volume, values)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finally:
            del self._busy[volume]
        if self.failing:
            self.failing -= 1
            raise CallProblem("rpc error: code = Internal desc = too late to tell", "INTERNAL")

    def NodeStageVolume(self, volume: str, values: dict[str, Any]) -> None:
        place = values["staging_target_path"]
        if volume not in self.attached or values["publish_context"] != {"device": volume}:
            self.wrong.append(f"{volume} staged without being attached")
        self.staged[volume] = place
        self.sizes.setdefault(volume, 1)
        _put_data(place)

    def NodePublishVolume(self, volume: str, values: dict[str, Any]) -> None:
        if self.staged.get(volume) != values["staging_target_path"]:
            self.wrong.append(f"{volume} published without being staged")
        target = values["target_path"]
        with contextlib.suppress(FileExistsError):
            os.mkdir(target)  # noqa: PTH102 - the agent's own way of doing it is watched
        _put_data(target)
        self.published[target] = volume

    def NodeExpandVolume(self, volume: str, values: dict[str, Any]) -> None:
        if self.published.get(values["volume_path"]) != volume:
            self.wrong.append(f"{volume} grown where it is not published")
        self.sizes[volume] = max(self.sizes[volume], values["capacity_range"]["required_bytes"])

    def NodeUnpublishVolume(self, volume: str, values: dict[str, Any]) -> None:
        target = values["target_path"]
        if self.published.pop(target, None):
            self._take_data(target)
            os.rmdir(target)  # noqa: PTH106

    def NodeUnstageVolume(self, volume: str, values: dict[str, Any]) -> None:
        if volume in self.published.values():
            self.wrong.append(f"{volume} unstaged while it is published")
        if self.staged.pop(volume, None):
            self._take_data(values["staging_target_path"])

    def detach(self, volume: str) -> None:
        if volume in self.staged or volume in self._busy:
            self.wrong.append(f"{volume} detached while it is staged")
        self.attached.discard(volume)

    def _take_data(self, place: str) -> None:
        try:
            os.unlink(f"{place}/data")  # noqa: PTH108
        except FileNotFoundError:
            self.wrong.append(f"the data in {place} was removed")


def _put_data(place: str) -> None:
    os.close(os.open(f"{place}/data", os.O_CREAT))


class Connection:
    """One agent's connection to the driver."""

    capabilities = frozenset({1, 3})

    def __init__(self, driver: Driver, agent: int) -> None:
        self._driver, self._agent = driver, agent

    def get(self, _name: str) -> Connection:
        return self

    async def call(self, method: str, values: dict[str, Any]) -> None:
        call = asyncio.create_task(self._driver.serve(self._agent, method, values))
        self._driver.calls.add(call)
        call.add_done_callback(self._driver.calls.discard)
        await asyncio.shield(call)
