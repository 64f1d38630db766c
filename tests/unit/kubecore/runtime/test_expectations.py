"""Expectations: a controller trusts its cache once that shows what was asked for, or after a time."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.managers import working

from kubecore.client import ConnectionFailed, Request, Response
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects import meta
from kubecore.resources import PODS
from kubecore.runtime import DONE, Controller, Expectations, Key, Manager, Result
from kubecore.runtime.expectations import TIMEOUT_SECONDS, is_refusal
from kubecore.testing import MemoryApi

pytestmark = pytest.mark.looptime

KEY = ("lab", "owner")


def pod(name: str) -> JsonObject:
    return {"metadata": {"name": name, "namespace": "lab", "labels": {"owner": KEY[1]}}}


class Maker:
    """A controller that wants one pod of its own, by a name that the server makes up."""

    def __init__(self, api: MemoryApi) -> None:
        self.api = api
        self.client = api.client()
        self.manager = Manager(self.client)
        self.pods = self.manager.informer(PODS)
        self.looks: list[float] = []
        self.controller = Controller("makers", self.reconcile)
        self.expected = Expectations(
            self.controller, self.pods, lambda item: [(KEY[0], meta.labels(item)["owner"])]
        )
        self.manager.add(self.controller)

    async def reconcile(self, key: Key) -> Result:
        self.looks.append(asyncio.get_running_loop().time())
        if not await self.expected.settled(key):
            return DONE
        if not self.pods.list():
            with self.expected.creating(key):
                wanted = {"metadata": {"generateName": "p-", "labels": {"owner": key[1]}}}
                await self.client.create(PODS, wanted, key[0])
        return DONE


def lose_the_answer(api: MemoryApi, *, after_effect: bool, times: int = 1) -> None:
    """Break the connection of the next creations, before or after they took effect."""
    left = times

    def reaction(request: Request) -> Response | None:
        nonlocal left
        if request.method != "POST" or not left:
            return None
        left -= 1
        if after_effect:
            api.reactions.remove(reaction)
            api.handle(request)
            api.reactions.append(reaction)
        raise ConnectionFailed("cut")

    api.reactions.append(reaction)


@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_creation_whose_answer_is_lost_is_made_exactly_once(after_effect: bool) -> None:
    api = MemoryApi()
    lose_the_answer(api, after_effect=after_effect)
    maker = Maker(api)
    async with working(maker.manager):
        maker.controller.enqueue(KEY)
        await asyncio.sleep(5)
        assert len(api.list(PODS)) == 1
        assert maker.expected.satisfied(KEY)


async def test_a_server_that_cannot_be_asked_is_asked_again() -> None:
    api = MemoryApi()
    maker = Maker(api)
    async with working(maker.manager):
        lose_the_answer(api, after_effect=True)
        refusals = iter([ConnectionFailed("cut"), StatusError(503, "ServiceUnavailable", "no")])

        def refuse_lists(request: Request) -> StatusError | None:
            error = next(refusals, None) if request.method == "GET" else None
            if error is None or isinstance(error, StatusError):
                return error
            raise error

        api.reactions.append(refuse_lists)
        maker.controller.enqueue(KEY)
        await asyncio.sleep(5)
        assert next(refusals, None) is None
        assert len(api.list(PODS)) == 1
        assert maker.expected.satisfied(KEY)


async def test_a_refused_creation_is_not_waited_for() -> None:
    api = MemoryApi()
    maker = Maker(api)
    async with working(maker.manager):
        with pytest.raises(StatusError), maker.expected.creating(KEY):
            raise StatusError(403, "Forbidden", "no")
        assert maker.expected.satisfied(KEY)


async def test_what_is_never_seen_wakes_the_key_when_the_time_is_over() -> None:
    maker = Maker(MemoryApi())
    async with working(maker.manager):
        with maker.expected.creating(KEY):
            await asyncio.sleep(0)  # nothing is created, and nobody says so
        maker.controller.enqueue(KEY)
        await asyncio.sleep(TIMEOUT_SECONDS - 1)
        assert len(maker.looks) == 1
        assert not maker.expected.satisfied(KEY)
        await asyncio.sleep(2)
        assert len(maker.looks) > 1
        assert len(maker.pods.list()) == 1


async def test_what_is_seen_wakes_the_key_whatever_the_controller_watches() -> None:
    api = MemoryApi()
    maker = Maker(api)
    async with working(maker.manager):
        with maker.expected.creating(KEY):
            api.put(PODS, pod("p"))
        await asyncio.sleep(1)
        assert len(maker.looks) == 1


async def test_deletions_are_expected_by_uid_until_the_cache_shows_them() -> None:
    api = MemoryApi()
    first, second = api.put(PODS, pod("a")), api.put(PODS, pod("b"))
    maker = Maker(api)
    async with working(maker.manager):
        for item in (first, second):
            with maker.expected.deleting(KEY, meta.uid(item)):
                api.remove(PODS, meta.name(item), "lab")
        assert not maker.expected.satisfied(KEY)
        await asyncio.sleep(1)
        assert maker.expected.satisfied(KEY)


@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_deletion_whose_answer_is_lost_is_looked_up(after_effect: bool) -> None:
    api = MemoryApi()
    doomed = api.put(PODS, pod("a"))
    maker = Maker(api)
    async with working(maker.manager):
        with pytest.raises(ConnectionFailed), maker.expected.deleting(KEY, meta.uid(doomed)):
            if after_effect:
                api.remove(PODS, "a", "lab")
            raise ConnectionFailed("cut")
        assert not maker.expected.satisfied(KEY)
        await maker.expected.settled(KEY)
        await asyncio.sleep(1)
        assert maker.expected.satisfied(KEY)


async def test_a_forgotten_key_expects_nothing() -> None:
    maker = Maker(MemoryApi())
    with maker.expected.creating(KEY):
        maker.expected.forget(KEY)
    assert maker.expected.satisfied(KEY)


@pytest.mark.parametrize(
    ("error", "took_no_effect"),
    [
        (StatusError(403, "Forbidden", ""), True),
        (StatusError(409, "AlreadyExists", ""), True),
        (StatusError(429, "TooManyRequests", ""), True),
        (StatusError(408, "Timeout", ""), False),
        (StatusError(500, "InternalError", ""), False),
        (StatusError(504, "Timeout", ""), False),
        (ConnectionFailed("cut"), False),
        (asyncio.CancelledError(), False),
    ],
)
def test_only_a_refusal_is_known_to_have_had_no_effect(error: BaseException, took_no_effect: bool) -> None:
    assert is_refusal(error) is took_no_effect
