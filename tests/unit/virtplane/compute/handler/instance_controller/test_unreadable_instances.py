"""Guests of instances that the node's controller cannot read."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.unit.virtplane.compute.handler.instance_controller.conftest import RUNNING, Node

from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES
from virtplane.compute.handler.libvirtd.calls import DomainState

pytestmark = pytest.mark.looptime


UNFIT = 7
"""A host name that no instance can have: as long as it is there the instance cannot be read."""


async def test_a_guest_whose_instance_cannot_be_read_goes_on_until_it_is_corrected(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.put(phase="Running")
    node.prepared.see(domain=RUNNING)
    async with node.working() as machine:
        machine.asked.clear()
        node.put(phase="Running", hostname=UNFIT)
        await asyncio.sleep(60)
        machine.see(domain=DomainState("Paused", "Paused"))
        machine.changed()
        await asyncio.sleep(60)
        assert (machine.asked, node.condition("Paused")) == ([], None)
        assert node.controller is not None
        assert not node.controller.has_ended("u"), "who cannot be read may still run"
        node.put(phase="Running")
        await asyncio.sleep(1)
        assert node.condition("Paused") is not None
    (told,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "ns/vm" in told
    assert "spec.hostname" in told


async def test_an_unreadable_instances_pod_ends_as_others_do(node: Node) -> None:
    node.put(phase="Running")
    node.prepared.see(domain=RUNNING)
    async with node.working() as machine:
        machine.asked.clear()
        node.put(phase="Running", hostname=UNFIT)
        machine.see(terminating=True)
        machine.changed()
        await asyncio.sleep(1)
        assert machine.asked == ["press"]
        machine.see(launcher_ready=False, launcher_gone=True)
        machine.changed()
        await asyncio.sleep(1)
        assert machine.asked[-1] == "close", "its images are unmounted, so that the pod can be removed"


async def test_an_unreadable_instance_that_is_deleted_is_forgotten(node: Node) -> None:
    node.put(phase="Running")
    node.prepared.see(domain=RUNNING)
    async with node.working() as machine:
        node.put(phase="Running", hostname=UNFIT)
        await asyncio.sleep(1)
        node.api.remove(VIRTUAL_MACHINE_INSTANCES, "vm", "ns")
        await asyncio.sleep(60)
        assert machine.asked[-1] == "close"
        assert node.controller is not None
        assert not node.controller.machines
