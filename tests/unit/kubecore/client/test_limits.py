"""Limits of requests, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubecore.client import Client, ClientConfig, Request
from kubecore.client.limits import LimitedTransport, RequestLimit
from kubecore.resources import CONFIG_MAPS
from kubecore.testing import MemoryApi

pytestmark = pytest.mark.looptime


async def test_a_burst_is_sent_at_once_and_then_so_many_in_a_second() -> None:
    limit, loop = RequestLimit(5, 10), asyncio.get_running_loop()
    times = []
    for _ in range(12):
        await limit.wait()
        times.append(round(loop.time(), 1))
    assert times == [*(0.0,) * 10, 0.2, 0.4]


async def test_a_change_reaches_those_who_wait_in_their_order() -> None:
    limit, loop = RequestLimit(0.001, 1), asyncio.get_running_loop()
    sent: list[tuple[int, float]] = []

    async def send(number: int) -> None:
        await limit.wait()
        sent.append((number, round(loop.time(), 1)))

    tasks = [asyncio.create_task(send(number)) for number in range(4)]
    await asyncio.sleep(3)
    tasks[1].cancel()
    limit.set(1, 1)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sent == [(0, 0.0), (2, 3.0), (3, 4.0)]


async def test_requests_and_watches_of_a_client_are_limited() -> None:
    api, loop = MemoryApi(), asyncio.get_running_loop()
    inner = api.client()._transport
    assert inner is not None
    client = Client(ClientConfig(server="memory://"), LimitedTransport(inner, RequestLimit(1, 1)))
    await client.create(CONFIG_MAPS, {"metadata": {"name": "a", "namespace": "ns"}})
    async for event in client.watch(CONFIG_MAPS, "ns"):
        assert event.type == "ADDED"
        break
    await client.get(CONFIG_MAPS, "a", "ns")
    assert loop.time() == pytest.approx(2, abs=0.1)


async def test_how_long_requests_wait_is_told() -> None:
    waited: list[float] = []
    inner = MemoryApi().client()._transport
    assert inner is not None
    transport = LimitedTransport(inner, RequestLimit(0.5, 1), lambda _, seconds: waited.append(seconds))
    async with Client(ClientConfig(server="memory://"), transport) as client:
        for _ in range(2):
            await client.list(CONFIG_MAPS)
        async with transport.stream(Request("GET", "/api/v1/configmaps", (("watch", "1"),))):
            pass
    assert waited == pytest.approx([0, 2, 2], abs=0.1)
