"""The connection to libvirt, with libvirt's real daemon: alive, stopped, dead, and somebody in its place."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.support.launcher_daemon import Daemon, launched
from tests.support.waiting import until

from virtplane.compute.handler.libvirtd import calls, daemonconnection
from virtplane.compute.handler.libvirtd.calls import DaemonSilent, DomainState, HypervisorError
from virtplane.compute.handler.libvirtd.connections import Connections
from virtplane.compute.handler.libvirtd.daemonconnection import DaemonConnection
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.handler.settings import PodPaths

pytestmark = [pytest.mark.host, pytest.mark.timeout(60)]

DOMAIN = """
<domain type='qemu'><name>ns_vm</name><memory unit='MiB'>16</memory>
<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>
"""


@pytest.fixture
async def daemon() -> AsyncIterator[Daemon]:
    async with launched() as started:
        yield started


def waiting_threads() -> list[str]:
    """Threads in which calls of libvirt have not come back."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("libvirt-") and name != "libvirt-events"]


async def ended_threads() -> None:
    """Wait until all calls have come back."""
    await until(lambda: not waiting_threads())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "CALL_SECONDS", 0.5)
    monkeypatch.setattr(daemonconnection, "CLOSE_SECONDS", 0.5)


async def test_missing_domain_is_no_error_and_prints_nothing(
    daemon: Daemon, capfd: pytest.CaptureFixture[str]
) -> None:
    connection = await Hypervisor.open(daemon.socket, lambda: None)
    capfd.readouterr()
    assert await connection.state("ns_vm") is None
    with pytest.raises(HypervisorError, match="lookup failed: Domain not found"):
        await connection.suspend("ns_vm")
    await connection.destroy("ns_vm")
    assert capfd.readouterr() == ("", "")
    await connection.close()


async def test_events_of_a_domain_are_told(daemon: Daemon) -> None:
    changed = asyncio.Event()
    connection = await Hypervisor.open(daemon.socket, changed.set)
    await connection.start(DOMAIN, paused=True)
    await asyncio.wait_for(changed.wait(), 5)
    assert await connection.state("ns_vm") == DomainState("Paused", "Paused")
    await connection.destroy("ns_vm")
    assert await connection.state("ns_vm") == DomainState("Shutoff", "Destroyed")
    await connection.close()


BOOT_SECTOR = bytes.fromhex("b001 ba0505 ee f4 ebfd").ljust(510, b"\0") + b"\x55\xaa" + bytes(1 << 20)
"""Writes "panicked" to the port of the panic device, and halts."""


async def test_a_guest_that_panics_is_told_from_one_whose_power_is_cut(daemon: Daemon) -> None:
    disk = daemon.folder / "disk.img"
    disk.write_bytes(BOOT_SECTOR)
    devices = (
        f"<devices><panic model='isa'/><disk type='file'><driver name='qemu' type='raw'/>"
        f"<source file='{disk}'/><target dev='vda' bus='virtio'/><readonly/></disk></devices></domain>"
    )
    changed = asyncio.Event()
    connection = await Hypervisor.open(daemon.socket, changed.set)
    xml = DOMAIN.replace("</name>", f"</name><uuid>{uuid.uuid4()}</uuid>").replace("</domain>", devices)
    await connection.start(xml, paused=True)
    await connection.destroy("ns_vm")
    assert not connection.has_panicked
    await connection.start(xml, paused=False)
    async with asyncio.timeout(50):
        while await connection.state("ns_vm") != DomainState("Shutoff", "Crashed"):
            await changed.wait()
            changed.clear()
    assert connection.has_panicked
    await connection.close()


async def test_stopped_daemon_misses_its_deadline_and_holds_nothing(daemon: Daemon, impatient: None) -> None:
    changed = asyncio.Event()
    connection = await Hypervisor.open(daemon.socket, changed.set)
    daemon.send(signal.SIGSTOP)
    ended = await asyncio.gather(*(connection.state("ns_vm") for _ in range(5)), return_exceptions=True)
    assert all(isinstance(each, HypervisorError) for each in ended)
    assert any(isinstance(each, DaemonSilent) for each in ended)
    assert (connection.is_open, changed.is_set()) == (False, True)
    await ended_threads()
    with pytest.raises(DaemonSilent, match="open failed"):
        await Hypervisor.open(daemon.socket, lambda: None)
    await ended_threads()
    await connection.close()
    daemon.send(signal.SIGCONT)
    again = await Hypervisor.open(daemon.socket, lambda: None)
    assert await again.state("ns_vm") is None
    await again.close()


