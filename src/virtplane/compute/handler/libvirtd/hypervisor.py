"""What virt-handler asks of the libvirt of one launcher: its guest's domain, and the guest's agent."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import libvirt

from virtplane.compute.domain.xml import ALIAS_PREFIX
from virtplane.compute.handler.libvirtd import agentanswers
from virtplane.compute.handler.libvirtd.calls import (
    LONG_CALL_SECONDS,
    DomainState,
    HypervisorError,
    domain_state,
)
from virtplane.compute.handler.libvirtd.daemonconnection import AGENT_SECONDS, DaemonConnection
from virtplane.compute.handler.libvirtd.figures import GuestFigures
from virtplane.compute.handler.libvirtd.releases import Releases

_LIVE = libvirt.VIR_DOMAIN_AFFECT_LIVE
"""A domain is started once; each later guest has another pod, and another definition."""
_PLUG_SECONDS = LONG_CALL_SECONDS
"""A drive's tray is opened by the guest, and QEMU opens the disk before it answers."""

_DUMP_SECONDS = 24 * 3600.0
"""A daemon that is gone is noticed by its silence, long before."""

_LOCKED = re.compile(r'"id":"ua-([^"]{1,253})".*Failed to get .{0,40}lock', re.DOTALL)
"""What QEMU says of a file that another QEMU has open; the id is the alias of the disk."""

IS_LEAVING = "in the process of unplug"
"""What QEMU says of a device that the guest was asked for before."""
_HAS_LEFT = "no device found with alias"

_MOST_VCPUS = 4096
"""QEMU's machines have no more; a daemon may say so."""
_DIRTY_RATE_SECONDS = 1
_STREAM_BYTES = 65536
SCREENSHOT_BYTES = 32 << 20
"""A picture of 3840 by 2160 points has 25 MB."""
"""More than the largest display of any device that guests can have."""

Defined = Callable[[str], Awaitable[None]]
"""Gets the XML of a domain that is defined and does not run yet."""


