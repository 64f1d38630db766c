"""Guests that an I/O error paused: what is told of them, and when they are resumed."""

from __future__ import annotations

import asyncio
from typing import cast

import libvirt
import pytest

from kubecore.objects.structs import decode
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.handler.libvirtd.calls import DomainState, HypervisorError
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor
from virtplane.compute.handler.libvirtd.ioerrors import PAUSED, Attempts, IoErrors

VMI = decode(
    VirtualMachineInstance,
    {
        "metadata": {"name": "vm", "namespace": "ns", "uid": "u"},
        "status": {"volumeStatus": [{"name": "root", "target": "vda"}, {"name": "data", "target": "vdb"}]},
    },
)


class Guest:
    """A guest with disks that fail, and the moments at which it was resumed."""

    def __init__(self, **errors: bool) -> None:
        self.errors = errors
        self.resumed: list[float] = []

    async def disk_errors(self, _name: str) -> dict[str, bool]:
        return self.errors

    async def resume(self, _name: str) -> None:
        self.resumed.append(asyncio.get_running_loop().time())

    async def follow(self, found: IoErrors, state: DomainState) -> list[str]:
        return await found.follow(VMI, state, cast(Hypervisor, self))


@pytest.mark.looptime
async def test_a_guest_is_resumed_at_once_and_then_less_and_less_often() -> None:
    guest, found = Guest(vdb=True), IoErrors("ns_vm", "ns/vm")
    begun = asyncio.get_running_loop().time()
    for _ in range(1000):
        await guest.follow(found, PAUSED)
        await asyncio.sleep(1)
    waits = [round(moment - begun) for moment in guest.resumed]
    assert waits == [0, 10, 30, 70, 150, 310, 490, 670, 850]


@pytest.mark.looptime
async def test_a_guest_that_has_recovered_is_resumed_at_once_the_next_time() -> None:
    guest, found = Guest(), IoErrors("ns_vm", "ns/vm")
    await guest.follow(found, PAUSED)
    await asyncio.sleep(31)
    await guest.follow(found, DomainState("Running"))
    await guest.follow(found, PAUSED)
    assert len(guest.resumed) == 2


def test_a_guest_that_runs_for_a_moment_has_not_recovered() -> None:
    attempts = Attempts()
    assert attempts.is_due(0)
    attempts.see_running(1)
    assert not attempts.is_due(2)


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ({"vdb": True}, ["VM Paused due to not enough space on volume: data"]),
        ({"vda": False}, ["VM Paused due to IO error at the volume: root"]),
        ({"vdz": True}, []),
    ],
)
async def test_the_owner_is_told_of_the_volume(errors: dict[str, bool], told: list[str]) -> None:
    assert await Guest(**errors).follow(IoErrors("ns_vm", "ns/vm"), PAUSED) == told


async def test_a_guest_that_somebody_paused_stays_so() -> None:
    guest = Guest()
    assert await guest.follow(IoErrors("ns_vm", "ns/vm"), DomainState("Paused", "Paused")) == []
    assert guest.resumed == []


def test_long_words_of_qemu_keep_their_end() -> None:
    error = HypervisorError(
        "start", "internal error: " + "x" * 1000 + " is locked", libvirt.VIR_ERR_INTERNAL_ERROR
    )
    assert str(error).startswith("start failed: internal error: xxx")
    assert str(error).endswith("xxx is locked")
    assert len(str(error)) < 330
