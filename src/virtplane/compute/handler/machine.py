"""One instance as it runs on this node: its launcher, its domain, what was prepared for it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from kubecore.json import JsonObject, get_str
from virtplane.compute.domain.context import DiskSource, DomainContext, InterfaceLink
from virtplane.compute.domain.document import domain_name, render
from virtplane.compute.handler import guestagent
from virtplane.compute.handler.credentials import CredentialKeeper
from virtplane.compute.handler.decisions import Observation
from virtplane.compute.handler.hypervisor import DomainState, Hypervisor, HypervisorError
from virtplane.compute.handler.launcher import LauncherGone, LauncherLink, LauncherNotReady, connect
from virtplane.compute.handler.netns import run_in_network_namespace
from virtplane.compute.handler.network import lease, setup
from virtplane.compute.handler.network import plan as network_plan
from virtplane.compute.handler.node import capabilities
from virtplane.compute.handler.settings import HandlerSettings, PodPaths, pod_paths
from virtplane.compute.handler.status import GuestFacts
from virtplane.compute.handler.storage import heldimages
from virtplane.compute.handler.storage.rooted import Root
from virtplane.compute.handler.storage.volumes import VolumePreparer

logger = logging.getLogger(__name__)

_First = TypeVar("_First")
_Second = TypeVar("_Second")

_CAPABILITIES = "cache/libvirt"
_LOOK_SECONDS = 0.01
_LOOKS = 500
"""Looking for a socket costs microseconds; one that takes longer is looked for at leisure."""

_DEVICES = ("dev/net/tun", "dev/kvm", "dev/vhost-net", "dev/vhost-vsock", "dev/sev")
"""Below ``/``, on the node and in the container alike."""


class Machine:
    """The node's side of one instance. `on_change` is called whenever something happened to it."""

    def __init__(
        self, settings: HandlerSettings, vmi: JsonObject, pod_uid: str, on_change: Callable[[], None]
    ) -> None:
        self.name = domain_name(vmi)
        self.uid = get_str(vmi, "metadata", "uid")
        self.paths: PodPaths = pod_paths(settings, pod_uid)
        self.domain: DomainState | None = None
        self.facts = GuestFacts()
        self.credentials = CredentialKeeper()
        self.macs: dict[str, str] = {}
        self.machine_type = ""
        self.shutdown_started: datetime | None = None
        self.gone = False
        """True once the launcher has ended."""
        self.terminating = False
        """True once the launcher was told to end."""
        self.fatal = ""
        """Why this guest can never run in its pod, or the empty string."""
        self.pod_addresses: tuple[str, ...] = ()
        self.link: LauncherLink | None = None
        self.hypervisor: Hypervisor | None = None
        self._asking: asyncio.Task[None] | None = None
        self._expecting: asyncio.Task[None] | None = None
        self._settings = settings
        self._on_change = on_change

    async def observe(self) -> Observation:
        """Look at launcher and domain, (re)connecting where a connection is missing."""
        await self._connect()
        if self.hypervisor is not None and self.hypervisor.is_open:
            try:
                self.domain = await self.hypervisor.state(self.name)
            except HypervisorError as error:
                logger.info("Libvirt did not answer", extra={"domain": self.name, "err": str(error)})
                await self._disconnect_hypervisor()
        ready = self.link is not None and self.link.alive and not self.gone
        return Observation(ready, self.gone, self.domain, self.shutdown_started, self.terminating)

    def expect_launcher(self) -> None:
        """Call `on_change` as soon as the launcher's control socket is there, for which there is no event."""
        if self._expecting is None or self._expecting.done():
            self._expecting = asyncio.create_task(self._until_launcher_listens(), name=f"wait-{self.name}")

    async def _until_launcher_listens(self) -> None:
        for _ in range(_LOOKS):
            if self.paths.control_socket.exists():
                break
            await asyncio.sleep(_LOOK_SECONDS)
        self._on_change()

    async def start(self, vmi: JsonObject, *, emulation: bool, options: dict[str, Any]) -> None:
        """Prepare devices, network and volumes, start libvirt and the domain.

        Every step may be repeated: an interrupted start is simply done again. Raises what the steps raise.
        """
        assert self.link is not None
        link = self.link
        watch = Stopwatch()
        await asyncio.to_thread(self._hand_over_devices, link.root)
        await asyncio.to_thread(self._share_capabilities)
        await link.request("start")
        watch.lap("launcher")
        links, sources = await both(
            self._prepare_network(vmi, link),
            asyncio.to_thread(self._prepare_volumes, vmi, link.root),
        )
        watch.lap("network and volumes")
        context = DomainContext(emulation=emulation, disks=sources, interfaces=links, **options)
        hypervisor = await self._connect_hypervisor()
        watch.lap("connection")
        paused = get_str(vmi, "spec", "startStrategy") == "Paused"
        await hypervisor.start(render(vmi, context), paused=paused)
        watch.lap("domain")
        self.domain = await hypervisor.state(self.name)
        logger.info("Guest started", extra={"domain": self.name, "milliseconds": watch.laps})

    async def recall(self, vmi: JsonObject) -> None:
        """After a restart of virt-handler: learn again what was prepared, from the pod itself."""
        if self.link is None or not self.link.alive:
            return
        if not self.macs:
            await self._prepare_network(vmi, self.link)
        if not self.machine_type and self.hypervisor is not None:
            self.machine_type = machine_type(await self.hypervisor.description(self.name))
            self.hypervisor.agent_connected = self.hypervisor.agent_connected or await self._agent_answers()

    def refresh_facts(self, vmi: JsonObject) -> None:
        """Begin to ask the guest agent, when there is one; `on_change` is called when there is something new.

        Nothing waits for its answer: an agent may hang, and one whose guest is paused does.
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

    async def _ask_agent(self, vmi: JsonObject, hypervisor: Hypervisor) -> None:
        before = self.credentials.outcome
        if self.link is not None:
            await self.credentials.keep(vmi, self.link.root, hypervisor, self.name)
        try:
            info = await hypervisor.guest_info(self.name)
            found = await hypervisor.guest_interfaces(self.name)
        except HypervisorError as error:
            logger.info("The guest agent did not answer", extra={"domain": self.name, "err": str(error)})
            return
        facts = GuestFacts(True, guestagent.os_info(info), guestagent.interfaces(found))
        is_news = facts != self.facts or before != self.credentials.outcome
        if is_news and self.hypervisor is hypervisor:
            self.facts = facts
            self._on_change()

    async def press_power_button(self) -> None:
        """ACPI shutdown; the first press starts the grace period."""
        assert self.hypervisor is not None
        if self.shutdown_started is None:
            self.shutdown_started = datetime.now(UTC)
        await self.hypervisor.shutdown(self.name)

    async def cut_power(self) -> None:
        """End the guest at once."""
        assert self.hypervisor is not None
        await self.hypervisor.destroy(self.name)

    async def release(self, code: int) -> None:
        """The guest has ended: let the launcher end with `code`."""
        if self.link is not None and self.link.alive:
            try:
                await self.link.request("exit", code=code)
            except LauncherGone:
                self.gone = True

    async def unmount_images(self) -> None:
        """After the launcher has ended: let go of its container disks, so that its pod can be removed."""
        await asyncio.to_thread(heldimages.unmount_all, self.paths.container_disks)

    async def close(self) -> None:
        """Hang up everywhere; nothing that runs is touched."""
        for task in (self._asking, self._expecting):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._disconnect_hypervisor()
        if self.link is not None:
            link, self.link = self.link, None
            await link.close()

    async def _connect(self) -> None:
        if self.link is None and not self.gone:
            try:
                self.link = await connect(
                    self.paths.control_socket, self._launcher_event, self._launcher_ended
                )
            except LauncherNotReady:
                # The folder disappears with the pod; then nobody will ever be ready here.
                self.gone = not self.paths.root.exists()
            except LauncherGone:
                self.gone = True
        if self.link is not None and self.link.alive and self.hypervisor is None:
            try:
                answer = await self.link.request("ping")
            except LauncherGone:
                return  # The end of the line says whether it is gone for good.
            self.terminating = bool(answer.get("terminating"))
            if answer.get("libvirt") is not None:
                await self._connect_hypervisor()

    async def _connect_hypervisor(self) -> Hypervisor:
        if self.hypervisor is not None and not self.hypervisor.is_open:
            await self._disconnect_hypervisor()
        if self.hypervisor is None:
            self.hypervisor = await Hypervisor.open(self.paths.libvirt_socket, self._on_change)
        return self.hypervisor

    async def _disconnect_hypervisor(self) -> None:
        if self.hypervisor is not None:
            hypervisor, self.hypervisor = self.hypervisor, None
            await hypervisor.close()

    def _launcher_event(self, event: dict[str, Any]) -> None:
        self.terminating = self.terminating or event.get("event") == "terminating"
        self._on_change()

    def _launcher_ended(self) -> None:
        self.gone = True
        self._on_change()

    def _prepare_volumes(self, vmi: JsonObject, launcher: Path) -> dict[str, DiskSource]:
        with Root(launcher) as root, Root(self.paths.ephemeral) as scratch:
            return VolumePreparer(vmi, root, scratch, self.paths).prepare()

    def _hand_over_devices(self, launcher: Path) -> None:
        """The container's device nodes belong to root; QEMU's user must be able to open them."""
        with Root(launcher) as root:
            for name in _DEVICES:
                own = Path("/", name)
                if own.exists() and root.mode(name):
                    root.give(name, device=own.stat().st_rdev)

    def _share_capabilities(self) -> None:
        """Probing QEMU takes libvirt seconds; a launcher that finds the node's answers starts at once."""
        warm = capabilities.location(self._settings.capabilities_cache)
        with Root(self.paths.libvirt_runtime) as root:
            if not warm.is_dir() or root.is_folder(_CAPABILITIES):
                return
            for path in warm.rglob("*"):
                if path.is_file():
                    root.copy(path, f"{_CAPABILITIES}/{path.relative_to(warm)}")

    async def _prepare_network(self, vmi: JsonObject, link: LauncherLink) -> dict[str, InterfaceLink]:
        if network_plan.primary_interface(vmi) is None:
            return {}
        pod = await run_in_network_namespace(link.pid, setup.read_pod_interface)
        if pod is None:
            raise setup.NetworkSetupError("the pod has no network interface")
        plan = network_plan.plan_network(vmi, pod)
        if plan is None:
            return {}
        await run_in_network_namespace(link.pid, lambda: setup.apply(plan))
        resolver = lease.parse_resolver(await asyncio.to_thread(_resolver, link.root))
        offer = lease.lease(plan, vmi, resolver)
        if offer is not None:
            await link.request("dhcp", interface=network_plan.PRIMARY_BRIDGE, lease=offer)
        self.macs = {plan.interface: plan.mac}
        self.pod_addresses = tuple(str(address.ip) for address in pod.addresses)
        return {plan.interface: InterfaceLink(network_plan.PRIMARY_TAP, plan.mac, pod.mtu)}

    async def _agent_answers(self) -> bool:
        assert self.hypervisor is not None
        try:
            await self.hypervisor.agent_command(self.name, '{"execute":"guest-ping"}', 2)
        except HypervisorError:
            return False
        return True


def _resolver(launcher: Path) -> str:
    with Root(launcher) as root:
        return root.read("etc/resolv.conf").decode()


async def both(first: Awaitable[_First], second: Awaitable[_Second]) -> tuple[_First, _Second]:
    """Two steps at the same time; both have ended before the failure of one (the first's first) is raised.

    Nothing may still work on a guest whose start is tried again.
    """
    ended = await asyncio.gather(first, second, return_exceptions=True)
    for result in ended:
        if isinstance(result, BaseException):
            raise result
    return cast("_First", ended[0]), cast("_Second", ended[1])


class Stopwatch:
    """How long the steps of a start took, in milliseconds."""

    def __init__(self) -> None:
        self.laps: dict[str, int] = {}
        self._last = time.monotonic()

    def lap(self, step: str) -> None:
        """End of `step`, and beginning of the next."""
        now = time.monotonic()
        self.laps[step] = round((now - self._last) * 1000)
        self._last = now


def machine_type(xml: str) -> str:
    """The machine type of a live domain."""
    from lxml import etree  # noqa: PLC0415 - only after a start or restart

    kind = etree.fromstring(xml).find("os/type")
    return str(kind.get("machine", "")) if kind is not None else ""
