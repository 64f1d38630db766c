"""Freezes that end by themselves, in virtual time, over restarts of virt-handler."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.thaws import Thaws

pytestmark = pytest.mark.looptime


class Guest:
    """A guest, its machine and its hypervisor in one; `thawed` tells when."""

    name, vmi = "ns_vm", "ns/vm"
    is_open = True

    def __init__(self) -> None:
        self.hypervisor: Guest | None = self
        self.agent = self
        self.thawed: list[float] = []
        self.failures = 0

    async def thaw(self) -> None:
        self.thawed.append(now())
        if self.failures:
            self.failures -= 1
            raise HypervisorError("unfreeze", "the agent does not answer")


class Node:
    """Knows the guest once virt-handler has found it."""

    def __init__(self, folder: Path) -> None:
        self.guest = Guest()
        self.machines: dict[str, Any] = {"u": self.guest}
        self.ended = False
        self.folder = folder

    def has_ended(self, uid: str) -> bool:
        return self.ended or uid != "u"

    def handler(self) -> Thaws:
        """A virt-handler that has just started."""
        made = Thaws(self.folder, self, now)
        made.resume()
        return made


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "thaws")


def planned(node: Node) -> list[str]:
    return [file.name for file in node.folder.iterdir()]


async def test_a_freeze_ends_when_its_time_is_over(node: Node) -> None:
    thaws, begun = node.handler(), now()
    thaws.plan("u", 60)
    assert planned(node) == ["u"]
    await asyncio.sleep(59)
    assert node.guest.thawed == []
    await asyncio.sleep(2)
    assert node.guest.thawed == [begun + 60]
    assert planned(node) == []


async def test_the_rest_of_the_time_counts_after_a_restart(node: Node) -> None:
    before, begun = node.handler(), now()
    before.plan("u", 60)
    await asyncio.sleep(20)
    await before.close()
    await asyncio.sleep(20)
    node.handler()
    await asyncio.sleep(60)
    assert node.guest.thawed == [begun + 60]
    assert planned(node) == []


@pytest.mark.parametrize("content", ["", "soon", None])
async def test_an_overdue_or_unreadable_end_is_now(node: Node, content: str | None) -> None:
    before = node.handler()
    before.plan("u", 60)
    await before.close()
    await asyncio.sleep(3600)
    if content is not None:
        (node.folder / "u").write_text(content)
    node.handler()
    restarted = now()
    await asyncio.sleep(0.1)
    assert node.guest.thawed == [restarted]


async def test_a_guest_that_is_found_late_is_unfrozen_then(node: Node) -> None:
    before = node.handler()
    before.plan("u", 1)
    await before.close()
    del node.machines["u"]
    node.handler()
    await asyncio.sleep(30)
    node.guest.hypervisor = None
    node.machines["u"] = node.guest
    await asyncio.sleep(30)
    assert planned(node) == ["u"]
    node.guest.hypervisor = node.guest
    await asyncio.sleep(2)
    assert len(node.guest.thawed) == 1
    assert planned(node) == []


async def test_a_thaw_that_fails_is_tried_until_it_succeeds_and_told_once(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.guest.failures = 3
    node.handler().plan("u", 1)
    await asyncio.sleep(60)
    assert len(node.guest.thawed) == 4
    assert len(caplog.records) == 1


async def test_a_guest_that_has_ended_is_forgotten(node: Node) -> None:
    thaws = node.handler()
    thaws.plan("u", 10)
    thaws.plan("gone", 10)
    node.guest.failures = 1000
    await asyncio.sleep(20)
    assert planned(node) == ["u"]
    node.ended = True
    await asyncio.sleep(20)
    assert planned(node) == []


async def test_only_the_last_plan_counts_until_it_is_forgotten(node: Node) -> None:
    thaws, begun = node.handler(), now()
    thaws.plan("u", 10)
    thaws.plan("u", 100)
    await asyncio.sleep(200)
    assert node.guest.thawed == [begun + 100]
    thaws.plan("u", 10)
    thaws.forget("u")
    await asyncio.sleep(20)
    assert (len(node.guest.thawed), planned(node)) == (1, [])
    node.handler()
    await asyncio.sleep(20)
    assert len(node.guest.thawed) == 1