class Hypervisor:
    """The domains of one launcher's libvirt, by their names; `DaemonConnection` makes the calls."""

    def __init__(self, daemon: DaemonConnection) -> None:
        self.agent_connected = False
        self.shape_changed = False
        """Whether the guest's memory has changed since somebody reset this."""
        self.has_panicked = False
        """Whether the guest's kernel has said that it crashed since somebody reset this."""
        self._daemon = daemon
        self._dump_slot = asyncio.Semaphore(1)
        self._releases = Releases()

    @classmethod
    async def open(cls, path: Path, on_change: Callable[[], None]) -> Hypervisor:
        """Connect to the daemon behind the socket `path`; `on_change` is called on every relevant event.

        Raises HypervisorError.
        """
        self = cls(await DaemonConnection.open(path, on_change))
        try:
            await self._watch()
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def is_open(self) -> bool:
        """Whether the daemon may still answer."""
        return self._daemon.is_open

    def give_up(self) -> None:
        """Close the connection: pending calls fail."""
        self._daemon.give_up()

    async def close(self) -> None:
        """Close the connection; daemon and guest keep running."""
        await self._daemon.close()

    async def _watch(self) -> None:
        for event, callback in (
            (libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_lifecycle),
            (libvirt.VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE, self._on_agent),
            (libvirt.VIR_DOMAIN_EVENT_ID_REBOOT, self._on_event),
            (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, self._on_release),
            (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED, self._on_release),
            (libvirt.VIR_DOMAIN_EVENT_ID_MEMORY_DEVICE_SIZE_CHANGE, self._on_memory),
        ):
            await self._daemon.watch(event, callback)

    def _on_event(self, *_: object) -> None:
        """Runs in libvirt's event thread, as do the other callbacks."""
        self._daemon.announce()

    def _on_release(self, _connection: object, _domain: object, alias: str, _opaque: object) -> None:
        self._releases.end(alias)
        self._daemon.announce()

    def _on_lifecycle(
        self, _connection: object, _domain: object, event: int, _detail: int, _opaque: object
    ) -> None:
        # The state tells less: it is the same when QEMU is killed.
        if event == libvirt.VIR_DOMAIN_EVENT_CRASHED:
            self.has_panicked = True
        self._daemon.announce()

    def _on_agent(
        self, _connection: object, _domain: object, state: int, _reason: int, _opaque: object
    ) -> None:
        self.agent_connected = state == libvirt.VIR_CONNECT_DOMAIN_EVENT_AGENT_LIFECYCLE_STATE_CONNECTED
        self._daemon.announce()

    def _on_memory(self, *_: object) -> None:
        self.shape_changed = True
        self._daemon.announce()

    async def state(self, name: str) -> DomainState | None:
        """The domain's state, or None when no such domain is defined. Raises HypervisorError."""
        domain = await self._lookup(name)
        if domain is None:
            return None
        status, reason = await self._daemon.call("state", domain.state)
        return domain_state(status, reason)

    async def start(self, xml: str, *, paused: bool, defined: Defined | None = None) -> None:
        """Define the domain and start it. Raises HypervisorError.

        In between, `defined` gets the XML that libvirt has completed; what it raises is raised.
        """
        flags = libvirt.VIR_DOMAIN_START_PAUSED if paused else 0
        domain = await self._daemon.call(
            "define", self._daemon.libvirt.defineXML, xml, seconds=LONG_CALL_SECONDS
        )
        if defined is not None:
            await defined(str(await self._daemon.call("describe", domain.XMLDesc, 0)))
        try:
            await self._daemon.call("start", domain.createWithFlags, flags, seconds=LONG_CALL_SECONDS)
        except HypervisorError as error:
            if found := _LOCKED.search(error.why):
                text = f"another guest uses disk {found[1]}, which is not shareable: stop that guest first"
                raise HypervisorError("start", text, error.code) from error
            raise

    async def description(self, name: str) -> str:
        """The XML of the running domain. Raises HypervisorError."""
        return str(await self._daemon.on(name, "describe", lambda domain: domain.XMLDesc(0)))

    async def attach_device(self, name: str, xml: str) -> None:
        """Add a device to the running guest. Raises HypervisorError."""
        await self._daemon.on(
            name, "attach device", lambda domain: domain.attachDeviceFlags(xml, _LIVE), _PLUG_SECONDS
        )

    async def detach_device(self, name: str, alias: str) -> bool:
        """Ask the guest to release a device; an event comes when it has. Raises HypervisorError.

        False where it was asked a moment ago (`Releases`): then nothing is done.
        """
        if self._releases.is_open(alias):
            return False
        with self._releases.asking(alias):
            await self._daemon.on(
                name, "detach device", lambda domain: domain.detachDeviceAlias(alias, _LIVE)
            )
        return True

    async def update_device(self, name: str, xml: str) -> None:
        """Change a device of the running guest. Raises HypervisorError."""
        await self._daemon.on(
            name, "update device", lambda domain: domain.updateDeviceFlags(xml, _LIVE), _PLUG_SECONDS
        )

    async def detach_interface(self, name: str, interface: str) -> None:
        """Ask the running guest to let an interface go, which may take a while. Raises HypervisorError."""
        try:
            await self.detach_device(name, f"{ALIAS_PREFIX}{interface}")
        except HypervisorError as error:
            if IS_LEAVING not in error.why and _HAS_LEFT not in error.why:
                raise

    async def suspend(self, name: str) -> None:
        """Pause the guest's CPUs."""
        await self._daemon.on(name, "pause", lambda domain: domain.suspend())

    async def resume(self, name: str) -> None:
        """Resume the guest's CPUs."""
        await self._daemon.on(name, "unpause", lambda domain: domain.resume())

    async def shutdown(self, name: str) -> None:
        """Ask the guest to power off; no error if it has ended already."""
        await self._end(name, "shutdown", lambda domain: domain.shutdown())

    async def destroy(self, name: str) -> None:
        """Stop the guest immediately; no error if it has ended already."""
        await self._end(
            name, "destroy", lambda domain: domain.destroyFlags(libvirt.VIR_DOMAIN_DESTROY_GRACEFUL)
        )

    async def reset(self, name: str) -> None:
        """Reset the guest."""
        await self._daemon.on(name, "reset", lambda domain: domain.reset(0))

    async def reboot(self, name: str, *, by_agent: bool) -> None:
        """Ask the guest to reboot, through its agent or ACPI."""
        flag = libvirt.VIR_DOMAIN_REBOOT_GUEST_AGENT if by_agent else libvirt.VIR_DOMAIN_REBOOT_ACPI_POWER_BTN
        await self._daemon.on(name, "reboot", lambda domain: domain.reboot(flag))

    async def set_time(self, name: str, seconds: int) -> None:
        """Set the guest's clock through its agent (needed after a pause)."""
        await self._daemon.ask(
            name, "set time", lambda domain: domain.setTime({"seconds": seconds, "nseconds": 0}, 0)
        )

    async def freeze_state(self, name: str) -> str:
        """Whether the guest's file systems are frozen or thawed; empty where its agent cannot tell.

        Raises HypervisorError when the agent does not answer.
        """
        try:
            answer = await self.agent_command(name, '{"execute":"guest-fsfreeze-status"}', AGENT_SECONDS)
        except HypervisorError as error:
            if error.code == libvirt.VIR_ERR_AGENT_UNRESPONSIVE:
                raise
            return ""
        return agentanswers.freeze_state(answer)

    async def freeze(self, name: str) -> None:
        """Freeze the guest's file systems."""
        await self._daemon.ask(name, "freeze", lambda domain: domain.fsFreeze(None, 0))

    async def thaw(self, name: str) -> None:
        """Thaw the guest's file systems."""
        await self._daemon.ask(name, "unfreeze", lambda domain: domain.fsThaw(None, 0))

    async def screenshot(self, name: str) -> tuple[str, bytes | bytearray]:
        """A screenshot of the first display: MIME type and bytes. Raises HypervisorError."""

        def take(domain: libvirt.virDomain) -> tuple[str, bytearray]:
            stream = self._daemon.libvirt.newStream(0)
            try:
                kind = domain.screenshot(stream, 0, 0)
                picture = bytearray()
                while piece := stream.recv(_STREAM_BYTES):
                    picture += piece
                    if len(picture) > SCREENSHOT_BYTES:
                        raise HypervisorError("screenshot", f"more than {SCREENSHOT_BYTES} bytes")
                stream.finish()
            except (libvirt.libvirtError, HypervisorError):
                with contextlib.suppress(libvirt.libvirtError):
                    stream.abort()
                raise
            return kind, picture

        return await self._daemon.on(name, "screenshot", take, LONG_CALL_SECONDS)

    async def dump_memory(self, name: str, path: str) -> None:
        """Write the guest's memory into a file of the launcher, in ELF. Raises HypervisorError.

        It takes as long as the storage needs, and the guest stands still meanwhile.
        """
        domain = await self._daemon.call("lookup", self._daemon.libvirt.lookupByName, name)
        how = (libvirt.VIR_DOMAIN_CORE_DUMP_FORMAT_RAW, libvirt.VIR_DUMP_MEMORY_ONLY)
        dump, slot = domain.coreDumpWithFormat, self._dump_slot
        await self._daemon.call("dump memory", dump, path, *how, seconds=_DUMP_SECONDS, slots=slot)

    async def has_job(self, name: str) -> bool:
        """Whether libvirt works on the domain, as while it dumps memory. Raises HypervisorError."""
        found = await self._daemon.on(name, "job", lambda domain: domain.jobInfo())
        return bool(found[0] != libvirt.VIR_DOMAIN_JOB_NONE)

    async def figures(self, name: str) -> GuestFigures:
        """The processor time, size and hypervisor of a running guest. Raises HypervisorError."""

        def read(domain: libvirt.virDomain) -> GuestFigures:
            _, _, memory, cpus, _ = domain.info()
            # Not domain.vcpus(): it makes a list of as many processors as the daemon says that the node has.
            told = self._daemon.libvirt.domainListGetStats([domain], libvirt.VIR_DOMAIN_STATS_VCPU)
            counted = told[0][1] if told else {}
            times = (counted.get(f"vcpu.{number}.time") for number in range(min(cpus, _MOST_VCPUS)))
            spent = sum(time for time in times if isinstance(time, int))
            version = self._daemon.libvirt.getVersion()
            text = f"qemu-{version // 1000000}.{version // 1000 % 1000}.{version % 1000}"
            return GuestFigures(spent, cpus, memory, text)

        return await self._daemon.on(name, "figures", read)

    async def statistics(self, name: str) -> dict[str, Any]:
        """What libvirt counts of the domain, by libvirt's names. Raises HypervisorError.

        How fast its memory changes is measured after each time, and told the next.
        """
        wanted = (
            libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
            | libvirt.VIR_DOMAIN_STATS_BALLOON
            | libvirt.VIR_DOMAIN_STATS_VCPU
            | libvirt.VIR_DOMAIN_STATS_INTERFACE
            | libvirt.VIR_DOMAIN_STATS_BLOCK
            | libvirt.VIR_DOMAIN_STATS_DIRTYRATE
        )

        def read(domain: libvirt.virDomain) -> dict[str, Any]:
            found = self._daemon.libvirt.domainListGetStats([domain], wanted)
            # For the next time: QEMU looks at samples of the memory, and again after a second.
            with contextlib.suppress(libvirt.libvirtError):
                domain.startDirtyRateCalc(_DIRTY_RATE_SECONDS, 0)
            return dict(found[0][1]) if found else {}

        return await self._daemon.on(name, "statistics", read)

    async def disk_capacity(self, name: str, path: str) -> int:
        """The bytes that the guest sees of the disk whose source is `path`. Raises HypervisorError."""
        capacity, _, _ = await self._daemon.on(name, "disk size", lambda domain: domain.blockInfo(path))
        return int(capacity)

    async def resize_disk(self, name: str, path: str, size: int) -> None:
        """Let the guest see the disk whose source is `path` with `size` bytes. Raises HypervisorError."""
        flags = libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES
        await self._daemon.on(name, "resize disk", lambda domain: domain.blockResize(path, size, flags))

    async def set_vcpus(self, name: str, count: int) -> None:
        """Plug CPUs into the running guest until it has `count`. Raises HypervisorError."""
        flags = libvirt.VIR_DOMAIN_AFFECT_LIVE
        await self._daemon.on(
            name, "plug CPUs", lambda domain: domain.setVcpusFlags(count, flags), LONG_CALL_SECONDS
        )

    async def disk_errors(self, name: str) -> dict[str, bool]:
        """The targets (``vda``) of the disks whose I/O failed, each with whether there was no space for it.

        Raises HypervisorError.
        """
        found = await self._daemon.on(name, "disk errors", lambda domain: domain.diskErrors())
        return {target: code == libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE for target, code in found.items()}

    async def guest_info(self, name: str) -> dict[str, Any]:
        """System, host name, time zone and users, from the guest agent."""
        info: dict[str, Any] = await self._daemon.ask(
            name, "guest info", lambda domain: domain.guestInfo(0, 0)
        )
        return info

    async def guest_interfaces(self, name: str) -> dict[str, Any]:
        """The interfaces from the guest agent, by their name in the guest."""
        source = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT
        found: dict[str, Any] = await self._daemon.ask(
            name, "interfaces", lambda domain: domain.interfaceAddresses(source)
        )
        return found

    async def set_authorized_keys(self, name: str, user: str, keys: Sequence[str]) -> None:
        """Let the agent replace the authorized keys of `user`. Raises HypervisorError."""
        await self._daemon.ask(name, "keys", lambda domain: domain.authorizedSSHKeysSet(user, list(keys), 0))

    async def set_password(self, name: str, user: str, password: str) -> None:
        """Let the agent set a user's password. Raises HypervisorError."""
        await self._daemon.ask(name, "password", lambda domain: domain.setUserPassword(user, password, 0))

    async def agent_command(self, name: str, command: str, timeout_seconds: int) -> str:
        """Send a raw command to the guest agent."""
        import libvirt_qemu  # noqa: PLC0415 - an optional part of the binding

        return str(
            await self._daemon.ask(
                name,
                "agent",
                lambda domain: libvirt_qemu.qemuAgentCommand(domain, command, timeout_seconds, 0),
            )
        )

    async def agent_about(self, name: str) -> str:
        """What the agent says of itself: its version and commands. Raises HypervisorError."""
        return await self.agent_command(name, '{"execute":"guest-info"}', AGENT_SECONDS)

    async def agent_mounts(self, name: str) -> str:
        """What the agent says of the mounted file systems. Raises HypervisorError."""
        return await self.agent_command(name, '{"execute":"guest-get-fsinfo"}', AGENT_SECONDS)

    async def _lookup(self, name: str) -> libvirt.virDomain | None:
        try:
            return await self._daemon.call("lookup", self._daemon.libvirt.lookupByName, name)
        except HypervisorError as error:
            if error.code == libvirt.VIR_ERR_NO_DOMAIN:
                return None
            raise

    async def _end(self, name: str, operation: str, call: Callable[[libvirt.virDomain], object]) -> None:
        try:
            await self._daemon.on(name, operation, call, LONG_CALL_SECONDS)
        except HypervisorError as error:
            # The guest has ended by itself.
            if error.code not in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN):
                raise
