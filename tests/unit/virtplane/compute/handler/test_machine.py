"""What virt-handler does for one guest on its node, apart from libvirt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from virtplane.compute.handler.machine import Machine, both
from virtplane.compute.handler.settings import HandlerSettings

VMI = {"metadata": {"name": "vm", "namespace": "ns", "uid": "u"}, "spec": {}}


async def test_the_launchers_socket_is_noticed_as_soon_as_it_is_there(tmp_path: Path) -> None:
    changed = asyncio.Event()
    settings = HandlerSettings(node_name="node01", pods_directory=tmp_path)
    machine = Machine(settings, VMI, "pod", changed.set)
    socket = machine.paths.control_socket
    socket.parent.mkdir(parents=True)
    machine.expect_launcher()
    machine.expect_launcher()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(changed.wait(), 0.05)
    socket.touch()
    await asyncio.wait_for(changed.wait(), 0.5)
    await machine.close()


async def test_a_failed_step_is_reported_only_once_the_other_has_ended() -> None:
    ended = []

    async def fails() -> str:
        raise OSError("no network")

    async def works() -> int:
        await asyncio.sleep(0.01)
        ended.append("volumes")
        return 1

    with pytest.raises(OSError, match="no network"):
        await both(fails(), works())
    assert ended == ["volumes"]


async def test_two_steps_give_both_results() -> None:
    assert await both(asyncio.sleep(0, "links"), asyncio.sleep(0, 2)) == ("links", 2)
