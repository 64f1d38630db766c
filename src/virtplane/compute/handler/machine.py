"""One instance on this node: its launcher, its domain, and its prepared resources."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import stat
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from kubecore.runtime import key_of
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.domain import metrics
from virtplane.compute.domain.context import (
    PRIVATE_DIRECTORY,
    BootFiles,
    DiskSource,
    DomainContext,
    HostCpu,
)
from virtplane.compute.domain.document import domain_name, machine_type, render
from virtplane.compute.handler import guestagent, hostcpus, privileges
from virtplane.compute.handler.connections import Connections
from virtplane.compute.handler.cpumemory import CpuMemory
from virtplane.compute.handler.credentials import CredentialKeeper
from virtplane.compute.handler.decisions import Observation
from virtplane.compute.handler.growth import DiskGrowth
from virtplane.compute.handler.hooks import HookSidecars
from virtplane.compute.handler.hotplug.plugs import Guest, Plugs
from virtplane.compute.handler.hypervisor import Hypervisor
from virtplane.compute.handler.ioerrors import IoErrors
from virtplane.compute.handler.launcher import LauncherBroken, LauncherGone, LauncherLink
from virtplane.compute.handler.libvirtcalls import DaemonSilent, DomainState, HypervisorError
from virtplane.compute.handler.metrics.provider import MetricsProvider, Source
from virtplane.compute.handler.metrics.report import GuestFigures
from virtplane.compute.handler.network.keeper import GuestNetworks
from virtplane.compute.handler.node import capabilities
from virtplane.compute.handler.process import Process
from virtplane.compute.handler.settings import HandlerSettings, PodPaths, pod_paths
from virtplane.compute.handler.status import GuestFacts
from virtplane.compute.handler.stopwatch import Stopwatch
from virtplane.compute.handler.storage import bootfiles, heldimages
from virtplane.compute.handler.storage.claims import ClaimSettings
from virtplane.compute.handler.storage.rooted import Root
from virtplane.compute.handler.storage.volumes import VolumeBlocked, VolumePreparer
from virtplane.compute.handler.threads import StepBlocked, Steps

logger = logging.getLogger(__name__)

_First = TypeVar("_First")
_Second = TypeVar("_Second")

_VOLUMES = "volumes"
"""The step that hangs where storage does."""

_CAPABILITIES = "cache/libvirt"
_DEVICES = ("dev/net/tun", "dev/kvm", "dev/vhost-net", "dev/vhost-vsock", "dev/sev")
"""Below ``/``, on the node and in the container alike."""


_HOST_DEVICES = ("dev/vfio", *(f"dev/bus/usb/{bus:03}" for bus in range(1, 33)))
"""Folders of the nodes of devices that are passed through."""


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
        self.facts = GuestFacts()
        self.credentials = CredentialKeeper()
        self.cpu_memory = CpuMemory(self.name, self.vmi)
        self.io_errors = IoErrors(self.name, self.vmi)
        self.machine_type = ""
        self.shutdown_started: datetime | None = None
        self.fatal = ""
        """Why this guest can never run in its pod, or the empty string."""
        self.remarks: list[str] = []
        """What its owner should know of claims that are smaller than requested."""
        self.lines = Connections(self.vmi, self.paths, on_change)
        self._steps = Steps(self.vmi, on_change)
        self.networks = GuestNetworks(self.name, self.vmi, self._steps)
        self._hooks = HookSidecars(self.paths, self._steps)
        self._growth = DiskGrowth(self.name, self.vmi)
        self._metrics = MetricsProvider(Source(settings.node_name, self.vmi, self._figures), self.paths)
        self.plugs = Plugs(self.name, self.vmi, self.paths, self._steps, self.remarks.append)
        self._volume = ""
        """The volume that is being prepared."""
        self._asking: asyncio.Task[None] | None = None
        self._settings = settings
        self._on_change = on_change

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
            self.domain = await hypervisor.state(self.name)
        except HypervisorError as error:
            if isinstance(error, DaemonSilent):
                self.lines.set_trouble(str(error))
            # Otherwise the daemon has ended, as it does with each guest; opening the next connection reports
            # why.
            hypervisor.give_up()
            return False
        return True

    async def start(
        self,
        vmi: VirtualMachineInstance,
        *,
        emulation: bool,
        options: dict[str, Any],
        claim_settings: ClaimSettings,
        ovmf_folder: str,
    ) -> None:
        """Prepare devices, network and volumes, start libvirt and the domain.

        Every step may be repeated: an interrupted start is simply done again. Raises what the steps raise.
        """
        if self._steps.is_blocked(_VOLUMES):
            raise VolumeBlocked(self._volume)
        link = self._link()
        process = link.process
        watch = Stopwatch()
        await self._steps.run("devices", self._hand_over_devices, process)
        await self._steps.run("state", self._hand_over_state, vmi, process)
        await self._steps.run("capabilities", self._share_capabilities)
        own = await self._steps.run("processors", _own_processors, vmi, process)
        given = await self._steps.run("host devices", _given_devices, vmi, process)
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
            boot=boot,
            **options,
        )
        hypervisor = await self.lines.open_hypervisor()
        watch.lap("connection")
        paused = vmi.spec.start_strategy == "Paused"
        await hypervisor.start(await self._hooks.define(vmi, self.name, render(vmi, context)), paused=paused)
        await self._steps.run("real time", privileges.schedule_in_real_time, vmi, self.paths.pod_uid)
        watch.lap("domain")
        self.domain = await hypervisor.state(self.name)
        logger.info("Guest started", extra={"vmi": self.vmi, "milliseconds": watch.laps})

    async def recall(self, vmi: VirtualMachineInstance) -> None:
        """Read from the pod what was prepared before virt-handler restarted; plug CPUs and memory."""
        if not self.lines.is_ready:
            return
        self._metrics.keep(vmi, self._link().process)
        hypervisor = self.hypervisor
        if hypervisor is not None:
            await self.networks.recall(vmi, self._link(), hypervisor)
        if not self.machine_type and hypervisor is not None:
            self.machine_type = machine_type(await hypervisor.description(self.name))
            hypervisor.agent_connected = hypervisor.agent_connected or await self._agent_answers(hypervisor)
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

    def refresh_facts(self, vmi: VirtualMachineInstance) -> None:
        """Start querying the guest agent, if it is connected; `on_change` is called when its answer differs.

        Nothing waits for the answer: an agent may hang, and always does while its guest is paused.
        """
        hypervisor = self.hypervisor
        if hypervisor is None or not hypervisor.agent_connected:
            self.facts = GuestFacts()
            self.credentials.agent_is_offline(vmi)
            return
        if self.facts == GuestFacts():
            self.facts = GuestFacts(True)
        is_asking = self._asking is not None and not self._asking.done()
        if not is_asking and self.domain is not None and self.domain.status == "Running":
            self._asking = asyncio.create_task(self._ask_agent(vmi, hypervisor), name=f"agent-{self.name}")

    async def _ask_agent(self, vmi: VirtualMachineInstance, hypervisor: Hypervisor) -> None:
        before = self.credentials.outcome
        link = self.lines.link
        if link is not None:
            await self.credentials.keep(vmi, link.process.root, hypervisor, self.name)
        try:
            facts = await self._guest_facts(hypervisor)
        except HypervisorError as error:
            extra = {"vmi": self.vmi, "err": str(error)}
            logger.info("The guest agent did not answer; trying again", extra=extra)
            return
        is_news = facts != self.facts or before != self.credentials.outcome
        if is_news and self.hypervisor is hypervisor:
            self.facts = facts
            self._on_change()

    async def _guest_facts(self, hypervisor: Hypervisor) -> GuestFacts:
        """What the agent says; while the guest is frozen, its agent refuses to speak of anything else."""
        state = await hypervisor.freeze_state(self.name)
        if state == guestagent.FROZEN:
            return replace(self.facts, freeze_state=state)
        info = await hypervisor.guest_info(self.name)
        found = await hypervisor.guest_interfaces(self.name)
        version, commands = self.facts.agent_version, self.facts.agent_commands
        if not commands:  # they stay the same while it is connected
            with contextlib.suppress(HypervisorError):
                about = guestagent.version_and_commands(await hypervisor.agent_about(self.name))
                version, commands = about[0], tuple(each["name"] for each in about[1] if "enabled" in each)
        return GuestFacts(
            True, guestagent.os_info(info), guestagent.interfaces(found), state, version, commands
        )

    async def freeze(self) -> None:
        """Quiesce the guest's file systems. Raises HypervisorError."""
        await self._hypervisor().freeze(self.name)
        self._note_freeze(guestagent.FROZEN)

    async def thaw(self) -> None:
        """End a freeze. Without one, the guest's hooks are not run. Raises HypervisorError."""
        hypervisor = self._hypervisor()
        state = ""
        with contextlib.suppress(HypervisorError):
            state = await hypervisor.freeze_state(self.name)
        if state != guestagent.THAWED:
            await hypervisor.thaw(self.name)
        self._note_freeze(guestagent.THAWED)

    async def is_frozen(self) -> bool:
        """Whether the agent says so. Raises HypervisorError."""
        return await self._hypervisor().freeze_state(self.name) == guestagent.FROZEN

    def _note_freeze(self, state: str) -> None:
        if self.facts.agent_connected and self.facts.freeze_state != state:
            self.facts = replace(self.facts, freeze_state=state)
            self._on_change()

    async def press_power_button(self) -> None:
        """Request an ACPI shutdown; the first request starts the grace period. Raises HypervisorError."""
        if self.shutdown_started is None:
            self.shutdown_started = datetime.now(UTC)
        await self._hypervisor().shutdown(self.name)

    async def cut_power(self) -> None:
        """Stop the guest immediately. Raises HypervisorError."""
        await self._hypervisor().destroy(self.name)

    async def release(self, code: int) -> None:
        """Let the launcher exit with `code`: the guest has ended."""
        await self._hooks.shut_down()
        try:
            await self._link().request("exit", code=code)
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
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._metrics.close()
        await self._steps.close()
        await self.lines.close()

    async def _figures(self) -> GuestFigures:
        return await self._hypervisor().figures(self.name)

    def _link(self) -> LauncherLink:
        if self.lines.link is None:
            raise LauncherBroken(f"the launcher of {self.name} is not connected")
        return self.lines.link

    def _hypervisor(self) -> Hypervisor:
        if self.hypervisor is None:
            raise HypervisorError("connect", f"libvirt of {self.name} is not connected")
        return self.hypervisor

    async def _prepare_volumes(
        self, vmi: VirtualMachineInstance, launcher: Process, claim_settings: ClaimSettings
    ) -> dict[str, DiskSource]:
        def note(volume: str) -> None:
            self._volume = volume

        remarks: list[str] = []

        def prepare() -> dict[str, DiskSource]:
            with launcher.root() as root, Root(self.paths.ephemeral) as scratch:
                change = partial(self._hooks.change_cloud_init, vmi)
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

    def _hand_over_devices(self, launcher: Process) -> None:
        """Change the owner of the container's device nodes from root to QEMU's user."""
        with launcher.root() as root:
            for name in _DEVICES:
                own = Path("/", name)
                if own.exists() and root.mode(name):
                    root.give(name, device=own.stat().st_rdev)
            root.make_folders(str(Path(PRIVATE_DIRECTORY, metrics.CHANNEL).parent))

    def _hand_over_state(self, vmi: VirtualMachineInstance, launcher: Process) -> None:
        with launcher.root() as root:
            bootfiles.hand_over_state(vmi, root)

    def _find_boot_files(self, vmi: VirtualMachineInstance, launcher: Process, ovmf_folder: str) -> BootFiles:
        with launcher.root() as root:
            return bootfiles.find(vmi, root, self.paths, ovmf_folder)

    def _share_capabilities(self) -> None:
        """Copy the node's QEMU capabilities to the launcher: otherwise libvirt probes QEMU, which takes
        seconds.
        """
        warm = capabilities.location(self._settings.capabilities_cache)
        with Root(self.paths.libvirt_runtime) as root:
            if not warm.is_dir() or root.is_folder(_CAPABILITIES):
                return
            for path in warm.rglob("*"):
                if path.is_file():
                    root.copy(path, f"{_CAPABILITIES}/{path.relative_to(warm)}")

    async def _agent_answers(self, hypervisor: Hypervisor) -> bool:
        try:
            await hypervisor.agent_command(self.name, '{"execute":"guest-ping"}', 2)
        except HypervisorError:
            return False
        return True


