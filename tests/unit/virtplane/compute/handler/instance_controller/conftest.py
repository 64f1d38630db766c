"""The controller of instances with an API in memory and machines that are played, in virtual time."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.managers import working

from kubecore.resources import EVENTS
from kubecore.runtime import EventRecorder, Manager
from kubecore.testing import MemoryApi
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.plugin_v1alpha1.plugin import Plugin, PluginSpec
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES
from virtplane.compute.handler import controller as module
from virtplane.compute.handler.agent.facts import GuestFacts
from virtplane.compute.handler.controller import InstanceController
from virtplane.compute.handler.decisions import Observation
from virtplane.compute.handler.hooks.plugins import PluginError
from virtplane.compute.handler.hotplug.plugs import Plugged
from virtplane.compute.handler.libvirtd.calls import DomainState
from virtplane.compute.handler.network.cards import Card
from virtplane.compute.handler.settings import HandlerSettings

NODE, POD = "node01", "0a1b2c3d-0000-1111-2222-333344445555"
RUNNING = DomainState("Running", "Unknown")
PLUGIN = Plugin(metadata=ObjectMeta(name="known"), spec=PluginSpec())


class Lines:
    gone = False
    lasting_trouble = ""
    ping_failed = False


class Networks:
    def __init__(self) -> None:
        self.cards: dict[str, Card] = {}
        self.prepared: dict[str, Card] = {}
        self.is_recalled = True

    def recall(self) -> None:
        self.cards, self.is_recalled = self.prepared, True


class Machine:
    """Plays one machine; what is asked of it is noted in `asked`."""

    def __init__(self, pod_uid: str) -> None:
        self.name = "ns_vm"
        self.pod_uid = pod_uid
        self.lines = Lines()
        self.remarks: list[str] = []
        self.seen = Observation(launcher_ready=True, launcher_gone=False, domain=None)
        self.soon: Observation | None = None
        """What is seen from the second look on."""
        self.looks = 0
        self.asked: list[str] = []
        self.failure: Exception | None = None
        self.heard: list[tuple[str, str]] = []
        """Points of its guest's life that plugins have heard of, each with the phase at that time."""
        self.refusing = ""
        """The point at which a plugin refuses."""
        self.changed: Callable[[], None] = lambda: None
        # What the report is made of.
        self.facts, self.fatal, self.machine_type = GuestFacts(), "", "q35"
        self.networks = Networks()
        self.shutdown_started = None
        self.credentials = type("Keeper", (), {"outcome": None})()
        self.cpu_memory = type("CpuMemory", (), {"shape": None, "memory_error": ""})()
        self.hypervisor = type("Hypervisor", (), {"has_panicked": False})()
        self.disk_troubles: list[str] = []

    @property
    def domain(self) -> DomainState | None:
        return self.seen.domain

    async def observe(self) -> Observation:
        self.looks += 1
        if self.soon is not None and self.looks > 1:
            self.seen, self.soon = self.soon, None
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
        self.networks.recall()

    @property
    def agent(self) -> Machine:
        return self

    def refresh(self, _vmi: object, *, is_running: bool) -> None:
        """There is no agent."""

    async def follow_networks(self, _vmi: object, *, emulation: bool) -> None:
        """The guest has what it started with."""

    async def grow_disks(self, _vmi: object, _settings: object) -> None:
        """There are no claims."""

    async def follow_plugs(self, _vmi: object, _settings: object) -> None:
        """There are no hotplugged volumes."""

    @property
    def plugs(self) -> Machine:
        return self

    async def clear(self) -> None:
        """The part of Plugs."""

    @property
    def found(self) -> Plugged:
        return Plugged()

    @property
    def io_errors(self) -> Machine:
        return self

    async def follow(self, _vmi: object, _state: object, _hypervisor: object) -> list[str]:
        """The part of IoErrors."""
        return self.disk_troubles

    @property
    def plugins(self) -> Machine:
        return self

    async def tell(self, plugins: Sequence[Plugin], point: str, vmi: VirtualMachineInstance) -> None:
        """The part of MachinePlugins."""
        assert [plugin.metadata.name for plugin in plugins] == ["known"]
        self.heard.append((point, vmi.status.phase or ""))
        if point == self.refusing:
            raise PluginError(f"{point}: no")

    async def tell_once(self, plugins: Sequence[Plugin], point: str, vmi: VirtualMachineInstance) -> None:
        """The part of MachinePlugins."""
        if (point, vmi.status.phase) not in self.heard or point == self.refusing:
            await self.tell(plugins, point, vmi)

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
        made.pod_uid, made.changed, made.asked, made.heard = pod_uid, on_change, [], []
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
            "spec": {
                "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}},
                "networks": [{"name": "default", "pod": {}}],
                "hostname": hostname,
            },
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
            made = InstanceController(
                client, informer, recorder, settings, ClusterConfig, emulation=True, plugins=lambda: [PLUGIN]
            )
            self.controller = made
            manager.add(made.controller)
            try:
                async with working(manager):
                    await asyncio.sleep(0.5)
                    yield self.machines[-1]
            finally:
                await made.close()
        await client.close()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node()
    monkeypatch.setattr(module, "Machine", made.make)
    return made
