"""Metrics of the node that guests read: the document, the disk, the channel."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from tests.support.waiting import until

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import metrics as places
from virtplane.compute.handler.downwardmetrics import host, provider, report
from virtplane.compute.handler.downwardmetrics.report import Metric
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.libvirtd.figures import GuestFigures
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import PodPaths

FIGURES = GuestFigures(1_500_000_000, 2, 131072, "qemu-7.2.0")


class Launcher:
    """A launcher whose root is a folder of the test."""

    is_alive = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def root(self) -> Root:
        return Root(self._folder)


def test_the_document_has_the_figures_of_guest_and_node() -> None:
    found = etree.fromstring(
        report.document(report.metrics("node01", FIGURES, [Metric("Time", 7, "s"), Metric("X", "]]><b>")]))
    )
    metrics = {
        (metric.get("context"), metric.findtext("name")): (
            metric.get("type"),
            metric.get("unit"),
            metric.findtext("value"),
        )
        for metric in found
    }
    assert metrics["host", "HostName"] == ("string", None, "node01")
    assert metrics["host", "VirtProductInfo"] == ("string", None, "qemu-7.2.0")
    assert metrics["vm", "TotalCPUTime"] == ("real64", "s", "1.500000")
    assert metrics["vm", "ResourceProcessorLimit"] == ("uint64", None, "2")
    assert metrics["vm", "ResourceMemoryLimit"] == ("uint64", "KiB", "131072")
    assert metrics["host", "Time"] == ("uint64", "s", "7")
    assert metrics["host", "X"][2] == "]]><b>"


def test_the_kernel_tells_of_the_node(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 50 150 9 0 0 0 0 0 0\ncpu0 1 1 1\n")
    (tmp_path / "vmstat").write_text("pswpin 2\npswpout 3\n")
    memory = {"MemTotal": 1000, "MemFree": 100, "Buffers": 10, "Cached": 20, "SwapTotal": 50, "SwapFree": 40}
    (tmp_path / "meminfo").write_text("".join(f"{name}:  {kib} kB\n" for name, kib in memory.items()))
    for number, package in enumerate("001"):
        path = tmp_path / f"devices/system/cpu/cpu{number}/topology/physical_package_id"
        path.parent.mkdir(parents=True)
        path.write_text(f"{package}\n")
    found = {metric.name: metric.value for metric in host.read(tmp_path, tmp_path)}
    assert found.pop("Time")
    assert found == {
        "NumberOfPhysicalCPUs": 2,
        "TotalCPUTime": 3.0,
        "FreePhysicalMemory": 100,
        "FreeVirtualMemory": 140,
        "MemoryAllocatedToVirtualServers": 870,
        "UsedVirtualMemory": 920,
        "PagedInMemory": 8,
        "PagedOutMemory": 12,
    }


def test_the_disk_says_how_long_the_document_is_and_what_its_bytes_add_up_to(tmp_path: Path) -> None:
    with Root(tmp_path) as root:
        provider.create_disk(root)
    path = tmp_path / places.DISK.strip("/")
    assert path.stat().st_size == report.DISK_BYTES
    body = report.disk_body("<metrics>é</metrics>")
    launcher: Any = Launcher(tmp_path)
    provider.write_disk(launcher, body)
    content = path.read_bytes()
    signature, busy, checksum, length = struct.unpack(">4siii", content[:16])
    assert (signature, busy, checksum, length) == (b"mvbd", 0, sum(body), len(body))
    assert content[16 : 16 + length] == body
    assert len(content) == report.DISK_BYTES


def test_a_disk_that_a_launcher_made_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "secret"
    target.write_text("mine")
    path = tmp_path / places.DISK.strip("/")
    path.parent.mkdir(parents=True)
    path.symlink_to("/secret")
    launcher: Any = Launcher(tmp_path)
    with pytest.raises(OSError, match="symbolic links"):
        provider.write_disk(launcher, b"x")
    assert target.read_text() == "mine"


def test_too_many_metrics_for_the_disk_are_refused() -> None:
    with pytest.raises(ValueError, match="too many"):
        report.disk_body("x" * report.DISK_BYTES)


class Guest:
    """QEMU's end of the channel."""

    def __init__(self, folder: Path) -> None:
        path = folder / "volumes/kubernetes.io~empty-dir/private" / places.CHANNEL
        path.parent.mkdir(parents=True)
        self._listener = socket.socket(socket.AF_UNIX)
        # The path is longer than an address may be.
        descriptor = os.open(path.parent, os.O_PATH)
        self._listener.bind(f"/proc/self/fd/{descriptor}/{path.name}")
        os.close(descriptor)
        self._listener.listen(1)
        self._listener.setblocking(False)
        self._peer: socket.socket | None = None

    async def ask(self, text: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        if self._peer is None:
            self._peer, _ = await loop.sock_accept(self._listener)
            self._peer.setblocking(False)
        await loop.sock_sendall(self._peer, text)
        answer = b""
        while not answer.endswith(b"\n\n"):
            answer += await loop.sock_recv(self._peer, 65536)
        return answer

    def close(self) -> None:
        self._listener.close()
        if self._peer is not None:
            self._peer.close()


@pytest.fixture
def guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guest]:
    monkeypatch.setattr(provider, "_REQUEST_SECONDS", 0.0)
    with contextlib.closing(Guest(tmp_path)) as found:
        yield found


