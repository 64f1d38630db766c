"""A guest's clock is set when it runs on after a pause."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

import libvirt
import pytest

from virtplane.compute.handler.agent.clock import GuestClock
from virtplane.compute.handler.libvirtd.calls import DomainState, HypervisorError
from virtplane.compute.handler.libvirtd.connections import Connections

pytestmark = pytest.mark.looptime

PAUSED, RUNNING = DomainState("Paused", "PausedByUser"), DomainState("Running", "Unpaused")


class Guest:
    """The libvirt of a guest; `failures` are the codes with which setting the time fails, one each."""

    def __init__(self, *failures: int) -> None:
        self.agent_connected = True
        self.failures = list(failures)
        self.tried: list[int] = []
        """The times that the agent was given, in seconds of the test's clock."""
        self.clock = GuestClock("ns_vm", "ns/vm", cast(Connections, self), self.now)

    @property
    def hypervisor(self) -> Guest:
        return self

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def set_time(self, _name: str, seconds: int) -> None:
        self.tried.append(seconds)
        if self.failures:
            raise HypervisorError("set time", "not now", self.failures.pop(0))


async def test_the_clock_is_set_once_a_paused_guest_runs_on() -> None:
    guest = Guest()
    guest.clock.follow(PAUSED, RUNNING)
    guest.clock.follow(RUNNING, RUNNING)
    await asyncio.sleep(5)
    assert len(guest.tried) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, RUNNING), (RUNNING, PAUSED), (PAUSED, None), (DomainState("Shutoff"), RUNNING)],
)
async def test_a_guest_that_was_not_paused_keeps_its_clock(
    before: DomainState | None, after: DomainState | None
) -> None:
    guest = Guest()
    guest.clock.follow(before, after)
    await asyncio.sleep(5)
    assert guest.tried == []


async def test_an_agent_that_comes_late_gets_the_time_of_then() -> None:
    guest = Guest(libvirt.VIR_ERR_AGENT_UNRESPONSIVE)
    guest.agent_connected = False
    begun = guest.now()
    guest.clock.follow(PAUSED, RUNNING)
    await asyncio.sleep(10)
    guest.agent_connected = True
    await asyncio.sleep(10)
    assert guest.tried == [pytest.approx(begun + after, abs=1.1) for after in (10, 11)]


async def test_after_a_minute_it_is_left_and_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    guest = Guest(*[libvirt.VIR_ERR_AGENT_UNRESPONSIVE] * 100)
    guest.clock.follow(PAUSED, RUNNING)
    await asyncio.sleep(120)
    assert len(guest.tried) == 60
    assert "clock was not set after a pause" in caplog.text


async def test_an_agent_that_cannot_set_it_is_asked_once() -> None:
    guest = Guest(*[libvirt.VIR_ERR_OPERATION_UNSUPPORTED] * 2)
    guest.clock.follow(PAUSED, RUNNING)
    await asyncio.sleep(5)
    assert len(guest.tried) == 1


async def test_a_machine_that_is_given_up_ends_the_attempts() -> None:
    guest = Guest(*[libvirt.VIR_ERR_AGENT_UNRESPONSIVE] * 100)
    guest.clock.follow(PAUSED, RUNNING)
    await asyncio.sleep(2.5)
    await guest.clock.close()
    await asyncio.sleep(5)
    assert len(guest.tried) == 3
