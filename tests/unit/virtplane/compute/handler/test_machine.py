"""What virt-handler does for one guest on its node, apart from libvirt."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.support.launchers import pod_paths

from virtplane.api.kubevirt_v1.devices import Devices
from virtplane.api.kubevirt_v1.disks import Filesystem, FilesystemVirtiofs
from virtplane.api.kubevirt_v1.domain import DomainSpec
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.compute.domain.context import DiskSource
from virtplane.compute.handler import machine as module
from virtplane.compute.handler import threads
from virtplane.compute.handler.launchers.control import LauncherLink
from virtplane.compute.handler.libvirtd.calls import DaemonSilent, DomainState, HypervisorError
from virtplane.compute.handler.libvirtd.hypervisor import Defined, Hypervisor
from virtplane.compute.handler.machine import Machine, ServersSpent, both
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import HandlerSettings
from virtplane.compute.handler.storage.claims import ClaimSettings
from virtplane.compute.handler.storage.volumes import VolumeBlocked

VMI = VirtualMachineInstance(metadata=ObjectMeta(name="vm", namespace="ns", uid="u"))


@pytest.mark.looptime
async def test_a_failed_step_is_reported_only_once_the_other_has_ended() -> None:
    ended = []

    async def fails() -> str:
        raise OSError("no network")

    async def works() -> int:
        await asyncio.sleep(60)
        ended.append("volumes")
        return 1

    with pytest.raises(OSError, match="no network"):
        await both(fails(), works())
    assert ended == ["volumes"]


async def test_two_steps_give_both_results() -> None:
    assert await both(asyncio.sleep(0, "links"), asyncio.sleep(0, 2)) == ("links", 2)


class Libvirt:
    """A connection whose daemon fails in one way."""

    is_open = True

    def __init__(self, failure: HypervisorError) -> None:
        self.failure = failure

    async def state(self, _name: str) -> None:
        raise self.failure

    def give_up(self) -> None:
        self.is_open = False

    async def close(self) -> None:
        """There is nothing to hang up."""


@pytest.mark.parametrize(
    ("failure", "told"),
    [(HypervisorError("lookup", "End of file"), 0), (DaemonSilent("lookup", "silent"), 1)],
)
async def test_only_a_silent_daemon_is_told_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failure: HypervisorError, told: int
) -> None:
    machine = Machine(HandlerSettings("n", pods_directory=tmp_path), VMI, "pod", lambda: None)
    machine.lines.hypervisor = cast(Hypervisor, Libvirt(failure))
    seen = await machine.observe()
    assert (seen.domain_known, machine.lines.hypervisor.is_open) == (False, False)
    assert len(caplog.records) == told
    await machine.close()


class Link:
    """The line to a launcher that does what it is told; its file system is the folder `root`."""

    def __init__(self, root: Path) -> None:
        self.process = self
        self.requests: list[str] = []
        self._root = root

    def root(self) -> Root:
        return Root(self._root)

    async def request(self, command: str, **_arguments: object) -> dict[str, object]:
        self.requests.append(command)
        return {}

    async def close(self) -> None:
        """There is nothing to hang up."""


START: Any = {"emulation": True, "options": {}, "claim_settings": ClaimSettings(), "ovmf_folder": "/ovmf"}


async def test_a_guest_on_hanging_storage_is_tried_again_when_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trying again meanwhile takes no other thread, and asks nothing of anybody."""
    answers = threading.Event()
    asked: list[str] = []

    class Preparer:
        def __init__(self, *_: object) -> None:
            self._on_volume: Any = _[4]

        def prepare(self) -> dict[str, DiskSource]:
            self._on_volume("data")
            asked.append("data")
            answers.wait()
            raise HypervisorError("test", "the storage has answered")

    monkeypatch.setattr(module, "VolumePreparer", Preparer)
    monkeypatch.setattr(threads, "STEP_SECONDS", 0.5)  # the steps before it need some of it
    changed = asyncio.Event()
    machine = Machine(HandlerSettings("n", pods_directory=tmp_path), VMI, "pod", changed.set)
    pod_paths(tmp_path)
    link = Link(tmp_path)
    machine.lines.link = cast(LauncherLink, link)
    try:
        for _ in range(3):
            with pytest.raises(VolumeBlocked, match="volume data: its storage does not answer"):
                await machine.start(VMI, **START)
        assert (asked, link.requests) == (["data"], ["start"])
        answers.set()
        await changed.wait()
        monkeypatch.setattr(threads, "STEP_SECONDS", 60.0)
        with pytest.raises(HypervisorError, match="has answered"):
            await machine.start(VMI, **START)
    finally:
        answers.set()
        await machine.close()


class Refusing(Libvirt):
    """Starts no guest; `state_is` is the domain's afterwards."""

    def __init__(self, state_is: DomainState | None, *, is_open: bool = True) -> None:
        super().__init__(HypervisorError("start", "disk vdc is locked"))
        self.state_is, self.is_open = state_is, is_open

    async def start(self, _xml: str, *, paused: bool, defined: Defined | None = None) -> None:
        raise self.failure

    async def state(self, _name: str) -> DomainState | None:  # type: ignore[override]
        return self.state_is


