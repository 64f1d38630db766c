"""Informers: caches that stay right whatever happens to the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubecore.client import Client, ClientConfig, Request, Response
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects.selectors import parse_label_selector
from kubecore.resources import NODES, PODS
from kubecore.runtime import Informer, Manager
from kubecore.runtime.informer import retry_delay
from kubecore.testing import MemoryApi
from kubecore.testing.transport import MemoryTransport

pytestmark = pytest.mark.looptime


def pod(name: str, node: str = "", **labels: str) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": "lab", "labels": labels},
        "spec": {"nodeName": node},
    }


@asynccontextmanager
async def running(informer: Informer) -> AsyncIterator[list[tuple[str, str]]]:
    seen: list[tuple[str, str]] = []
    informer.add_handler(lambda event, old, new: seen.append((event, new["metadata"]["name"])))
    task = asyncio.create_task(informer.run())
    try:
        async with asyncio.timeout(300):
            await informer.wait_synced()
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settle() -> None:
    await asyncio.sleep(0.01)


async def test_the_cache_follows_the_server() -> None:
    api = MemoryApi()
    api.put(PODS, pod("a"))
    informer = Informer(api.client(), PODS)
    async with running(informer) as seen:
        api.put(PODS, pod("b"))
        api.put(PODS, pod("b", node="n"))
        api.remove(PODS, "a", "lab")
        await settle()
        assert seen == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]
        assert informer.get("lab", "a") is None
        assert [item["metadata"]["name"] for item in informer.list("lab")] == ["b"]
        assert informer.list("other") == []


async def test_members_of_lists_have_their_kind() -> None:
    api = MemoryApi()
    api.put(PODS, pod("a"))
    informer = Informer(api.client(), PODS)
    async with running(informer):
        cached = informer.get("lab", "a")
        assert cached is not None and (cached["kind"], cached["apiVersion"]) == ("Pod", "v1")


async def test_selectors_and_predicates_choose() -> None:
    api = MemoryApi()
    api.put(PODS, pod("a", app="x"))
    api.put(PODS, pod("b", node="n", app="y"))
    informer = Informer(api.client(), PODS, label_selector="app")
    async with running(informer):
        assert len(informer.list(selector=parse_label_selector("app=y"))) == 1
        assert len(informer.list(selector=lambda item: item["spec"]["nodeName"] == "n")) == 1


async def test_indexes_follow_changes_and_may_be_added_late() -> None:
    api = MemoryApi()
    api.put(PODS, pod("a", node="n1"))
    informer = Informer(api.client(), PODS, indexers={"node": lambda item: [item["spec"]["nodeName"]]})
    async with running(informer):
        api.put(PODS, pod("a", node="n2"))
        await settle()
        informer.add_index("name", lambda item: [item["metadata"]["name"]])
        assert informer.by_index("node", "n1") == []
        assert len(informer.by_index("node", "n2")) == 1
        assert len(informer.by_index("name", "a")) == 1
        api.remove(PODS, "a", "lab")
        await settle()
        assert informer.by_index("node", "n2") == []


async def test_a_handler_that_comes_late_sees_what_is_there() -> None:
    api = MemoryApi()
    api.put(NODES, {"metadata": {"name": "n"}})
    informer = Informer(api.client(), NODES)
    async with running(informer):
        seen: list[str] = []
        informer.add_handler(lambda event, old, new: seen.append(event))
        assert seen == ["ADDED"]
        assert informer.get(None, "n") is not None


async def test_a_broken_watch_goes_on_where_it_was() -> None:
    api = MemoryApi()
    informer = Informer(api.client(), PODS)
    async with running(informer) as seen:
        await settle()
        api.break_watches()
        await settle()
        api.put(PODS, pod("a"))
        await asyncio.sleep(60)
        assert seen == [("ADDED", "a")]
    lists = [request for request in api.requests if "watch" not in dict(request.query)]
    assert len(lists) == 1


async def test_watches_that_end_at_once_are_begun_anew_more_and_more_slowly() -> None:
    """As where the server cannot convert the next object: it can only end its answer."""
    api = MemoryApi()
    watches = 0

    def watch(request: Request) -> AsyncIterator[bytes]:
        nonlocal watches
        watches += 1
        if watches == 10_000:
            pytest.fail("they are begun anew without end")
        return nothing() if is_broken else api.watch(request)

    async def nothing() -> AsyncIterator[bytes]:
        no_lines: list[bytes] = []
        for line in no_lines:
            yield line

    is_broken = True
    client = Client(ClientConfig(server="memory://"), MemoryTransport(api.handle, watch))
    async with running(Informer(client, PODS)) as seen:
        await asyncio.sleep(60)
        assert 3 < watches < 20
        is_broken = False
        api.put(PODS, pod("a"))
        await asyncio.sleep(60)
        assert seen == [("ADDED", "a")]
    assert len([request for request in api.requests if "watch" not in dict(request.query)]) == 1


async def test_an_expired_watch_lists_again_and_tells_the_difference() -> None:
    api = MemoryApi()
    api.put(PODS, pod("gone"))
    api.put(PODS, pod("changed"))
    api.put(PODS, pod("same"))
    informer = Informer(api.client(), PODS)
    async with running(informer) as seen:
        await settle()
        seen.clear()
        blocked = True

        def refuse(request: Request) -> Response | StatusError | None:
            return StatusError(503, "ServiceUnavailable", "down") if blocked else None

        api.reactions.append(refuse)
        api.break_watches()
        api.remove(PODS, "gone", "lab")
        api.put(PODS, pod("changed", node="n"))
        api.put(PODS, pod("new"))
        api.expire_history()
        await asyncio.sleep(5)
        assert seen == []
        blocked = False
        await asyncio.sleep(120)
        assert sorted(seen) == [("ADDED", "new"), ("DELETED", "gone"), ("MODIFIED", "changed")]
        api.put(PODS, pod("later"))
        await settle()
        assert seen[-1] == ("ADDED", "later")


async def test_an_object_replaced_unseen_is_deleted_and_added() -> None:
    api = MemoryApi()
    api.put(PODS, pod("a"))
    informer = Informer(api.client(), PODS)
    async with running(informer) as seen:
        await settle()
        api.remove(PODS, "a", "lab")
        api.put(PODS, pod("a"))
        api.expire_history()
        seen.clear()
        await asyncio.sleep(120)
        assert seen[-2:] == [("DELETED", "a"), ("ADDED", "a")]


async def test_a_failing_list_is_tried_again() -> None:
    api = MemoryApi()
    answers: list[Any] = [StatusError(500, "InternalError", "no"), StatusError(403, "Forbidden", "no")]
    api.reactions.append(lambda _: answers.pop(0) if answers else None)
    async with running(Informer(api.client(), PODS)):
        assert len(api.requests) >= 3


async def test_a_failing_handler_does_not_end_the_cache(caplog: pytest.LogCaptureFixture) -> None:
    api = MemoryApi()
    informer = Informer(api.client(), PODS)

    def fail(*_: object) -> None:
        raise ValueError("broken")

    informer.add_handler(fail)
    async with running(informer) as seen:
        api.put(PODS, pod("a"))
        await settle()
        assert seen == [("ADDED", "a")]
    assert "an event handler of informer pods failed on lab/a" in caplog.text


def test_a_kind_that_is_not_served_yet_is_looked_for_sooner_than_a_server_that_fails() -> None:
    assert retry_delay(0, 0) == retry_delay(0, 404) == 0
    assert [retry_delay(failures, 0) for failures in (1, 2, 3, 9)] == [0.8, 1.6, 3.2, 30.0]
    assert [round(retry_delay(failures, 404), 2) for failures in (1, 2, 3, 4)] == [0.2, 0.3, 0.45, 0.68]
    assert retry_delay(5, 403) == retry_delay(5, 404)
    assert retry_delay(50, 404) == 30.0


async def test_a_manager_keeps_what_names_objects_apart_from_the_objects() -> None:
    manager = Manager(MemoryApi().client())
    whole: Informer = manager.informer(PODS)
    named: Informer = manager.informer(PODS, metadata_only=True)
    assert named is not whole
    assert manager.informer(PODS, metadata_only=True) is named
    assert manager.informer(PODS) is whole