def _own_processors(vmi: VirtualMachineInstance, launcher: Process) -> tuple[HostCpu, ...]:
    """The CPUs to which a guest with dedicated ones is pinned; none for others."""
    return hostcpus.of_pod(launcher) if vmi.spec.domain.cpu.dedicated_cpu_placement else ()


def _given_devices(vmi: VirtualMachineInstance, launcher: Process) -> dict[str, str]:
    """The devices of the node that the pod has, where the guest is to have any.

    What the launcher says of them is not checked: the kernel lets it use the device nodes of its pod alone,
    and those become its user's.
    """
    devices = vmi.spec.domain.devices
    if not devices.gpus and not devices.host_devices:
        return {}
    given = launcher.environment()
    with launcher.root() as root:
        for folder in _HOST_DEVICES:
            nodes = [f"{folder}/{name}" for name in root.names(folder)] if root.is_folder(folder) else []
            for node in nodes:
                own = Path("/", node)
                if stat.S_ISCHR(root.mode(node)) and own.is_char_device():
                    root.give(node, device=own.stat().st_rdev)
    return given


async def both(first: Awaitable[_First], second: Awaitable[_Second]) -> tuple[_First, _Second]:
    """Run two steps concurrently. If one fails, the other is awaited before the error is raised (the first
    one's, if both fail): no step may still run when the start is repeated.
    """
    ended = await asyncio.gather(first, second, return_exceptions=True)
    for result in ended:
        if isinstance(result, BaseException):
            raise result
    return cast("_First", ended[0]), cast("_Second", ended[1])
