"""The node's controller of instances reports what it sees, once the API lets it."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.virtplane.compute.handler.instance_controller.conftest import NODE, RUNNING, Node

from kubecore.client import ConnectionFailed
from kubecore.errors import StatusError
from kubecore.resources import EVENTS
from kubecore.runtime import EventRecorder, Informer
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES
from virtplane.compute.handler.controller import InstanceController
from virtplane.compute.handler.libvirtd.calls import DomainState
from virtplane.compute.handler.network.cards import Card
from virtplane.compute.handler.settings import HandlerSettings

pytestmark = pytest.mark.looptime


async def test_guest_that_cannot_be_asked_keeps_its_report(node: Node) -> None:
    conditions = [{"type": "AgentConnected", "status": "True"}, {"type": "Paused", "status": "True"}]
    node.put(phase="Running", conditions=conditions)
    node.prepared.see(domain_known=False)
    async with node.working() as machine:
        await asyncio.sleep(60)
        assert machine.asked == []
        assert (node.status["phase"], node.status["conditions"]) == ("Running", conditions)
        machine.lines.lasting_trouble = "libvirt's daemon did not answer"
        await asyncio.sleep(2)
        found = node.condition("Synchronized")
        assert found is not None and found["message"] == "libvirt's daemon did not answer"
        assert node.status["phase"] == "Running"
        machine.lines.lasting_trouble = ""
        machine.see(domain=RUNNING, domain_known=True)
        await asyncio.sleep(2)
        assert node.condition("Synchronized") is None
        assert node.condition("Paused") is None


async def test_guest_that_cannot_be_asked_is_not_released_while_it_is_deleted(node: Node) -> None:
    node.put(phase="Running")
    node.prepared.see(domain_known=False, terminating=True)
    async with node.working() as machine:
        await asyncio.sleep(10)
        assert machine.asked == []
        machine.see(domain_known=True, domain=RUNNING)
        await asyncio.sleep(2)
        assert set(machine.asked) == {"press"}


async def test_a_guest_whose_state_flickers_does_not_use_up_the_requests_of_all(node: Node) -> None:
    """A hostile libvirt can say another state with every event, as often as events are taken."""
    node.put(phase="Running")
    node.prepared.see(domain=RUNNING)
    async with node.working() as machine:
        before = len(node.api.requests)
        for number in range(3000):
            machine.see(domain=DomainState("Paused", "Paused") if number % 2 else RUNNING)
            machine.changed()
            await asyncio.sleep(0.01)
        writes = [each for each in node.api.requests[before:] if each.method == "PATCH"]
        assert len(writes) <= 90
        machine.see(domain=DomainState("Shutoff", "Crashed"))
        machine.changed()
        await asyncio.sleep(0.5)
        assert node.status["phase"] == "Failed"


async def test_end_of_the_launcher_fails_the_instance(node: Node) -> None:
    node.put(phase="Running")
    node.prepared.see(domain=RUNNING)
    async with node.working() as machine:
        machine.lines.gone = True
        machine.see(launcher_ready=False, launcher_gone=True)
        machine.changed()
        await asyncio.sleep(1)
        assert node.status["phase"] == "Failed"


@pytest.mark.parametrize("kind", ["conflict", "broken", "unreachable"])
async def test_report_is_written_once_the_api_lets_it(
    node: Node, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    failures = {
        "conflict": StatusError(409, "Conflict", "changed"),
        "broken": StatusError(503, "ServiceUnavailable", "busy"),
        "unreachable": ConnectionFailed("gone"),
    }
    left = 3

    def react(request: Any) -> None:
        nonlocal left
        if request.method == "PATCH" and left:
            left -= 1
            raise failures[kind]

    node.put()
    node.api.reactions.append(react)
    with caplog.at_level(logging.WARNING):
        async with node.working() as machine:
            await asyncio.sleep(30)
            assert node.status["phase"] == "Running"
            assert machine.asked.count("start") == 1
    assert any("ns/vm" in record.getMessage() for record in caplog.records) == (kind != "conflict")


async def test_broken_watch_and_forgotten_history_lose_nothing(node: Node) -> None:
    node.put()
    async with node.working() as machine:
        node.api.break_watches()
        node.api.expire_history()
        await asyncio.sleep(30)
        node.put(phase="Running", conditions=[])
        machine.see(domain=DomainState("Paused", "Paused"))
        await asyncio.sleep(30)
        assert node.condition("Paused") is not None


async def test_storage_that_was_put_back_to_an_earlier_time_is_followed(node: Node) -> None:
    node.put()
    async with node.working() as machine:
        assert node.controller is not None
        node.controller.writes._last["u"] = (10**15, asyncio.get_running_loop().time())
        machine.see(domain=DomainState("Paused", "Paused"))
        machine.changed()
        await asyncio.sleep(10)
        assert node.condition("Paused") is None
        await asyncio.sleep(30)
        assert node.condition("Paused") is not None


async def test_an_instance_has_ended_once_the_api_says_so(node: Node) -> None:
    node.put(phase="Running")
    node.prepared.see(domain=RUNNING)
    async with node.working():
        assert node.controller is not None
        assert not node.controller.has_ended("u")
        assert node.controller.has_ended("another")
        node.put(phase="Succeeded")
        await asyncio.sleep(1)
        assert node.controller.has_ended("u")


async def test_no_instance_has_ended_before_the_cache_is_complete(node: Node) -> None:
    client = node.api.client()
    informer = Informer(client, VIRTUAL_MACHINE_INSTANCES, struct=VirtualMachineInstance)
    recorder = EventRecorder(client, "virt-handler")
    settings = HandlerSettings(NODE, pods_directory=Path("/nowhere"))
    made = InstanceController(client, informer, recorder, settings, ClusterConfig, emulation=True)
    assert not made.has_ended("u")


async def test_the_owner_of_a_paused_guest_is_told_of_its_disks(node: Node) -> None:
    node.put(phase="Running")
    async with node.working() as machine:
        machine.disk_troubles = ["VM Paused due to not enough space on volume: data"]
        machine.see(domain=DomainState("Paused", "IOError"))
        await asyncio.sleep(15)
        found = node.condition("Paused") or {}
        assert found["reason"] == "PausedIOError"
        assert found["message"] == "VMI was paused, low-level IO error detected"
        events = node.api.list(EVENTS, "ns")
        assert ("IOerror", machine.disk_troubles[0]) in {(e["reason"], e["message"]) for e in events}


async def test_the_owner_is_told_once_that_the_guest_has_panicked(node: Node) -> None:
    node.put(phase="Running")
    async with node.working() as machine:
        machine.hypervisor.has_panicked = True
        machine.see(domain=DomainState("Shutoff", "Crashed"))
        machine.changed()
        await asyncio.sleep(15)
        machine.changed()
        await asyncio.sleep(15)
        told = [event for event in node.api.list(EVENTS, "ns") if event["reason"] == "GuestPanicked"]
        assert [(event["type"], event.get("count", 1)) for event in told] == [("Warning", 1)]
        assert node.status["phase"] == "Failed"
        assert node.controller is not None
        [counted] = node.controller.events.panics.collect()
        unknown = {"type": "unknown", "bugcheck_code": "unknown"}
        labels = {"namespace": "ns", "name": "vm", **unknown}
        assert [(sample.name, sample.labels, sample.value) for sample in counted.samples] == [
            ("kubevirt_vmi_guest_os_panic_total", labels, 1)
        ]


async def test_writes_of_an_instance_are_counted_until_it_is_gone(node: Node) -> None:
    def counted() -> list[tuple[dict[str, str], float]]:
        assert node.controller is not None
        [metric] = node.controller.writes.counts.collect()
        return [(sample.labels, sample.value) for sample in metric.samples]

    node.put(phase="Scheduled")
    node.prepared.see(domain=RUNNING)
    async with node.working():
        await asyncio.sleep(5)
        [(labels, count)] = counted()
        assert labels == {"namespace": "ns", "name": "vm"}
        written = [request for request in node.api.requests if request.method == "PATCH"]
        assert 1 <= count == len(written)
        node.api.remove(VIRTUAL_MACHINE_INSTANCES, "vm", "ns")
        await asyncio.sleep(5)
        assert counted() == []


async def test_the_owner_is_told_of_a_failed_ping(node: Node) -> None:
    node.put(phase="Running")
    node.prepared.see(domain=RUNNING)
    async with node.working() as machine:
        machine.lines.ping_failed = True
        machine.changed()
        await asyncio.sleep(15)
        events = node.api.list(EVENTS, "ns")
        told = [event["message"] for event in events if event["reason"] == "GuestAgentPingFailed"]
        assert told == ["GuestAgentPing probe failed for VMI vm"]
        assert not machine.lines.ping_failed


@pytest.mark.parametrize("phase", ["Scheduled", "Running"])
async def test_a_guest_whose_libvirt_answers_late_is_reported_with_its_addresses(
    node: Node, phase: str
) -> None:
    """As after a restart of virt-handler: the connection opens while the first step is being taken."""
    shown = [{"name": "default", "ipAddress": "10.1.0.5"}]
    node.put(phase=phase, interfaces=shown if phase == "Running" else [])
    machine = node.prepared
    machine.networks.is_recalled = False
    machine.networks.prepared = {"default": Card("02:00:00:00:00:01", "eth0", addresses=("10.1.0.5",))}
    machine.see(domain=None, domain_known=False)
    machine.soon = replace(machine.seen, domain=RUNNING, domain_known=True)
    async with node.working():
        await asyncio.sleep(1)
    written = [json.loads(each.body or b"") for each in node.api.requests if each.method == "PATCH"]
    changes = [change for each in written for change in each if change["path"].startswith("/status/interf")]
    assert {change["op"] for change in changes} == {"add"}
    if phase == "Scheduled":
        assert "10.1.0.5" in json.dumps(written[0])
    assert (node.status["phase"], node.status["interfaces"][0]["ipAddress"]) == ("Running", "10.1.0.5")
