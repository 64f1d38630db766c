"""The node's controller of instances starts guests; starts that fail or hang."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.unit.virtplane.compute.handler.instance_controller.conftest import (
    NODE,
    POD,
    RUNNING,
    Machine,
    Node,
)

from kubecore.resources import EVENTS
from virtplane.compute.handler.launchers.control import LauncherBroken
from virtplane.compute.handler.libvirtd.calls import HypervisorError
from virtplane.compute.handler.network.setup import NetworkSetupError
from virtplane.compute.handler.storage.volumes import VolumeBlocked, VolumeNotReady

pytestmark = pytest.mark.looptime


async def test_scheduled_instance_is_started_in_the_pod_of_its_status(node: Node) -> None:
    node.put()
    async with node.working() as machine:
        assert machine.pod_uid == POD
        assert machine.asked[0] == "start"
        assert node.status["phase"] == "Running"


async def test_pod_uid_that_is_a_path_is_not_followed(node: Node) -> None:
    node.put(activePods={"../../../etc": NODE})
    async with node.working() as machine:
        assert machine.pod_uid == ""
        assert "start" not in machine.asked


@pytest.mark.parametrize(
    ("failure", "phase", "reason"),
    [
        (VolumeNotReady("root", "not yet"), "Scheduled", "VolumeNotReady"),
        (HypervisorError("start", "no"), "Scheduled", "Synchronizing with the Domain failed."),
        (NetworkSetupError("no interface"), "Failed", "Synchronizing with the Domain failed."),
    ],
)
async def test_failed_start_is_reported_with_its_reason(
    node: Node, failure: Exception, phase: str, reason: str
) -> None:
    node.put()
    node.prepared.failure = failure
    async with node.working() as machine:
        found = node.condition("Synchronized")
        assert found is not None and found["reason"] == reason
        assert node.status["phase"] == phase
        if phase == "Scheduled":
            machine.failure = None
            await asyncio.sleep(2)
            assert node.status["phase"] == "Running"


async def test_words_of_others_do_not_cost_the_report(node: Node) -> None:
    """Such as the name of a file in an image, or what a launcher says."""
    node.put()
    node.prepared.failure = LauncherBroken("\udcff\x1b[2J" + "x" * (4 << 20))
    async with node.working():
        found = node.condition("Synchronized")
        assert found is not None and found["message"].startswith("\ufffd\ufffd[2Jxxx")
        assert len(found["message"]) == 1024
        assert found["message"] in [event["message"] for event in node.api.list(EVENTS)]


async def test_guests_whose_start_hangs_hold_up_no_other(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the pods of a large node, each with a launcher, libvirt or storage that does not answer."""

    async def hang(_machine: Machine, _vmi: object, **_options: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Machine, "start", hang)
    for number in range(500):
        node.put(f"hangs-{number}")
    async with node.working():
        node.prepared.see(domain=RUNNING)
        node.put(phase="Scheduled")
        await asyncio.sleep(1)
        assert node.status["phase"] == "Running"


async def test_hanging_storage_is_a_condition_and_one_event_until_it_answers(node: Node) -> None:
    node.put()
    node.prepared.failure = VolumeBlocked("data")
    async with node.working() as machine:
        await asyncio.sleep(60)
        text = "volume data: its storage does not answer; the guest starts when it does"
        found = node.condition("Synchronized")
        assert found is not None and (found["reason"], found["message"]) == ("VolumeNotReady", text)
        assert node.status["phase"] == "Scheduled"
        assert machine.asked.count("start") > 10
        assert [event["count"] for event in node.api.list(EVENTS) if event["message"] == text] == [1]
        machine.failure = None
        await asyncio.sleep(2)
        assert node.condition("Synchronized") is None
        assert node.status["phase"] == "Running"


async def test_a_start_that_fails_again_and_again_is_logged_once(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.put()
    node.prepared.failure = HypervisorError("start", "no such machine type")
    async with node.working() as machine:
        await asyncio.sleep(60)
        assert machine.asked.count("start") > 10
    told = [record.__dict__ for record in caplog.records if record.levelno >= logging.WARNING]
    assert [(each["vmi"], each["err"]) for each in told] == [("ns/vm", "start failed: no such machine type")]