def _instance() -> VirtualMachineInstance:
    return decode(VirtualMachineInstance, {"spec": {"domain": {"devices": {"downwardMetrics": {}}}}})


async def _figures() -> GuestFigures:
    return FIGURES


async def _silent() -> GuestFigures:
    raise HypervisorError("figures", "no domain")


async def test_a_guest_that_asks_on_the_channel_is_answered(tmp_path: Path, guest: Guest) -> None:
    source = provider.Source("node01", "ns/vm", _figures)
    provided = provider.MetricsProvider(source, PodPaths("pod", tmp_path))
    launcher: Any = Launcher(tmp_path)
    provided.keep(_instance(), launcher)
    try:
        answer = await guest.ask(b"GET /metrics/XML\n\n")
        assert etree.fromstring(answer)[0].findtext("value") == "node01"
        assert await guest.ask(b"GET /other\n\n") == b"INVALID REQUEST\n\n"
        assert (await guest.ask(b"x" * 5000 + b"\n\n")).startswith(b"INVALID REQUEST\n\n")
    finally:
        await provided.close()


async def test_a_guest_is_told_when_there_are_no_metrics_and_the_log_only_once(
    tmp_path: Path, guest: Guest, caplog: pytest.LogCaptureFixture
) -> None:
    provided = provider.MetricsProvider(provider.Source("n", "ns/vm", _silent), PodPaths("pod", tmp_path))
    launcher: Any = Launcher(tmp_path)
    provided.keep(_instance(), launcher)
    try:
        for _ in range(3):
            assert b"not available" in await guest.ask(b"GET /metrics/XML\n\n")
    finally:
        await provided.close()
    assert len(caplog.messages) == 1


async def test_a_trouble_that_comes_back_is_logged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(provider, "_REFRESH_SECONDS", 0.0)
    works = [False, False, True, False, True]
    asked = 0

    async def figures() -> GuestFigures:
        nonlocal asked
        asked += 1
        return await (_figures() if works[min(asked, len(works)) - 1] else _silent())

    with Root(tmp_path) as root:
        provider.create_disk(root)
    volume = {"name": "m", "downwardMetrics": {}}
    instance = decode(VirtualMachineInstance, {"spec": {"domain": {}, "volumes": [volume]}})
    provided = provider.MetricsProvider(provider.Source("n", "ns/vm", figures), PodPaths("pod", tmp_path))
    launcher: Any = Launcher(tmp_path)

    def are_all_asked() -> bool:
        provided.keep(instance, launcher)  # as each reconciliation does
        return asked >= len(works)

    await until(are_all_asked)
    await provided.close()
    assert len(caplog.messages) == 2


async def test_a_guest_without_metrics_costs_nothing(tmp_path: Path) -> None:
    provided = provider.MetricsProvider(provider.Source("n", "ns/vm", _silent), PodPaths("pod", tmp_path))
    launcher: Any = Launcher(tmp_path)
    before = len(asyncio.all_tasks())
    provided.keep(decode(VirtualMachineInstance, {"spec": {"domain": {}}}), launcher)
    assert len(asyncio.all_tasks()) == before
    await provided.close()
