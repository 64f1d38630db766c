"""Informers that hold structs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.support.managers import working

from kubecore.json import JsonObject
from kubecore.objects.selectors import parse_label_selector
from kubecore.objects.structs import UnfitDocument
from kubecore.resources import PODS
from kubecore.runtime import DONE, Controller, Informer, Key, Manager, Result
from kubecore.testing import MemoryApi

pytestmark = pytest.mark.looptime


class Meta(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    deletion_timestamp: str = ""

    @property
    def is_being_deleted(self) -> bool:
        return bool(self.deletion_timestamp)


class PodSpec(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    node_name: str = ""


class Pod(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    kind: str = ""
    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()


def pod(name: str, node: Any = "", **labels: str) -> JsonObject:
    return {"metadata": {"name": name, "namespace": "lab", "labels": labels}, "spec": {"nodeName": node}}


@asynccontextmanager
async def running(informer: Informer[Pod]) -> AsyncIterator[list[tuple[str, str, str]]]:
    seen: list[tuple[str, str, str]] = []
    informer.add_handler(
        lambda event, old, new: seen.append((event, old.spec.node_name if old else "-", new.spec.node_name))
    )
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


async def test_objects_are_read_by_field() -> None:
    api = MemoryApi()
    api.put(PODS, pod("a", "n1"))
    informer = Informer(api.client(), PODS, struct=Pod)
    async with running(informer) as seen:
        found = informer.get("lab", "a")
        assert found is not None and (found.kind, found.spec.node_name) == ("Pod", "n1")
        api.put(PODS, pod("a", "n2"))
        api.remove(PODS, "a", "lab")
        await settle()
        assert seen == [("ADDED", "-", "n1"), ("MODIFIED", "n1", "n2"), ("DELETED", "n2", "n2")]


async def test_each_state_of_an_object_is_decoded_once() -> None:
    api = MemoryApi()
    api.put(PODS, pod("a"))
    informer = Informer(api.client(), PODS, struct=Pod)
    async with running(informer):
        assert informer.get("lab", "a") is informer.get("lab", "a") is informer.list()[0]


async def test_selectors_predicates_and_indexes_take_structs() -> None:
    api = MemoryApi()
    api.put(PODS, pod("a", "n1", app="x"))
    api.put(PODS, pod("b", "n2", app="y"))
    informer = Informer(api.client(), PODS, struct=Pod, indexers={"node": lambda each: [each.spec.node_name]})
    async with running(informer):
        assert [each.metadata.name for each in informer.by_index("node", "n2")] == ["b"]
        assert [each.metadata.name for each in informer.list(selector=parse_label_selector("app=x"))] == ["a"]
        assert [each.metadata.name for each in informer.list(selector=lambda each: not each.kind)] == []
        assert [each.metadata.name for each in await informer.read_live()] == ["a", "b"]


async def test_documents_are_transformed_before_they_are_decoded() -> None:
    api = MemoryApi()
    api.put(PODS, pod("a", "n1"))
    informer = Informer(
        api.client(), PODS, struct=Pod, transform=lambda document: {**document, "spec": {"nodeName": "other"}}
    )
    async with running(informer):
        assert [each.spec.node_name for each in informer.list()] == ["other"]


async def test_an_object_that_does_not_fit_is_told_of_and_does_not_count_as_absent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = MemoryApi()
    api.put(PODS, pod("bad", 7))
    api.put(PODS, pod("good", "n"))
    informer = Informer(api.client(), PODS, struct=Pod)
    async with running(informer) as seen:
        assert [each.metadata.name for each in informer.list()] == ["good"]
        with pytest.raises(UnfitDocument, match=r"^Pod lab/bad: spec.nodeName: Expected `str`, got `int`$"):
            informer.get("lab", "bad")
        assert set(informer.unfit) == {("lab", "bad")}
        assert "Pod lab/bad: spec.nodeName" in caplog.text
        with pytest.raises(UnfitDocument):
            await informer.read_live()
        api.put(PODS, pod("bad", "n1"))
        await settle()
        found = informer.get("lab", "bad")
        assert found is not None and found.spec.node_name == "n1"
        assert (informer.unfit, seen[-1]) == ({}, ("ADDED", "-", "n1"))


async def test_an_object_that_no_longer_fits_is_not_told_of_as_deleted() -> None:
    api = MemoryApi()
    api.put(PODS, pod("a", "n1"))
    informer = Informer(api.client(), PODS, struct=Pod)
    async with running(informer) as seen:
        api.put(PODS, pod("a", 7))
        await settle()
        assert (informer.list(), set(informer.unfit)) == ([], {("lab", "a")})
        assert seen == [("ADDED", "-", "n1")]
        api.remove(PODS, "a", "lab")
        await settle()
        assert (informer.get("lab", "a"), informer.unfit) == (None, {})


async def test_a_new_list_finds_out_again_which_objects_fit() -> None:
    api = MemoryApi()
    api.put(PODS, pod("a", "n1"))
    api.put(PODS, pod("b", 7))
    informer = Informer(api.client(), PODS, struct=Pod)
    async with running(informer) as seen:
        informer._replace([{**pod("a", 7)}, {**pod("b", "n2")}])
        assert set(informer.unfit) == {("lab", "a")}
        assert seen == [("ADDED", "-", "n1"), ("ADDED", "-", "n2")]


@pytest.mark.parametrize("is_listed_anew", [False, True])
async def test_the_end_of_an_object_that_does_not_fit_is_told(is_listed_anew: bool) -> None:
    api = MemoryApi()
    api.put(PODS, pod("a", 7))
    informer = Informer(api.client(), PODS, struct=Pod)
    async with running(informer):
        told: list[tuple[str, str]] = []
        informer.add_unfit_handler(told.append)
        assert told == [("lab", "a")]
        if is_listed_anew:
            informer._replace([])
        else:
            api.remove(PODS, "a", "lab")
            await settle()
        assert (told, informer.unfit) == ([("lab", "a")] * 2, {})


async def test_a_controller_is_driven_by_structs() -> None:
    api = MemoryApi()
    done: list[Key] = []

    async def reconcile(key: Key) -> Result:
        done.append(key)
        return DONE

    manager = Manager(api.client())
    informer = manager.informer(PODS, struct=Pod)
    controller = Controller("test", reconcile)
    controller.watch(informer, predicate=lambda event, old, new: new.spec.node_name == "n1")
    manager.add(controller)
    async with working(manager):
        api.put(PODS, pod("a", "n1"))
        api.put(PODS, pod("b", "n2"))
        await settle()
    assert done == [("lab", "a")]


async def test_those_who_ask_for_documents_have_a_cache_of_their_own() -> None:
    manager = Manager(MemoryApi().client())
    assert manager.informer(PODS, struct=Pod) is manager.informer(PODS, struct=Pod)
    documents = manager.informer(PODS)
    assert documents is manager.informer(PODS)
    assert id(documents) != id(manager.informer(PODS, struct=Pod))
