"""Turns and threads for big requests."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kubecore import errors
from kubecore.large_requests import LargeRequestPool, RequestShare


async def test_what_senders_hold_is_bounded_and_given_back() -> None:
    large_requests = LargeRequestPool(max_held_bytes=100)
    shares = [_share(large_requests, f"user-{number}") for number in range(5)]
    for share in shares[:4]:
        share.hold(25)
    with pytest.raises(errors.StatusError, match="too many requests") as caught:
        shares[4].hold(1)
    assert (caught.value.code, caught.value.headers) == (429, {"Retry-After": "1"})
    shares[0].give_back()
    shares[4].hold(25)
    large_requests.close()


async def test_one_sender_cannot_hold_what_all_share() -> None:
    large_requests = LargeRequestPool(max_held_bytes=100)
    accounts = [
        _share(large_requests, f"system:serviceaccount:tenant:account-{number}") for number in range(2)
    ]
    accounts[0].hold(20)
    with pytest.raises(errors.StatusError, match="too many requests"):
        accounts[1].hold(20)
    neighbour = _share(large_requests, "system:serviceaccount:quiet:account-0")
    neighbour.hold(20)
    accounts[0].give_back()
    accounts[1].hold(20)
    large_requests.close()


@pytest.mark.parametrize("user", ["mallory", "system:serviceaccount:tenant:{}"])
async def test_one_sender_never_has_all_slots(user: str) -> None:
    large_requests = LargeRequestPool(at_once=3)
    shares = [_share(large_requests, user.format(number)) for number in range(10)]
    waiting = [asyncio.create_task(share.acquire_slot()) for share in shares]
    await asyncio.sleep(0)
    assert sum(task.done() for task in waiting) == 2
    neighbour = _share(large_requests, "neighbour")
    await asyncio.wait_for(neighbour.acquire_slot(), 1)
    neighbour.give_back()
    for task, share in zip(waiting, shares, strict=True):
        await asyncio.wait_for(task, 1)
        share.give_back()
    await asyncio.wait_for(neighbour.acquire_slot(), 1)
    neighbour.give_back()
    large_requests.close()


def _share(large_requests: LargeRequestPool, user: str) -> RequestShare:
    made = RequestShare(large_requests)
    made.belongs_to(user)
    return made


async def test_only_so_many_big_requests_are_worked_on_at_once() -> None:
    large_requests = LargeRequestPool(at_once=1)
    first, second = RequestShare(large_requests), RequestShare(large_requests)
    await first.acquire_slot()
    await first.acquire_slot()  # it has its turn already
    waiting = asyncio.create_task(second.acquire_slot())
    await asyncio.sleep(0)
    assert not waiting.done()
    first.give_back()
    first.give_back()
    await asyncio.wait_for(waiting, 1)
    second.give_back()
    large_requests.close()


async def test_a_request_that_goes_away_while_it_waits_takes_no_turn() -> None:
    large_requests = LargeRequestPool(at_once=1)
    first, second, third = (
        RequestShare(large_requests),
        RequestShare(large_requests),
        RequestShare(large_requests),
    )
    await first.acquire_slot()
    waiting = asyncio.create_task(second.acquire_slot())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    second.give_back()
    first.give_back()
    await asyncio.wait_for(third.acquire_slot(), 1)
    third.give_back()
    large_requests.close()


async def test_work_is_done_in_another_thread_and_its_errors_come_back() -> None:
    large_requests = LargeRequestPool()
    assert await large_requests.run(threading.get_ident) != threading.get_ident()

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await large_requests.run(fail)
    large_requests.close()
