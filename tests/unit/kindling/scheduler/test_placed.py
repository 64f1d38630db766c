"""What the scheduler remembers of pods that have a node: tenants may have many, each with much to read."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.unit.kindling.scheduler import test_loop
from tests.unit.kindling.scheduler.nodes_and_pods import node, pod

from kindling.scheduler import placed
from kindling.scheduler.placed import Memory, PlacedPod
from kindling.scheduler.snapshot import take
from kubecore.json import JsonObject, get_str
from kubecore.resources import NODES, PODS
from kubecore.testing import MemoryApi


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each pod is read."""
    found: Counter[str] = Counter()
    read = placed.read

    def counted(pod: JsonObject) -> PlacedPod:
        found[get_str(pod, "metadata", "name")] += 1
        return read(pod)

    monkeypatch.setattr(placed, "read", counted)
    return found


@pytest.mark.looptime
async def test_a_placed_pod_is_read_once_however_many_pods_are_scheduled(readings: Counter[str]) -> None:
    api = MemoryApi()
    api.put(NODES, test_loop.node(cpu="100"))
    crowded = test_loop.pod("crowded", "1m", nodeName="n1")
    crowded["spec"]["containers"] *= 1000
    api.put(PODS, crowded)
    async with test_loop.scheduling(api):
        for number in range(8):
            api.put(PODS, test_loop.pod(f"p{number}"))
        await asyncio.sleep(5)
    assert all(test_loop.node_of(api, f"p{number}") == "n1" for number in range(8))
    assert readings["crowded"] == 1


def test_a_pod_that_changed_is_read_again() -> None:
    memory = Memory()
    before = pod(on="n1", requests={"cpu": "1"})
    after = pod(on="n1", requests={"cpu": "2"})
    for found, cpu in ((before, 1000), (before, 1000), (after, 2000), (before, 1000)):
        memory.turn_page()
        [info] = take([node()], [found], read=memory.read).nodes
        assert info.requested["cpu"] == info.in_use["cpu"] == cpu


def test_pods_that_are_gone_are_forgotten(readings: Counter[str]) -> None:
    memory = Memory()
    gone = pod("gone", on="n1")
    memory.read(gone)
    memory.turn_page()
    memory.read(gone)
    for number in range(3):
        memory.turn_page()
        memory.read(pod(f"p{number}", on="n1"))
    memory.read(gone)
    assert readings["gone"] == 2
