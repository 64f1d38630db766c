"""What virt-handler does for one guest on its node, apart from libvirt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from virtplane.compute.handler.hypervisor import Hypervisor
from virtplane.compute.handler.libvirtcalls import DaemonSilent, HypervisorError
from virtplane.compute.handler.machine import Machine, both
from virtplane.compute.handler.settings import HandlerSettings


@pytest.mark.looptime
async def test_a_failed_step_is_reported_only_once_the_other_has_ended() -> None:
    ended = []

    async def fails() -> str:
        raise OSError("no network")

    async def works() -> int:
        await asyncio.sleep(60)
        ended.append("volumes")
        return 1

    with pytest.raises(OSError, match="no network"):
        await both(fails(), works())
    assert ended == ["volumes"]


async def test_two_steps_give_both_results() -> None:
    assert await both(asyncio.sleep(0, "links"), asyncio.sleep(0, 2)) == ("links", 2)


class Libvirt:
    """A connection whose daemon fails in one way."""

    is_open = True

    def __init__(self, failure: HypervisorError) -> None:
        self.failure = failure

    async def state(self, _name: str) -> None:
        raise self.failure

    def give_up(self) -> None:
        self.is_open = False

    async def close(self) -> None:
        """There is nothing to hang up."""


@pytest.mark.parametrize(
    ("failure", "told"),
    [(HypervisorError("lookup", "End of file"), 0), (DaemonSilent("lookup", "silent"), 1)],
)
async def test_only_a_silent_daemon_is_told_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failure: HypervisorError, told: int
) -> None:
    vmi = {"metadata": {"name": "vm", "namespace": "ns", "uid": "u"}, "spec": {}}
    machine = Machine(HandlerSettings("n", pods_directory=tmp_path), vmi, "pod", lambda: None)
    machine.lines.hypervisor = cast(Hypervisor, Libvirt(failure))
    seen = await machine.observe()
    assert (seen.domain_known, machine.lines.hypervisor.is_open) == (False, False)
    assert len(caplog.records) == told
    await machine.close()
