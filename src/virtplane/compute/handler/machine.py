"""One instance on this node: its launcher, its domain, and its prepared resources."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar, cast

from kubecore.runtime import key_of
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.plugin_v1alpha1.plugin import Plugin
from virtplane.compute.domain import devicetags
from virtplane.compute.domain.context import (
    BootFiles,
    DiskSource,
    DomainContext,
)
from virtplane.compute.domain.document import domain_name, machine_type, render
from virtplane.compute.handler import handover
from virtplane.compute.handler.agent.clock import GuestClock
from virtplane.compute.handler.agent.keeper import AgentKeeper
from virtplane.compute.handler.agent.probes import AgentProbes
from virtplane.compute.handler.decisions import Observation
from virtplane.compute.handler.downwardmetrics.provider import MetricsProvider, Source
from virtplane.compute.handler.hooks.plugins import MachinePlugins
from virtplane.compute.handler.hooks.sidecars import HookSidecars
from virtplane.compute.handler.hotplug.cpumemory import CpuMemory
from virtplane.compute.handler.hotplug.growth import DiskGrowth
from virtplane.compute.handler.hotplug.plugs import Guest, Plugs
from virtplane.compute.handler.launchers import hostcpus, privileges
from virtplane.compute.handler.launchers.claimeddevices import claimed_devices
from virtplane.compute.handler.launchers.control import LauncherBroken, LauncherGone
from virtplane.compute.handler.launchers.process import Process
from virtplane.compute.handler.libvirtd.calls import DaemonSilent, DomainState, HypervisorError
from virtplane.compute.handler.libvirtd.connections import Connections
from virtplane.compute.handler.libvirtd.figures import GuestFigures
from virtplane.compute.handler.libvirtd.hypervisor import Defined, Hypervisor
from virtplane.compute.handler.libvirtd.ioerrors import IoErrors
from virtplane.compute.handler.network.functions import functions_of
from virtplane.compute.handler.network.keeper import GuestNetworks
from virtplane.compute.handler.rooted import Root
from virtplane.compute.handler.settings import HandlerSettings, PodPaths, pod_paths
from virtplane.compute.handler.stopwatch import Stopwatch
from virtplane.compute.handler.storage import bootfiles, heldimages
from virtplane.compute.handler.storage.claims import ClaimSettings
from virtplane.compute.handler.storage.volumes import VolumeBlocked, VolumePreparer
from virtplane.compute.handler.threads import StepBlocked, Steps
from virtplane.compute.plugins.hooks import PRE_START

logger = logging.getLogger(__name__)

_First = TypeVar("_First")
_Second = TypeVar("_Second")

_VOLUMES = "volumes"
"""The step that hangs where storage does."""


class ServersSpent(Exception):
    """A guest did not start, and cannot in this pod: the servers of its file systems serve one QEMU each."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the guest did not start, and its file systems are served once in a pod: {why}")