@pytest.mark.parametrize(
    ("shares", "libvirt", "wanted"),
    [
        (True, Refusing(DomainState("Shutoff")), ServersSpent),
        (True, Refusing(None), ServersSpent),
        (True, Refusing(DomainState("Running")), HypervisorError),
        (True, Refusing(None, is_open=False), HypervisorError),
        (False, Refusing(None), HypervisorError),
    ],
)
async def test_a_guest_whose_file_servers_are_spent_is_not_started_again_in_its_pod(
    tmp_path: Path, shares: bool, libvirt: Refusing, wanted: type[Exception]
) -> None:
    filesystems = (Filesystem(name="files", virtiofs=FilesystemVirtiofs()),) if shares else ()
    domain = DomainSpec(devices=Devices(filesystems=filesystems))
    vmi = replace(VMI, spec=VirtualMachineInstanceSpec(domain=domain))
    machine = Machine(HandlerSettings("n", pods_directory=tmp_path), vmi, "pod", lambda: None)
    with pytest.raises(wanted, match="disk vdc is locked"):
        await machine._boot(vmi, cast(Hypervisor, libvirt), "<domain/>")
    await machine.close()


class Agent(Libvirt):
    """A connection to a guest whose agent answers; it refuses all but its freeze's state while frozen."""

    agent_connected = True

    def __init__(self, state: str) -> None:
        super().__init__(HypervisorError("none", "none"))
        self.freeze_is = state
        self.asked: list[str] = []

    async def freeze_state(self, _name: str) -> str:
        if self.freeze_is == "silent":
            raise HypervisorError("agent", "it does not answer")
        return self.freeze_is

    async def freeze(self, _name: str) -> None:
        self.asked.append("freeze")
        self.freeze_is = "frozen"

    async def thaw(self, _name: str) -> None:
        self.asked.append("thaw")
        self.freeze_is = "thawed"

    async def guest_info(self, _name: str) -> dict[str, Any]:
        assert self.freeze_is != "frozen"
        return {"os.id": "debian"}

    async def agent_about(self, _name: str) -> str:
        assert self.freeze_is != "frozen"
        commands = '[{"name": "guest-ping", "enabled": true}, {"name": "guest-exec", "enabled": false}]'
        return f'{{"return": {{"version": "7.2", "supported_commands": {commands}}}}}'

    async def guest_interfaces(self, _name: str) -> dict[str, Any]:
        assert self.freeze_is != "frozen"
        return {}


async def guest_with(agent: Agent, tmp_path: Path, changed: asyncio.Event) -> Machine:
    """A running guest of whom the agent was asked once."""
    machine = Machine(HandlerSettings("n", pods_directory=tmp_path), VMI, "pod", changed.set)
    machine.lines.hypervisor = cast(Hypervisor, agent)
    machine.domain = DomainState("Running")
    machine.agent.refresh(VMI, is_running=True)
    await changed.wait()
    return machine


async def test_the_agent_says_what_it_can_do(tmp_path: Path) -> None:
    machine = await guest_with(Agent("thawed"), tmp_path, asyncio.Event())
    assert (machine.agent.facts.agent_version, machine.agent.facts.agent_commands) == ("7.2", ("guest-ping",))
    await machine.close()


async def test_facts_of_a_frozen_guest_are_those_of_before(tmp_path: Path) -> None:
    agent, changed = Agent("thawed"), asyncio.Event()
    machine = await guest_with(agent, tmp_path, changed)
    before = machine.agent.facts
    changed.clear()
    agent.freeze_is = "frozen"
    machine.agent.refresh(VMI, is_running=True)
    await changed.wait()
    assert (machine.agent.facts.freeze_state, machine.agent.facts.os_info) == ("frozen", before.os_info)
    await machine.close()


async def test_a_freeze_and_its_end_are_told_at_once(tmp_path: Path) -> None:
    agent, changed = Agent("thawed"), asyncio.Event()
    machine = await guest_with(agent, tmp_path, changed)
    for act, state in ((machine.agent.freeze, "frozen"), (machine.agent.thaw, "thawed")):
        changed.clear()
        await act()
        assert (changed.is_set(), machine.agent.facts.freeze_state) == (True, state)
    await machine.close()


@pytest.mark.parametrize(
    ("state", "asked"), [("thawed", []), ("frozen", ["thaw"]), ("", ["thaw"]), ("silent", ["thaw"])]
)
async def test_hooks_of_a_guest_that_is_thawed_do_not_run_again(
    tmp_path: Path, state: str, asked: list[str]
) -> None:
    agent = Agent(state)
    machine = Machine(HandlerSettings("n", pods_directory=tmp_path), VMI, "pod", lambda: None)
    machine.lines.hypervisor = cast(Hypervisor, agent)
    await machine.agent.thaw()
    assert agent.asked == asked
    await machine.close()
