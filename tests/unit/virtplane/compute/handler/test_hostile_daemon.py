"""A launcher's libvirt that says more than any libvirt has to say: virt-handler serves other tenants, too."""

from __future__ import annotations

import asyncio
import resource
import struct
import time
from collections.abc import AsyncIterator
from unittest.mock import AsyncMock, Mock

import pytest
from tests.support.launcher_daemon import Daemon, launched
from tests.support.lying_daemon import HEADER, lying
from tests.support.waiting import until

from virtplane.compute.domain.plugs import live_disks
from virtplane.compute.handler.libvirtd.calls import HypervisorError, call_daemon
from virtplane.compute.handler.libvirtd.daemonconnection import DaemonConnection
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.handler.libvirtd.relay import MESSAGE_BYTES, Messages, UnfitMessage

pytestmark = [pytest.mark.timeout(60)]

DOMAIN = """
<domain type='qemu'><name>ns_vm</name><memory unit='MiB'>16</memory><vcpu>2</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>
"""
NODE_CPU_MAP, DESCRIBE = 293, 14
"""libvirt's numbers of these procedures."""


@pytest.fixture
async def daemon() -> AsyncIterator[Daemon]:
    async with launched() as started:
        yield started


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


@pytest.mark.host
async def test_a_guest_is_measured_by_its_own_processors_alone(daemon: Daemon) -> None:
    def many_processors(procedure: int, said: bytes) -> bytes:
        return said[:HEADER] + struct.pack(">III", 0, 0, 30_000_000) if procedure == NODE_CPU_MAP else said

    async with lying(daemon.socket, many_processors) as liar:
        connection = await Hypervisor.open(liar, lambda: None)
        try:
            await connection.start(DOMAIN, paused=False)
            before = peak_bytes()
            figures = await connection.figures("ns_vm")
            assert peak_bytes() - before < 64 << 20
            assert (figures.cpus, figures.memory_kib) == (2, 16 << 10)

            async def has_run() -> bool:
                return (await connection.figures("ns_vm")).cpu_nanoseconds > 0

            await until(has_run)
            await connection.destroy("ns_vm")
        finally:
            await connection.close()


@pytest.mark.host
async def test_a_description_without_end_ends_the_connection(daemon: Daemon) -> None:
    def long(procedure: int, said: bytes) -> bytes:
        if procedure != DESCRIBE:
            return said
        text = b"<domain/>".ljust(3 << 20)
        return said[:HEADER] + struct.pack(">I", len(text)) + text

    closed = asyncio.Event()
    async with lying(daemon.socket, long) as liar:
        connection = await Hypervisor.open(liar, closed.set)
        try:
            await connection.start(DOMAIN, paused=True)
            with pytest.raises(HypervisorError, match="describe failed"):
                await connection.description("ns_vm")
            await asyncio.wait_for(closed.wait(), 5)
            assert not connection.is_open
        finally:
            await connection.close()
        again = await Hypervisor.open(liar, lambda: None)
        await again.destroy("ns_vm")
        await again.close()


@pytest.mark.looptime
async def test_a_storm_of_events_has_the_guest_looked_at_now_and_then() -> None:
    told: list[float] = []
    loop = asyncio.get_running_loop()
    daemon = DaemonConnection(Mock(), Mock(close=AsyncMock()), lambda: told.append(loop.time()))
    for _ in range(500):
        daemon.announce()
    await asyncio.sleep(0.1)
    assert len(told) == 20
    await asyncio.sleep(5)
    assert len(told) == 21 and told[-1] - told[0] >= 1
    daemon.announce()
    daemon.is_open = False
    await asyncio.sleep(0.1)
    await daemon.close()
    assert len(told) == 21


def test_disks_without_end_are_not_looked_at() -> None:
    disk = "<disk><alias name='ua-{}'/><target dev='vd{}'/></disk>"
    few = "".join(disk.format(name, name) for name in "abc")
    assert [found.name for found in live_disks(f"<domain><devices>{few}</devices></domain>")] == [
        "a",
        "b",
        "c",
    ]
    many = "<disk/>" * 200_000
    begun = time.process_time()
    assert live_disks(f"<domain><devices>{many}{few}</devices></domain>") == []
    assert time.process_time() - begun < 0.3


async def test_an_answer_that_memory_has_no_room_for_is_an_error() -> None:
    with pytest.raises(HypervisorError, match="disk errors failed: the answer is too large"):
        await call_daemon("disk errors", bytearray, 1 << 62)


def frame(length: int) -> bytes:
    return struct.pack(">I", length).ljust(length, b"x")


@pytest.mark.parametrize("step", [1, 3, 7, 100_000])
def test_messages_are_told_apart_however_their_bytes_come(step: int) -> None:
    messages = Messages()
    stream = frame(28) + frame(33) + frame(5000) + frame(28)
    for position in range(0, len(stream), step):
        messages.take(stream[position : position + step])
    messages.take(frame(MESSAGE_BYTES)[:100])
    messages.take(bytes(MESSAGE_BYTES - 100))
    with pytest.raises(UnfitMessage, match=f"{MESSAGE_BYTES + 1} bytes"):
        messages.take(struct.pack(">I", MESSAGE_BYTES + 1))


@pytest.mark.parametrize("length", [0, 4, 27, 0xFFFFFFFF])
def test_what_can_be_no_message_ends_the_connection(length: int) -> None:
    with pytest.raises(UnfitMessage):
        Messages().take(struct.pack(">I", length))
