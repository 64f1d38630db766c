"""The API server killed at random moments under load: nothing acknowledged is lost, nothing half applied.

``KINDLING_KILLS=100`` in the environment kills as often; the default keeps the tests short.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.kills import PATH, SHARED, Connection, Ledger, Server, Watcher, Writer

_KILLS = int(os.environ.get("KINDLING_KILLS", "25"))
_WRITERS = 6
_EARLY = 0.15
"""Share of kills that hit the server while it starts."""


async def _stored(server: Server) -> tuple[int, dict[str, Any]]:
    """The list's resourceVersion, and all objects by name."""
    async with Connection(server).opened() as connection:
        status, listed = await connection.request("GET", PATH)
        assert status == 200, listed
    revision = int(listed["metadata"]["resourceVersion"])
    return revision, {item["metadata"]["name"]: item for item in listed["items"]}


@pytest.mark.timeout(60 + 6 * _KILLS)
async def test_no_acknowledged_write_is_lost_and_watchers_miss_nothing(
    tmp_path: Path, unused_tcp_port: int, record_property: Callable[[str, object], None]
) -> None:
    chance = random.Random(f"kills {os.environ.get('KINDLING_SEED', '1')}")
    # History is short, so that the watcher which is mostly away meets its end.
    server = Server(tmp_path, unused_tcp_port, "--compaction-interval=0.4")
    ledger = Ledger()
    writers = [Writer(number, ledger, random.Random(chance.random())) for number in range(_WRITERS)]
    watchers = [Watcher(server), Watcher(server), Watcher(server, pause_seconds=3.0)]
    await server.launch()
    await server.wait_ready()
    async with Connection(server).opened() as connection:
        shared = {"metadata": {"name": SHARED}, "data": {}}
        assert (await connection.request("POST", PATH, shared))[0] == 201
    try:
        async with asyncio.TaskGroup() as watching:
            tasks = [watching.create_task(watcher.run()) for watcher in watchers]
            doubts = await _kill_and_verify(server, writers, ledger, chance)
            _, found = await _stored(server)
            await _catch_up(watchers, found)
            for task in tasks:
                task.cancel()
    finally:
        await server.end(signal.SIGTERM)
    for watcher in watchers:
        assert watcher.replica == found
        missed = ledger.acknowledged.keys() - watcher.revisions
        assert watcher.relists or not missed, f"a gap without a 410: {sorted(missed)[:5]}"
        assert watcher.relists or watcher.deletions >= ledger.deletions
    figures = {
        "kills": _KILLS,
        "acknowledged": len(ledger.acknowledged) + ledger.deletions,
        "in_doubt": doubts,
        "watch_connections": [watcher.connections for watcher in watchers],
        "relists_after_410": [watcher.relists for watcher in watchers],
    }
    record_property("kills", figures)
    assert len(ledger.acknowledged) > 5 * _KILLS, figures
    assert doubts > _KILLS // 2, figures  # else the kills did not hit the load


async def _kill_and_verify(
    server: Server, writers: list[Writer], ledger: Ledger, chance: random.Random
) -> int:
    """The number of writes that were in doubt. The server runs at the end."""
    doubts = 0
    for _ in range(_KILLS):
        work = [asyncio.create_task(writer.run(server)) for writer in writers]
        await asyncio.sleep(chance.uniform(0.05, 0.8))
        await server.end()
        await asyncio.gather(*work)
        await server.launch()
        if chance.random() < _EARLY:
            await asyncio.sleep(chance.uniform(0.0, 0.8))
            await server.end()
            await server.launch()
        await server.wait_ready()
        revision, found = await _stored(server)
        assert revision >= ledger.newest
        assert found.keys() <= {SHARED}.union(*(writer.objects for writer in writers))
        doubts += sum(writer.verify(found) for writer in writers)
    return doubts


async def _catch_up(watchers: list[Watcher], found: dict[str, Any]) -> None:
    for _ in range(400):
        behind = [_differences(watcher.replica, found) for watcher in watchers]
        if not any(behind):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"watchers see other states: {behind}; {[watcher.last for watcher in watchers]}")


def _differences(replica: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    names = {name for name in replica.keys() | found.keys() if replica.get(name) != found.get(name)}
    return {
        name: [each.get(name, {}).get("metadata", {}).get("resourceVersion") for each in (replica, found)]
        for name in names
    }
