"""virt-handler on simulated nodes: the real reconciler, with launchers and guests of the simulated world."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.simulation.clock import wall_time
from tests.simulation.faults import Weather
from tests.simulation.moves import Mover
from tests.simulation.world import Containers, Launcher, World

from kubecore.client import Client
from kubecore.runtime import EventRecorder, Manager, key_of
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES
from virtplane.compute import hotplug
from virtplane.compute.domain.document import domain_name
from virtplane.compute.domain.processor import vcpu_count
from virtplane.compute.handler.agent.credentials import CredentialKeeper
from virtplane.compute.handler.agent.facts import GuestFacts
from virtplane.compute.handler.controller import InstanceController
from virtplane.compute.handler.decisions import Observation
from virtplane.compute.handler.hooks.plugins import MachinePlugins
from virtplane.compute.handler.hotplug.cpumemory import CpuMemory
from virtplane.compute.handler.hotplug.plugs import Plugged
from virtplane.compute.handler.launchers.control import LauncherGone
from virtplane.compute.handler.libvirtd.agentanswers import FROZEN, THAWED
from virtplane.compute.handler.libvirtd.calls import DomainState
from virtplane.compute.handler.network.cards import Card
from virtplane.compute.handler.node.heartbeat import Heartbeat
from virtplane.compute.handler.node.kvm import KvmVerdict
from virtplane.compute.handler.settings import HandlerSettings, pod_paths
from virtplane.compute.handler.threads import Steps


class _Networks:
    """Stands in for ``handler.network.keeper.GuestNetworks``."""

    def __init__(self) -> None:
        self.cards: dict[str, Card] = {}
        self.is_recalled = True


class _Libvirt:
    """The libvirt of one launcher, as far as CPUs are concerned."""

    shape_changed = False

    def __init__(self, launcher: Launcher, vmi: VirtualMachineInstance) -> None:
        self._launcher = launcher
        # A guest starts, and arrives from another node, with the CPUs that its instance has then.
        launcher.vcpus = launcher.vcpus or vcpu_count(vmi.spec.domain)

    async def description(self, _domain: str) -> str:
        return f"<domain><vcpu>{self._launcher.vcpus}</vcpu></domain>"

    async def set_vcpus(self, _domain: str, count: int) -> None:
        self._launcher.vcpus = count


class SimulatedMachine:
    """Stands in for ``handler.machine.Machine``: the same questions and orders, to a simulated launcher."""

    hypervisor = None
    """Disks of these guests never fail."""

    def __init__(
        self,
        world: World,
        weather: Weather,
        settings: HandlerSettings,
        vmi: VirtualMachineInstance,
        pod_uid: str,
        on_change: Callable[[], None],
    ) -> None:
        self.name = domain_name(*key_of(vmi))
        self.uid = vmi.metadata.uid
        self.domain: DomainState | None = None
        self.facts = GuestFacts()
        self.credentials = CredentialKeeper()
        self.cpu_memory = CpuMemory(self.name, self.uid)
        self.machine_type = ""
        self.shutdown_started: datetime | None = None
        self.gone = False
        self.terminating = False
        self.fatal = ""
        self.lasting_trouble = ""
        self.ping_failed = False
        self.networks = _Networks()
        paths = pod_paths(settings, pod_uid)
        self.plugins = MachinePlugins(settings, self.name, paths, Steps(self.name, on_change))
        self._world = world
        self._weather = weather
        self._on_change = on_change
        self.remarks: list[str] = []
        self.found = Plugged()
        self._containers = world.pods.get(pod_uid)
        if self._containers is not None:
            self._containers.listeners.append(on_change)

    @property
    def lines(self) -> SimulatedMachine:
        """What is known of the connection with the launcher: here it is the launcher itself."""
        return self

    async def observe(self) -> Observation:
        """See Machine.observe."""
        await asyncio.sleep(self._weather.chance.uniform(0.001, 0.01))
        found = self._containers
        if found is None or found.exit_code is not None:
            self.gone = True
        else:
            assert found.launcher is not None
            self.domain = found.launcher.domain
            self.terminating = found.launcher.is_terminating
        return Observation(not self.gone, self.gone, self.domain, self.shutdown_started, self.terminating)

    def expect_launcher(self) -> None:
        """A simulated launcher listens as soon as it runs."""

    async def start(self, vmi: VirtualMachineInstance, **_: Any) -> None:
        """See Machine.start."""
        await asyncio.sleep(self._weather.chance.uniform(0.05, 2.0))
        if self._weather.strikes(self._weather.chances.refused):
            raise OSError("the simulation lets this start fail")
        containers = self._live()
        assert containers.launcher is not None
        if containers.launcher.vmi_uid != vmi.metadata.uid:
            raise AssertionError(f"the launcher of another instance was taken for {self.name}")
        if containers.launcher.domain is None:
            self._world.boot(containers)
        self.domain = containers.launcher.domain

    async def recall(self, vmi: VirtualMachineInstance) -> None:
        """See Machine.recall."""
        self.machine_type = "q35"
        found = self._containers
        if found is not None and found.launcher is not None:
            await self.cpu_memory.follow(vmi, _Libvirt(found.launcher, vmi))  # type: ignore[arg-type]

    @property
    def agent(self) -> SimulatedMachine:
        """See Machine.agent."""
        return self

    def refresh(self, vmi: VirtualMachineInstance, *, is_running: bool) -> None:
        """A simulated guest has no agent."""

    async def follow_networks(self, vmi: VirtualMachineInstance, *, emulation: bool) -> None:
        """A simulated guest has no interfaces."""

    async def grow_disks(self, vmi: VirtualMachineInstance, settings: object) -> None:
        """A simulated guest's disks have no size."""

    @property
    def plugs(self) -> SimulatedMachine:
        """See Machine.plugs."""
        return self

    async def clear(self) -> None:
        """See Plugs.clear."""
        self.found = Plugged(in_guest={})

    async def follow_plugs(self, vmi: VirtualMachineInstance, settings: object) -> None:
        """See Plugs.follow: the guest gets what a running attachment pod has, and gives it back."""
        del settings
        await asyncio.sleep(self._weather.chance.uniform(0.001, 0.5))
        wanted = hotplug.plugged_volumes(vmi)
        before = dict(self.found.in_guest or {})
        kept = {name: target for name, target in before.items() if name in wanted}
        for name, entry in wanted.items():
            pod = entry.hotplug_volume.attach_pod_uid if entry.hotplug_volume is not None else None
            if name not in kept and pod:
                carrier = self._world.pods.get(pod)
                if carrier is None or carrier.exit_code is not None:
                    raise OSError(f"the attachment pod of {name} has ended")
                kept[name] = f"sd{chr(97 + len(kept))}"
        self.found = Plugged(frozenset(kept), kept)

    async def freeze(self) -> None:
        """See AgentKeeper.freeze; simulated guests have file systems that freeze at once."""
        self.facts = replace(self.facts, freeze_state=FROZEN)

    async def thaw(self) -> None:
        """See AgentKeeper.thaw."""
        self.facts = replace(self.facts, freeze_state=THAWED)

    async def is_frozen(self) -> bool:
        """See AgentKeeper.is_frozen."""
        return self.facts.freeze_state == FROZEN

    async def press_power_button(self) -> None:
        """See Machine.press_power_button; most guests obey after a while."""
        if self.shutdown_started is None:
            self.shutdown_started = wall_time()
        containers = self._live()
        if self._weather.chance.random() < 0.8:
            delay = self._weather.chance.uniform(0.5, 10.0)
            asyncio.get_running_loop().call_later(delay, self._power_off, containers)

    async def cut_power(self) -> None:
        """See Machine.cut_power."""
        self._world.set_domain(self._live(), DomainState("Shutoff", "Destroyed"))

    async def release(self, code: int) -> None:
        """See Machine.release."""
        if self._containers is not None and self._containers.exit_code is None:
            self._world.end(self._containers, code)

    async def unmount_images(self) -> None:
        """A simulated launcher holds no images."""

    async def close(self) -> None:
        """See Machine.close."""
        if self._containers is not None and self._on_change in self._containers.listeners:
            self._containers.listeners.remove(self._on_change)

    def _live(self) -> Containers:
        if self._containers is None or self._containers.exit_code is not None:
            self.gone = True
            raise LauncherGone("the launcher has ended")
        return self._containers

    def _power_off(self, containers: Containers) -> None:
        if containers in self._world.guests():
            self._world.set_domain(containers, DomainState("Shutoff", "Shutdown"))


class NodeHandler:
    """The program of one node's virt-handler."""

    def __init__(self, node: str, world: World, chance: random.Random) -> None:
        self._node = node
        self._world = world
        self._chance = chance

    async def run(self, client: Client) -> None:
        """The program of the process."""
        manager = Manager(client)
        instances = manager.informer(
            VIRTUAL_MACHINE_INSTANCES,
            label_selector=f"kubevirt.io/nodeName={self._node}",
            struct=VirtualMachineInstance,
        )
        async with EventRecorder(client, "virt-handler", host=self._node) as recorder:
            settings = HandlerSettings(node_name=self._node)
            controller = InstanceController(
                client, instances, recorder, settings, ClusterConfig, emulation=False
            )
            verdict = KvmVerdict(True, "")
            heartbeat = Heartbeat(client, recorder, self._node, verdict, lambda: manager.has_started)
            manager.add(controller.controller)
            manager.add(Mover(client, manager, self._node, self._world, self._chance).controller)
            manager.add_runnable("heartbeat", heartbeat.run)
            try:
                await manager.run()
            finally:
                await controller.close()
