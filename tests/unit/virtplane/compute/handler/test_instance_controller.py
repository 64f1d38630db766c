"""The node's controller of instances, with an API in memory and machines of this test, in virtual time."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubecore.client import ConnectionFailed
from kubecore.errors import StatusError
from kubecore.resources import EVENTS
from kubecore.runtime import EventRecorder, Informer, Manager
from kubecore.testing import MemoryApi
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES
from virtplane.compute.handler import controller as module
from virtplane.compute.handler.controller import InstanceController
from virtplane.compute.handler.decisions import Observation
from virtplane.compute.handler.libvirtcalls import DomainState, HypervisorError
from virtplane.compute.handler.network.setup import NetworkSetupError
from virtplane.compute.handler.settings import HandlerSettings
from virtplane.compute.handler.status import GuestFacts
from virtplane.compute.handler.storage.volumes import VolumeBlocked, VolumeNotReady

pytestmark = pytest.mark.looptime

NODE, POD = "node01", "0a1b2c3d-0000-1111-2222-333344445555"
RUNNING = DomainState("Running", "Unknown")


class Lines:
    gone = False
    lasting_trouble = ""


class Machine:
    """Plays one machine; what is asked of it is noted in `asked`."""

    def __init__(self, pod_uid: str) -> None:
        self.name = "ns_vm"
        self.pod_uid = pod_uid
        self.lines = Lines()
        self.remarks: list[str] = []
        self.seen = Observation(launcher_ready=True, launcher_gone=False, domain=None)
        self.asked: list[str] = []
        self.failure: Exception | None = None
        self.changed: Callable[[], None] = lambda: None
        # What the report is made of.
        self.facts, self.fatal, self.machine_type = GuestFacts(), "", "q35"
        self.macs: dict[str, str] = {}
        self.pod_addresses: tuple[str, ...] = ()
        self.shutdown_started = None
        self.credentials = type("Keeper", (), {"outcome": None})()
        self.hypervisor = object()
        self.disk_troubles: list[str] = []

    @property
    def domain(self) -> DomainState | None:
        return self.seen.domain

    async def observe(self) -> Observation:
        return self.seen

    async def start(self, _vmi: object, **_options: object) -> None:
        self.asked.append("start")
        if self.failure is not None:
            raise self.failure
        self.see(domain=RUNNING)

    async def press_power_button(self) -> None:
        self.asked.append("press")

    async def cut_power(self) -> None:
        self.asked.append("cut")
        self.see(domain=DomainState("Shutoff", "Destroyed"))

    async def release(self, code: int) -> None:
        self.asked.append(f"release {code}")

    async def recall(self, _vmi: object) -> None:
        self.asked.append("recall")

    def refresh_facts(self, _vmi: object) -> None:
        """There is no agent."""

    async def grow_disks(self, _vmi: object, _settings: object) -> None:
        """There are no claims."""

    @property
    def io_errors(self) -> Machine:
        return self

    async def follow(self, _vmi: object, _state: object, _hypervisor: object) -> list[str]:
        """The part of IoErrors."""
        return self.disk_troubles

    async def unmount_images(self) -> None:
        """There are none."""

    async def close(self) -> None:
        self.asked.append("close")

    def see(self, **changes: Any) -> None:
        """What is seen from now on."""
        values = {name: getattr(self.seen, name) for name in Observation.__slots__}
        self.seen = Observation(**values | changes)


class Node:
    """The API, the controller, and the machine that it makes."""

    def __init__(self) -> None:
        self.api = MemoryApi([VIRTUAL_MACHINE_INSTANCES, EVENTS], whole=[VIRTUAL_MACHINE_INSTANCES])
        self.machines: list[Machine] = []
        self.prepared = Machine("")
        self.controller: InstanceController | None = None

    def make(self, _settings: object, vmi: Any, pod_uid: str, on_change: Any) -> Machine:
        made = copy.copy(self.prepared)
        made.name = f"ns_{vmi.metadata.name}"
        made.pod_uid, made.changed, made.asked = pod_uid, on_change, []
        self.machines.append(made)
        return made

    def put(self, name: str = "vm", hostname: object = None, **status: Any) -> None:
        vmi = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": "u" if name == "vm" else name,
                "labels": {"kubevirt.io/nodeName": NODE},
            },
            "spec": {"domain": {"devices": {}}, "hostname": hostname},
            "status": {"phase": "Scheduled", "nodeName": NODE, "activePods": {POD: NODE}, **status},
        }
        self.api.put(VIRTUAL_MACHINE_INSTANCES, vmi)

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = (self.api.get(VIRTUAL_MACHINE_INSTANCES, "vm", "ns") or {})["status"]
        return found

    def condition(self, kind: str) -> dict[str, Any] | None:
        return next((item for item in self.status.get("conditions", ()) if item["type"] == kind), None)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Machine]:
        client = self.api.client()
        manager = Manager(client)
        informer = manager.informer(
            VIRTUAL_MACHINE_INSTANCES,
            label_selector=f"kubevirt.io/nodeName={NODE}",
            struct=VirtualMachineInstance,
        )
        async with EventRecorder(client, "virt-handler") as recorder:
            settings = HandlerSettings(NODE, pods_directory=Path("/nowhere"))
            made = InstanceController(client, informer, recorder, settings, ClusterConfig, emulation=True)
            self.controller = made
            manager.add(made.controller)
            task = asyncio.create_task(manager.run())
            await manager.wait_started()
            await asyncio.sleep(0.5)
            try:
                yield self.machines[-1]
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await made.close()
        await client.close()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node()
    monkeypatch.setattr(module, "Machine", made.make)
    return made


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


async def test_end_of_the_launcher_fails_the_instance(node: Node) -> None:
    node.put(phase="Running")
    node.prepared.see(domain=RUNNING)
    async with node.working() as machine:
        machine.lines.gone = True
        machine.see(launcher_ready=False, launcher_gone=True)
        machine.changed()
        await asyncio.sleep(1)
        assert node.status["phase"] == "Failed"


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
        node.controller._last_written["u"] = (10**15, asyncio.get_running_loop().time())
        machine.see(domain=DomainState("Paused", "Paused"))
        machine.changed()
        await asyncio.sleep(10)
        assert node.condition("Paused") is None
        await asyncio.sleep(30)
        assert node.condition("Paused") is not None


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
