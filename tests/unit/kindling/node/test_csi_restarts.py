"""CSI drivers that are killed, leave their sockets, and return."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.kindling.node.test_csi_hostile_drivers import Api, serve

from kindling.node.volumes import csi_registry
from kindling.node.volumes.csi_registry import CsiRegistry


async def test_a_driver_that_returns_does_not_wait_for_what_its_former_socket_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket may have the inode of the former one, which file systems give to the next file at once."""
    monkeypatch.setattr(csi_registry, "_LOOK_SECONDS", 60.0)  # so long is the first back-off
    api: Any = Api()
    path = tmp_path / "d.sock"
    async with AsyncExitStack() as stack:
        with socket.socket(socket.AF_UNIX) as former:
            former.bind(str(path))
        registry = CsiRegistry(api, "node01", tmp_path)
        await registry._look()
        await asyncio.gather(*registry._registering.values())
        assert registry.names() == []
        path.unlink()
        await serve(stack, tmp_path, "d", {})
        await registry._look()
        await until(lambda: registry.names() == ["d"])
        watching = asyncio.create_task(registry.run())
        await until(lambda: [each["name"] for each in api.drivers] == ["d"])
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
