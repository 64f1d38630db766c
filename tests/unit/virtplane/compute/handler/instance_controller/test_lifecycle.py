"""Plugins hear of the life of guests, and may hold it up."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.virtplane.compute.handler.instance_controller.conftest import RUNNING, Node

from kubecore.resources import EVENTS
from virtplane.compute.handler.libvirtd.calls import DomainState

pytestmark = pytest.mark.looptime

ENDED = DomainState("Shutoff", "Shutdown")


def events(node: Node) -> set[tuple[str, str]]:
    return {(event["reason"], event["message"]) for event in node.api.list(EVENTS, "ns")}


async def test_plugins_hear_once_that_a_guest_runs(node: Node) -> None:
    node.put()
    async with node.working() as machine:
        await asyncio.sleep(30)
        assert machine.heard == [("PostVMStart", "Running")]
        assert node.status["phase"] == "Running"


async def test_a_plugin_that_did_not_hear_of_the_start_is_an_event(node: Node) -> None:
    node.put()
    node.prepared.refusing = "PostVMStart"
    async with node.working() as machine:
        await asyncio.sleep(30)
        assert machine.heard == [("PostVMStart", "Running")]
        assert node.status["phase"] == "Running" and node.condition("Synchronized") is None
        assert ("SyncFailed", "PostVMStart: no") in events(node)


async def test_a_guest_that_ran_before_virt_handler_started_is_no_news(node: Node) -> None:
    node.put(phase="Running")
    node.prepared.see(domain=RUNNING)
    async with node.working() as machine:
        await asyncio.sleep(30)
        assert machine.heard == []


async def test_plugins_hear_once_before_a_guest_is_stopped(node: Node) -> None:
    node.put(phase="Running")
    node.prepared.see(domain=RUNNING, terminating=True)
    async with node.working() as machine:
        await asyncio.sleep(20)
        assert machine.heard == [("PreVMStop", "Running")]
        assert machine.asked.count("press") > 1


async def test_a_plugin_may_hold_a_stop_up(node: Node) -> None:
    node.put(phase="Running")
    node.prepared.refusing = "PreVMStop"
    node.prepared.see(domain=RUNNING, terminating=True)
    async with node.working() as machine:
        await asyncio.sleep(5)
        assert "press" not in machine.asked and "cut" not in machine.asked
        found = node.condition("Synchronized")
        assert found is not None and found["message"] == "PreVMStop: no"
        machine.refusing = ""
        await asyncio.sleep(5)
        assert "press" in machine.asked


async def test_plugins_hear_of_the_end_before_the_launcher_may_end(node: Node) -> None:
    node.put(phase="Running")
    node.prepared.refusing = "PostVMStop"
    node.prepared.see(domain=ENDED)
    async with node.working() as machine:
        await asyncio.sleep(5)
        assert node.status["phase"] == "Succeeded"
        assert set(machine.heard) == {("PostVMStop", "Succeeded")} and len(machine.heard) > 1
        assert not any(each.startswith("release") for each in machine.asked)
        machine.refusing = ""
        machine.heard.clear()
        await asyncio.sleep(5)
        assert "release 0" in machine.asked
        assert machine.heard == [("PostVMStop", "Succeeded")]


async def test_the_end_is_told_once_although_the_pod_outlives_its_launcher(node: Node) -> None:
    """Every look at the instance makes another machine then, which ends with its launcher."""
    node.put(phase="Running")
    node.prepared.see(domain=ENDED)
    async with node.working() as machine:
        await asyncio.sleep(5)
        machine.see(launcher_gone=True, launcher_ready=False)
        node.prepared.seen = machine.seen
        machine.lines.gone = True
        for _ in range(3):
            machine.changed()
            await asyncio.sleep(5)
        assert len(node.machines) > 1
        heard = [each for made in node.machines for each in made.heard]
        assert heard == [("PostVMStop", "Succeeded")]


async def test_the_end_of_a_launcher_waits_for_no_plugin(node: Node) -> None:
    """The pod has ended with its guest; whoever did not hear of it can only be told in an event."""
    node.put(phase="Running")
    node.prepared.refusing = "PostVMStop"
    node.prepared.see(launcher_gone=True, launcher_ready=False)
    node.prepared.lines.gone = True
    async with node.working():
        await asyncio.sleep(5)
        assert node.status["phase"] == "Failed"
        assert node.machines[0].heard[0] == ("PostVMStop", "Failed")
        assert "close" in node.machines[0].asked
        assert ("SyncFailed", "PostVMStop: no") in events(node)


async def test_plugins_hear_of_guests_that_ended_while_nobody_looked(node: Node) -> None:
    node.put(phase="Running", activePods={})
    async with node.working() as machine:
        await asyncio.sleep(5)
        assert machine.heard == [("PostVMStop", "Running")]
        assert node.status["phase"] == "Failed"
