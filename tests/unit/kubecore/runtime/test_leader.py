"""Leader election on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubecore.client import Client, ClientConfig, Request, Response
from kubecore.errors import StatusError
from kubecore.resources import LEASES
from kubecore.runtime import LeaderElector, LeadershipLost
from kubecore.testing import MemoryApi
from kubecore.testing.transport import MemoryTransport

pytestmark = pytest.mark.looptime


def elector(api: MemoryApi, identity: str) -> LeaderElector:
    return LeaderElector(api.client(), "lock", "lab", identity)


async def forever() -> None:
    await asyncio.Event().wait()


def holder(api: MemoryApi) -> str:
    lease = api.get(LEASES, "lock", "lab")
    assert lease is not None
    return str(lease["spec"]["holderIdentity"])


async def test_the_first_one_leads_and_the_second_waits_until_the_lease_expires() -> None:
    api = MemoryApi()
    first, second = elector(api, "one"), elector(api, "two")
    one = asyncio.create_task(first.run(forever))
    await asyncio.sleep(1)
    two = asyncio.create_task(second.run(forever))
    await asyncio.sleep(60)
    assert (first.is_leader, second.is_leader, holder(api)) == (True, False, "one")

    # The first one's process dies without giving anything up.
    api.reactions.append(lambda _: None)
    one_client_blocked = StatusError(503, "ServiceUnavailable", "gone")
    identity = first._identity
    api.reactions.append(
        lambda request: one_client_blocked if request.body and identity.encode() in request.body else None
    )
    with pytest.raises(LeadershipLost):
        await one
    await asyncio.sleep(20)
    assert (first.is_leader, second.is_leader, holder(api)) == (False, True, "two")
    assert second.leader == "two"
    lease = api.get(LEASES, "lock", "lab")
    assert lease is not None and lease["spec"]["leaseTransitions"] >= 1
    two.cancel()
    await asyncio.gather(two, return_exceptions=True)


async def test_ending_gives_the_lease_up_so_that_a_successor_starts_at_once() -> None:
    api = MemoryApi()
    loop = asyncio.get_running_loop()

    async def brief() -> None:
        await asyncio.sleep(5)

    await elector(api, "one").run(brief)
    assert holder(api) == ""
    started = loop.time()

    async def note() -> None:
        assert loop.time() - started < 5

    await elector(api, "two").run(note)


async def test_cancelling_stops_the_work_first_and_releases() -> None:
    api = MemoryApi()
    stopped = False

    async def work() -> None:
        nonlocal stopped
        try:
            await forever()
        finally:
            stopped = holder(api) == "one"

    task = asyncio.create_task(elector(api, "one").run(work))
    await asyncio.sleep(3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert stopped
    assert holder(api) == ""


async def test_an_exception_of_the_work_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await elector(MemoryApi(), "one").run(fail)


class SlowTransport(MemoryTransport):
    """To a server that answers after `seconds`."""

    seconds = 0.0

    async def request(self, request: Request) -> Response:
        """The response, late."""
        await asyncio.sleep(self.seconds)
        return await super().request(request)


async def test_who_leads_goes_on_leading_while_the_server_is_slow() -> None:
    api = MemoryApi()
    transport = SlowTransport(api.handle, api.watch)
    slow = LeaderElector(Client(ClientConfig(server="memory://"), transport), "lock", "lab", "one")
    task = asyncio.create_task(slow.run(forever))
    await asyncio.sleep(1)
    assert slow.is_leader
    transport.seconds = 6.0  # by its deadline it has time for one request
    await asyncio.sleep(60)
    assert slow.is_leader
    transport.seconds = 9.0
    with pytest.raises(LeadershipLost):
        await task


async def test_a_lease_that_somebody_else_wrote_to_is_read_again() -> None:
    api = MemoryApi()
    leading = elector(api, "one")
    task = asyncio.create_task(leading.run(forever))
    await asyncio.sleep(5)
    lease = api.get(LEASES, "lock", "lab")
    assert lease is not None
    api.put(LEASES, {**lease, "metadata": {**lease["metadata"], "labels": {"seen": "yes"}}})
    await asyncio.sleep(60)
    assert leading.is_leader
    lease = api.get(LEASES, "lock", "lab")
    assert lease is not None
    assert lease["metadata"]["labels"] == {"seen": "yes"}
    # Somebody took it: whoever writes without reading must not take it back.
    api.put(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "two"}})
    with pytest.raises(LeadershipLost):
        await task
    assert holder(api) == "two"


async def test_who_lost_the_lease_stops_its_work_and_begins_anew_when_it_leads_again() -> None:
    api = MemoryApi()
    begun, ended = [], []

    async def work() -> None:
        begun.append(holder(api))
        try:
            await forever()
        finally:
            ended.append(holder(api))

    leading = elector(api, "one")
    task = asyncio.create_task(leading.lead(work))
    await asyncio.sleep(5)
    assert (begun, ended) == (["one"], [])
    api.reactions.append(lambda request: StatusError(503, "ServiceUnavailable", "busy"))
    await asyncio.sleep(15)
    assert (leading.is_leader, ended) == (False, ["one"])
    # Meanwhile somebody else leads, and goes.
    lease = api.get(LEASES, "lock", "lab")
    assert lease is not None
    api.put(LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": "two"}})
    api.reactions.clear()
    await asyncio.sleep(10)
    assert (leading.is_leader, len(begun)) == (False, 1)
    await asyncio.sleep(20)
    assert (leading.is_leader, begun) == (True, ["one", "one"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert holder(api) == ""