async def test_killed_daemon_is_noticed_and_its_successor_found(daemon: Daemon) -> None:
    closed = asyncio.Event()
    connection = await Hypervisor.open(daemon.socket, closed.set)
    daemon.send(signal.SIGKILL)
    await asyncio.wait_for(closed.wait(), 5)
    assert not connection.is_open
    with pytest.raises(HypervisorError, match="the connection is closed"):
        await connection.state("ns_vm")
    await connection.close()
    # The launcher starts another one, behind the same socket.
    again = await Hypervisor.open(daemon.socket, lambda: None)
    assert await again.state("ns_vm") is None
    await again.close()
    daemon.pid = int((await daemon.link.request("ping"))["libvirt"])


async def test_nothing_is_left_of_many_connections(daemon: Daemon) -> None:
    await (await Hypervisor.open(daemon.socket, lambda: None)).close()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the names are not used
    for _ in range(10):
        await (await Hypervisor.open(daemon.socket, lambda: None)).close()
    await ended_threads()
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)  # noqa: PTH208


class Paths(PodPaths):
    """The folders of a launcher that the node itself started."""

    @property
    def control_socket(self) -> Path:
        return self.root / "share/sockets/launcher-sock"

    @property
    def libvirt_socket(self) -> Path:
        return self.root / "run/libvirt/libvirt-sock"


async def test_lines_to_a_stopped_daemon_are_given_up_and_opened_again(
    daemon: Daemon, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    changed = asyncio.Event()
    lines = Connections("ns_vm", Paths("", daemon.folder), changed.set)

    async def until(is_connected: bool) -> Hypervisor | None:
        while (lines.hypervisor is not None and lines.hypervisor.is_open) != is_connected:
            changed.clear()
            lines.keep()
            await asyncio.wait_for(changed.wait(), 5)
        return lines.hypervisor

    connection = await until(True)
    assert connection is not None and lines.has_daemon and not lines.lasting_trouble
    daemon.send(signal.SIGSTOP)
    with pytest.raises(DaemonSilent):
        await connection.state("ns_vm")
    begun = asyncio.get_running_loop().time()
    lines.keep()
    assert asyncio.get_running_loop().time() - begun < calls.CALL_SECONDS
    assert lines.is_ready and not lines.gone
    changed.clear()
    await asyncio.wait_for(changed.wait(), 5)
    assert "did not answer within" in lines._trouble
    daemon.send(signal.SIGCONT)
    again = await until(True)
    assert again is not None and await again.state("ns_vm") is None
    told = [record.getMessage() for record in caplog.records]
    assert told.count("A guest's launcher or libvirt cannot be reached; trying again") == 1
    await lines.close()
    await ended_threads()


@pytest.mark.parametrize("said", [b"", b"\xff\xff\xff\xff" * 100, b"\0\0\0\x1c" + b"\0" * 24, b"x" * 100_000])
async def test_somebody_who_is_no_daemon_is_an_error(tmp_path: Path, impatient: None, said: bytes) -> None:
    calls.start_events()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(serve, tmp_path / "libvirt-sock"):
        with pytest.raises(HypervisorError, match="open failed"):
            await Hypervisor.open(tmp_path / "libvirt-sock", lambda: None)
        await ended_threads()


async def test_missing_socket_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HypervisorError, match="open failed: No such file"):
        await Hypervisor.open(tmp_path / "libvirt-sock", lambda: None)


class SlowAgent:
    """A connection, and its one domain, whose agent takes its time."""

    def lookupByName(self, _name: str) -> SlowAgent:
        return self

    def agentSetResponseTimeout(self, _seconds: int) -> None:
        """It would answer in time."""

    def guestInfo(self, _types: int, _flags: int) -> dict[str, str]:
        threading.Event().wait(1.0)
        return {"os.id": "slow"}


async def test_answer_that_is_no_text_is_an_error() -> None:
    with pytest.raises(HypervisorError, match="the answer is not valid UTF-8"):
        await calls.call_daemon("describe", b"<domain>\xff".decode)


async def test_only_so_many_calls_wait_for_an_agent_that_does_not_answer(impatient: None) -> None:
    connection = Hypervisor(DaemonConnection(SlowAgent(), Mock(), lambda: None))
    most = daemonconnection._MOST_ASKED
    waiting = [asyncio.create_task(connection.guest_info("ns_vm")) for _ in range(most)]
    await asyncio.sleep(0)
    with pytest.raises(HypervisorError, match=f"{most} other calls wait for the guest's agent"):
        await connection.guest_info("ns_vm")
    for task in waiting[1:]:
        task.cancel()
    await asyncio.gather(*waiting[1:], return_exceptions=True)
    assert await connection.guest_info("ns_vm") == await waiting[0] == {"os.id": "slow"}


async def test_slow_agent_is_no_silent_daemon(impatient: None) -> None:
    connection = Hypervisor(DaemonConnection(SlowAgent(), Mock(), lambda: None))
    assert await connection.guest_info("ns_vm") == {"os.id": "slow"}
    assert connection.is_open
