"""Controllers and managers."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from tests.support.managers import working

from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.resources import NODES, PODS, ResourceType
from kubecore.runtime import DONE, Controller, Key, Manager, RequeueAfter, Result
from kubecore.testing import MemoryApi

pytestmark = pytest.mark.looptime


def pod(name: str, owner: str = "") -> JsonObject:
    return {"metadata": {"name": name, "namespace": "lab", "labels": {"owner": owner}}}


class Recorder:
    def __init__(self, *results: Result | Exception) -> None:
        self.calls: list[tuple[float, Key]] = []
        self._results = list(results)

    async def reconcile(self, key: Key) -> Result:
        self.calls.append((round(asyncio.get_running_loop().time(), 3), key))
        result = self._results.pop(0) if self._results else DONE
        if isinstance(result, Exception):
            raise result
        return result

    @property
    def keys(self) -> list[Key]:
        return [key for _, key in self.calls]


async def run_for(manager: Manager, seconds: float) -> None:
    task = asyncio.create_task(manager.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_changed_object_is_reconciled_after_all_caches_are_complete() -> None:
    api = MemoryApi()
    api.put(PODS, pod("a"))
    manager = Manager(api.client())
    pods, nodes = manager.informer(PODS), manager.informer(NODES)
    recorder = Recorder()

    async def reconcile(key: Key) -> Result:
        assert nodes.has_synced
        return await recorder.reconcile(key)

    controller = Controller("pods", reconcile)
    controller.watch(pods)
    controller.depend(nodes)
    manager.add(controller)
    await run_for(manager, 1)
    assert recorder.keys == [("lab", "a")]
    assert manager.has_started


async def test_mappers_see_the_old_and_the_new_state() -> None:
    api = MemoryApi()
    api.put(PODS, pod("a", owner="x"))
    manager = Manager(api.client())
    recorder = Recorder()
    controller = Controller("owners", recorder.reconcile)
    controller.watch(manager.informer(PODS), lambda item: [("lab", item["metadata"]["labels"]["owner"])])
    manager.add(controller)
    async with working(manager):
        await asyncio.sleep(1)
        api.put(PODS, pod("a", owner="y"))
        await asyncio.sleep(1)
    assert set(recorder.keys) == {("lab", "x"), ("lab", "y")}


async def test_failures_are_retried_with_backoff_and_success_resets_it() -> None:
    manager = Manager(MemoryApi().client())
    recorder = Recorder(ValueError("no"), StatusError(409, "Conflict", "changed"), ValueError("no"))
    controller = Controller("c", recorder.reconcile)
    controller.enqueue(("lab", "a"))
    manager.add(controller)
    await run_for(manager, 10)
    times = [moment for moment, _ in recorder.calls]
    assert [round(later - earlier, 3) for earlier, later in itertools.pairwise(times)] == [
        0.005,
        0.01,
        0.02,
    ]


async def test_why_the_last_attempt_failed_is_known_until_one_succeeds() -> None:
    refused = StatusError(403, "Forbidden", "no " + "very " * 1000 + "long")
    recorder = Recorder(refused, RuntimeError("a secret of this process"), DONE)
    told: list[str] = []

    async def reconcile(key: Key) -> Result:
        told.append(controller.failure(key))
        return await recorder.reconcile(key)

    controller = Controller("any", reconcile)
    controller.enqueue(("", "a"))
    manager = Manager(MemoryApi().client())
    manager.add(controller)
    assert manager.controllers == [controller]
    await run_for(manager, 1)
    first, second, third = told
    assert (first, second[:8], len(second)) == ("", "no very ", 1000)
    assert third == "an internal error, see the log"
    assert controller.failure(("", "a")) == ""


async def test_a_key_can_ask_to_be_looked_at_later() -> None:
    manager = Manager(MemoryApi().client())
    recorder = Recorder(RequeueAfter(30.0))
    controller = Controller("c", recorder.reconcile)
    controller.enqueue_after(("", "n"), 5)
    manager.add(controller)
    await run_for(manager, 100)
    assert [moment for moment, _ in recorder.calls] == [5.0, 35.0]


async def test_workers_run_side_by_side_but_never_for_one_key() -> None:
    running: set[Key] = set()
    most = 0

    async def reconcile(key: Key) -> Result:
        nonlocal most
        assert key not in running
        running.add(key)
        most = max(most, len(running))
        await asyncio.sleep(1)
        running.discard(key)
        return DONE

    manager = Manager(MemoryApi().client())
    controller = Controller("c", reconcile, workers=3)
    for name in "abcde":
        controller.enqueue(("", name))
    manager.add(controller)
    async with working(manager):
        await asyncio.sleep(0.5)
        controller.enqueue(("", "a"))
        await asyncio.sleep(10)
    assert most == 3


async def test_informers_are_shared_and_must_exist_before_the_start() -> None:
    manager = Manager(MemoryApi().client())
    first = manager.informer(PODS, indexers={"a": lambda _: []})
    assert manager.informer(PODS, indexers={"b": lambda _: []}) is first
    assert manager.informer(PODS, namespace="lab") is not first
    await run_for(manager, 1)
    with pytest.raises(RuntimeError):
        manager.informer(NODES)


async def test_a_runnable_that_ends_ends_the_manager() -> None:
    manager = Manager(MemoryApi().client())

    async def short() -> None:
        await asyncio.sleep(1)

    manager.add_runnable("short", short)
    with pytest.raises(ExceptionGroup) as caught:
        await manager.run()
    assert "short ended" in str(caught.value.exceptions[0].exceptions[0])


async def test_informer_of_a_kind_that_is_not_served_stays_empty() -> None:
    absent = ResourceType("none.example.com", "v1", "things", "Thing")
    manager = Manager(MemoryApi().client(), absent=[absent])
    things = manager.informer(absent)
    async with working(manager):
        assert list(things.list()) == []
