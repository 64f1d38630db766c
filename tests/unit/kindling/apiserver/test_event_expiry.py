"""Events expire: an hour after they were last written, watchers see them go, and nothing else is touched."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.apiserver import running_server

from kindling.apiserver.event_expiry import EventExpiry, written_at
from kindling.apiserver.kinds.events import PREFIX
from kindling.apiserver.storage.memory import MemoryJournal
from kindling.apiserver.storage.store import Store
from kubecore import errors
from kubecore.resources import CONFIG_MAPS, EVENTS


def event(name: str) -> dict[str, Any]:
    """An event about something in the default namespace."""
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    return {
        "metadata": {"name": name},
        "involvedObject": about,
        "reason": "R",
        "message": "m",
        "type": "Normal",
    }


def test_the_time_of_the_last_write_is_the_servers() -> None:
    managed = [{"time": "2026-01-01T00:00:10Z"}, {"time": "2026-01-01T00:00:20Z"}, {}]
    metadata = {"creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": managed}
    moment = written_at({"metadata": metadata, "lastTimestamp": "2030-01-01T00:00:00Z"})
    assert moment == 1767225620.0
    assert written_at({}) == 0.0


async def test_events_go_an_hour_after_their_last_write(tmp_path: Path) -> None:
    async with running_server(tmp_path) as running, running.client() as client:
        passed = 0.0
        expiry = EventExpiry(running.server.store, PREFIX, 3600.0, now=lambda: time.time() + passed)
        await client.create(EVENTS, event("old"), "default")
        await client.create(CONFIG_MAPS, {"metadata": {"name": "old"}}, "default")
        listed = await client.list(EVENTS, "default")
        passed = 3500.0
        await expiry.expire()
        assert (await client.get(EVENTS, "old", "default"))["reason"] == "R"
        passed = 3700.0
        await expiry.expire()
        with pytest.raises(errors.StatusError, match="not found"):
            await client.get(EVENTS, "old", "default")
        assert await client.get(CONFIG_MAPS, "old", "default")
        async for seen in client.watch(
            EVENTS, "default", resource_version=listed["metadata"]["resourceVersion"]
        ):
            assert (seen.type, seen.object["metadata"]["name"]) == ("DELETED", "old")
            break


async def test_the_server_expires_events_by_itself(tmp_path: Path) -> None:
    async with running_server(tmp_path, event_ttl_seconds=0.2) as running, running.client() as client:
        await client.create(EVENTS, event("short"), "default")
        listed = await client.list(EVENTS, "default")
        async for seen in client.watch(
            EVENTS, "default", resource_version=listed["metadata"]["resourceVersion"]
        ):
            assert seen.type == "DELETED"
            break


async def test_an_event_written_meanwhile_stays() -> None:
    store = Store(MemoryJournal())
    store.open()
    first = await store.put(PREFIX, "default/a", lambda _: b'{"metadata":{"name":"a"}}', None)
    expiry = EventExpiry(store, PREFIX, 10.0)
    await store.put(PREFIX, "default/a", lambda _: b'{"metadata":{"name":"a"},"count":2}', first)
    await expiry._delete(first)
    assert store.count(PREFIX) == 1