class Machine:
    """The node's part of one instance. `on_change` is called whenever its state changes."""

    def __init__(
        self,
        settings: HandlerSettings,
        vmi: VirtualMachineInstance,
        pod_uid: str,
        on_change: Callable[[], None],
    ) -> None:
        self.name = domain_name(*key_of(vmi))
        self.vmi = "/".join(key_of(vmi))
        """Namespace and name, for log lines."""
        self.uid = vmi.metadata.uid
        self.paths: PodPaths = pod_paths(settings, pod_uid)
        self.domain: DomainState | None = None
        self.cpu_memory = CpuMemory(self.name, self.vmi)
        self.io_errors = IoErrors(self.name, self.vmi)
        self.machine_type = ""
        self.shutdown_started: datetime | None = None
        self.fatal = ""
        """Why this guest can never run in its pod, or the empty string."""
        self.remarks: list[str] = []
        """What its owner should know of claims that are smaller than requested."""
        self.lines = Connections(self.vmi, self.paths, on_change)
        self.agent = AgentKeeper(self.name, self.vmi, self.lines, on_change)
        self._clock = GuestClock(self.name, self.vmi, self.lines)
        self._steps = Steps(self.vmi, on_change)
        self.networks = GuestNetworks(self.name, self.vmi, self._steps)
        self._hooks = HookSidecars(self.paths, self._steps)
        self.plugins = MachinePlugins(settings, self.vmi, self.paths, self._steps)
        self._growth = DiskGrowth(self.name, self.vmi)
        self._probes = AgentProbes(self.vmi)
        self._metrics = MetricsProvider(Source(settings.node_name, self.vmi, self._figures), self.paths)
        self.plugs = Plugs(self.name, self.vmi, self.paths, self._steps, self.remarks.append, on_change)
        self._volume = ""
        """The volume that is being prepared."""
        self._settings = settings

    @property
    def hypervisor(self) -> Hypervisor | None:
        """The connection to the guest's libvirt, if there is one; it may be closed."""
        return self.lines.hypervisor

    async def observe(self) -> Observation:
        """The state of launcher and domain; missing connections are opened in the background."""
        self.lines.keep()
        is_known = await self._read_state()
        return Observation(
            launcher_ready=self.lines.is_ready,
            launcher_gone=self.lines.gone,
            domain=self.domain,
            shutdown_started=self.shutdown_started,
            terminating=self.lines.terminating,
            domain_known=is_known,
        )

    async def _read_state(self) -> bool:
        """Update `domain`; returns False if libvirt cannot be asked."""
        hypervisor = self.hypervisor
        if hypervisor is None or not hypervisor.is_open:
            # If no daemon was ever started, there is no domain.
            return self.lines.has_daemon is False
        try:
            before, self.domain = self.domain, await hypervisor.state(self.name)
        except HypervisorError as error:
            if isinstance(error, DaemonSilent):
                self.lines.set_trouble(str(error))
            # Otherwise the daemon has ended, as it does with each guest; opening the next connection reports
            # why.
            hypervisor.give_up()
            return False
        self._clock.follow(before, self.domain)
        return True

    async def start(
        self,
        vmi: VirtualMachineInstance,
        *,
        emulation: bool,
        options: dict[str, Any],
        claim_settings: ClaimSettings,
        ovmf_folder: str,
        plugins: Sequence[Plugin] = (),
    ) -> None:
        """Prepare devices, network and volumes, start libvirt and the domain.

        Every step may be repeated: an interrupted start is simply done again. Raises what the steps raise.
        """
        if self._steps.is_blocked(_VOLUMES):
            raise VolumeBlocked(self._volume)
        link = self.lines.require_link()
        process = link.process
        watch = Stopwatch()
        await self._steps.run("devices", handover.hand_over_devices, process)
        await self._steps.run("state", self._hand_over_state, vmi, process)
        await self._steps.run("capabilities", handover.share_capabilities, self._settings, self.paths)
        own = await self._steps.run("processors", handover.own_processors, vmi, process)
        given = await self._steps.run("host devices", handover.given_devices, vmi, process)
        claimed = await self._steps.run("devices of claims", claimed_devices, vmi, process)
        functions = await self._steps.run("PCI functions", functions_of, vmi, process)
        await self._steps.run("memory", privileges.let_lock, vmi, process)
        await link.request("start")
        self.lines.has_daemon = True
        watch.lap("launcher")
        plugged = await self.plugs.bring_all(vmi, process, claim_settings)
        links, sources = await both(
            self.networks.prepare(vmi, link),
            self._prepare_volumes(vmi, process, claim_settings),
        )
        boot = await self._steps.run("boot files", self._find_boot_files, vmi, process, ovmf_folder)
        watch.lap("network and volumes")
        context = DomainContext(
            emulation=emulation,
            disks=sources | plugged,
            interfaces=links,
            cpus=own,
            given=given,
            claimed=claimed,
            functions=functions,
            boot=boot,
            **options,
        )
        hypervisor = await self.lines.open_hypervisor()
        watch.lap("connection")
        await self.plugins.tell(plugins, PRE_START, vmi)
        xml = await self._hooks.define(vmi, self.name, render(vmi, context))
        xml = await self.plugins.define(plugins, vmi, self.name, xml)
        watch.lap("hooks")
        tags = partial(self._tell_devices, vmi, process) if devicetags.is_tagged(vmi) else None
        await self._boot(vmi, hypervisor, xml, tags)
        await self._steps.run("real time", privileges.schedule_in_real_time, vmi, self.paths.pod_uid)
        watch.lap("domain")
        self.domain = await hypervisor.state(self.name)
        logger.info("Guest started", extra={"vmi": self.vmi, "milliseconds": watch.laps})

    async def _boot(
        self, vmi: VirtualMachineInstance, hypervisor: Hypervisor, xml: str, defined: Defined | None = None
    ) -> None:
        try:
            await hypervisor.start(xml, paused=vmi.spec.start_strategy == "Paused", defined=defined)
        except HypervisorError as error:
            if not vmi.spec.domain.devices.filesystems or not hypervisor.is_open:
                raise
            state = await hypervisor.state(self.name)
            if state is not None and state.is_active:
                raise
            raise ServersSpent(str(error)) from error

    async def recall(self, vmi: VirtualMachineInstance) -> None:
        """Read from the pod what was prepared before virt-handler restarted; plug CPUs and memory, and pause
        probes.
        """
        if not self.lines.is_ready:
            return
        self._metrics.keep(vmi, self.lines.require_link().process)
        await self._probes.follow(vmi, self.lines.require_link())
        hypervisor = self.hypervisor
        if hypervisor is not None:
            await self.networks.recall(vmi, self.lines.require_link(), hypervisor)
        if not self.machine_type and hypervisor is not None:
            self.machine_type = machine_type(await hypervisor.description(self.name))
            await self.agent.recall(hypervisor)
        if hypervisor is not None:
            await self.cpu_memory.follow(vmi, hypervisor)

    async def follow_networks(self, vmi: VirtualMachineInstance, *, emulation: bool) -> None:
        """Bring the guest's interfaces to what `vmi` says. Raises what ``GuestNetworks.follow`` raises."""
        link, hypervisor = self.lines.link, self.hypervisor
        if link is not None and hypervisor is not None and self.lines.is_ready:
            await self.networks.follow(vmi, link, hypervisor, emulation=emulation)

    async def grow_disks(self, vmi: VirtualMachineInstance, settings: ClaimSettings) -> None:
        """Let the running guest see the room that its claims have gained. Raises HypervisorError, OSError."""
        link, hypervisor = self.lines.link, self.hypervisor
        if link is not None and hypervisor is not None and self.lines.is_ready:
            await self._growth.follow(vmi, link.process, hypervisor, self._steps, settings)

    async def follow_plugs(self, vmi: VirtualMachineInstance, settings: ClaimSettings) -> None:
        """Plug and unplug volumes (see `Plugs.follow`, and what it raises)."""
        link, hypervisor = self.lines.link, self.hypervisor
        if link is not None and hypervisor is not None and self.lines.is_ready:
            await self.plugs.follow(vmi, Guest(link.process, hypervisor), settings)

    async def press_power_button(self) -> None:
        """Request an ACPI shutdown; the first request starts the grace period. Raises HypervisorError."""
        if self.shutdown_started is None:
            self.shutdown_started = datetime.now(UTC)
        await self.lines.require_hypervisor().shutdown(self.name)

    async def cut_power(self) -> None:
        """Stop the guest immediately. Raises HypervisorError."""
        await self.lines.require_hypervisor().destroy(self.name)

    async def release(self, code: int) -> None:
        """Let the launcher exit with `code`: the guest has ended."""
        await self._hooks.shut_down()
        try:
            await self.lines.require_link().request("exit", code=code)
        except LauncherGone:
            self.lines.gone = True
        except LauncherBroken as error:
            # virt-controller deletes its pod, including the launcher.
            self.lines.set_trouble(str(error))

    async def unmount_images(self) -> None:
        """Unmount the disks of a launcher that has ended, so that its pod can be removed."""
        await self.plugs.clear()
        await self._steps.run("unmount", heldimages.unmount_all, self.paths.container_disks)

    async def close(self) -> None:
        """Close all connections; launcher and guest keep running."""
        await self.agent.close()
        await self._clock.close()
        await self._metrics.close()
        await self.plugs.close()
        await self._steps.close()
        await self.lines.close()

    async def _figures(self) -> GuestFigures:
        return await self.lines.require_hypervisor().figures(self.name)

    async def _prepare_volumes(
        self, vmi: VirtualMachineInstance, launcher: Process, claim_settings: ClaimSettings
    ) -> dict[str, DiskSource]:
        def note(volume: str) -> None:
            self._volume = volume

        remarks: list[str] = []

        change = partial(self._hooks.change_cloud_init, vmi)

        def prepare() -> dict[str, DiskSource]:
            with launcher.root() as root, Root(self.paths.ephemeral) as scratch:
                preparer = VolumePreparer(
                    vmi, root, scratch, self.paths, note, remarks.append, claim_settings, change
                )
                return preparer.prepare()

        try:
            return await self._steps.run(_VOLUMES, prepare)
        except StepBlocked as error:
            raise VolumeBlocked(self._volume) from error
        finally:
            self.remarks += remarks

    async def _tell_devices(self, vmi: VirtualMachineInstance, launcher: Process, xml: str) -> None:
        """Let the config drive of a guest list its tagged devices; `xml` is the defined domain."""
        change = partial(self._hooks.change_cloud_init, vmi)

        def write() -> None:
            devices = devicetags.tagged_devices(vmi, xml, hostcpus.near_pci)
            with launcher.root() as root, Root(self.paths.ephemeral) as scratch:
                preparer = VolumePreparer(vmi, root, scratch, self.paths, change_cloud_init=change)
                preparer.write_config_drives(devices)

        await self._steps.run("device tags", write)

    def _hand_over_state(self, vmi: VirtualMachineInstance, launcher: Process) -> None:
        with launcher.root() as root:
            bootfiles.hand_over_state(vmi, root)

    def _find_boot_files(self, vmi: VirtualMachineInstance, launcher: Process, ovmf_folder: str) -> BootFiles:
        with launcher.root() as root:
            return bootfiles.find(vmi, root, self.paths, ovmf_folder)


async def both(first: Awaitable[_First], second: Awaitable[_Second]) -> tuple[_First, _Second]:
    """Run two steps concurrently. If one fails, the other is awaited before the error is raised (the first
    one's, if both fail): no step may still run when the start is repeated.
    """
    ended = await asyncio.gather(first, second, return_exceptions=True)
    for result in ended:
        if isinstance(result, BaseException):
            raise result
    return cast("_First", ended[0]), cast("_Second", ended[1])
