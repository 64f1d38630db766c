"""Which pods of a node get a worker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kindling.node.pods import identity
from kindling.node.pods.orphans import Orphans
from kindling.node.pods.pod_workers import PodWorkers
from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.runtime.interface import Sandbox
from kindling.node.volumes.manager import VolumeManager

LABELS = {identity.LABEL_NAME: "p", identity.LABEL_NAMESPACE: "ns"}
SEEN = {"ran": PodRuntimeStatus((Sandbox("s1", "p", "ns", "ran", 0, True, 1, labels=LABELS),))}


class Worker:
    """Tells that it was told to remove its pod, and ends."""

    def __init__(self, pod: dict[str, Any], told: asyncio.Queue[dict[str, Any]]) -> None:
        self.pod, self.uid, self._told = pod, pod["metadata"]["uid"], told

    def object_deleted(self) -> None:
        self._told.put_nowait(self.pod["metadata"])

    async def run(self) -> None:
        return


async def test_what_pods_left_is_removed_also_when_the_runtime_has_nothing_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent was killed while it set volumes up, and the pod was deleted by force meanwhile."""
    monkeypatch.setattr(identity, "ROOT", tmp_path)
    volumes = VolumeManager(Mock())
    assert volumes.uids() == set()
    (tmp_path / "pods/set-up").mkdir(parents=True)
    assert volumes.uids() == {"set-up"}
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    pod_workers = PodWorkers(Mock(side_effect=lambda pod: Worker(pod, told)))
    pleg: Any = Mock(runtime_status=lambda uid: SEEN.get(uid, PodRuntimeStatus()))
    pod_workers.adopt_orphans({"ran", "set-up", ""}, pleg)
    running = asyncio.create_task(pod_workers.run(Mock()))
    removed = [await asyncio.wait_for(told.get(), 2) for _ in range(2)]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert sorted(removed, key=lambda item: item["uid"]) == [
        {"name": "p", "namespace": "ns", "uid": "ran"},
        {"name": "", "namespace": "", "uid": "set-up"},
    ]


async def test_what_appears_after_a_pods_end_is_removed_once_it_was_seen_twice() -> None:
    """A runtime that is told to stop making a sandbox may have made its cgroup again."""
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    pod_workers = PodWorkers(Mock(side_effect=lambda pod: Worker(pod, told)))
    pleg: Any = Mock(runtime_status=lambda uid: SEEN.get(uid, PodRuntimeStatus()), uids=lambda: {"ran"})
    left = {"late", "there"}
    orphans = Orphans(pleg, pod_workers, traces=lambda: left, present=lambda: ["there"])
    running = asyncio.create_task(pod_workers.run(Mock()))
    await asyncio.sleep(0)
    await orphans.sweep()
    assert told.empty()
    left.add("new")
    await orphans.sweep()
    assert {told.get_nowait()["uid"], told.get_nowait()["uid"]} == {"late", "ran"}
    assert told.empty()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
