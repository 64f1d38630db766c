"""The libvirt connection of one launcher. Blocking calls run in threads; events arrive on the loop.

Each connection has threads of its own, and one more for the guest agent: a guest whose agent does not answer
holds up neither other guests nor what is done to itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import libvirt
import libvirtaio

from virtplane.compute.handler.sockets import reachable

_Result = TypeVar("_Result")

_AGENT_SECONDS = 5
"""How long an agent may take to answer; libvirt would wait for ever."""

_STREAM_BYTES = 65536

_STATES = {
    libvirt.VIR_DOMAIN_NOSTATE: "NoState",
    libvirt.VIR_DOMAIN_RUNNING: "Running",
    libvirt.VIR_DOMAIN_BLOCKED: "Blocked",
    libvirt.VIR_DOMAIN_PAUSED: "Paused",
    libvirt.VIR_DOMAIN_SHUTDOWN: "ShuttingDown",
    libvirt.VIR_DOMAIN_SHUTOFF: "Shutoff",
    libvirt.VIR_DOMAIN_CRASHED: "Crashed",
    libvirt.VIR_DOMAIN_PMSUSPENDED: "PMSuspended",
}
_SHUTOFF_REASONS = {
    libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN: "Shutdown",
    libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED: "Destroyed",
    libvirt.VIR_DOMAIN_SHUTOFF_CRASHED: "Crashed",
    libvirt.VIR_DOMAIN_SHUTOFF_MIGRATED: "Migrated",
    libvirt.VIR_DOMAIN_SHUTOFF_SAVED: "Saved",
    # A guest whose process was killed from outside ends as "failed".
    libvirt.VIR_DOMAIN_SHUTOFF_FAILED: "Failed",
    libvirt.VIR_DOMAIN_SHUTOFF_FROM_SNAPSHOT: "FromSnapshot",
}
_PAUSED_REASONS = {
    libvirt.VIR_DOMAIN_PAUSED_USER: "Paused",
    libvirt.VIR_DOMAIN_PAUSED_MIGRATION: "Migration",
    libvirt.VIR_DOMAIN_PAUSED_IOERROR: "IOError",
    libvirt.VIR_DOMAIN_PAUSED_STARTING_UP: "StartingUp",
    libvirt.VIR_DOMAIN_PAUSED_CRASHED: "Crashed",
    libvirt.VIR_DOMAIN_PAUSED_POSTCOPY: "PostCopy",
    libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED: "PostcopyFailed",
}


@dataclass(frozen=True, slots=True)
class DomainState:
    """libvirt's state of a domain and why it is in it."""

    status: str
    reason: str = ""

    @property
    def is_active(self) -> bool:
        """True while the guest has a process."""
        return self.status not in ("Shutoff", "Crashed")


class HypervisorError(Exception):
    """A libvirt call failed. `code` is libvirt's error number."""

    def __init__(self, operation: str, error: libvirt.libvirtError) -> None:
        super().__init__(f"{operation} failed: {error.get_error_message() or error}")
        self.code = error.get_error_code()


def use_event_loop() -> None:
    """Deliver libvirt's events on the running loop; once per process, before any connection."""
    libvirtaio.virEventRegisterAsyncIOImpl(asyncio.get_running_loop())


class Hypervisor:
    """One connection to one launcher's libvirt. `on_change` is called on every event worth a look."""

    def __init__(self, connection: libvirt.virConnect, on_change: Callable[[], None]) -> None:
        self._connection = connection
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="libvirt")
        self._agent_thread = ThreadPoolExecutor(1, thread_name_prefix="guest-agent")
        self._on_change = on_change
        self._callbacks: list[int] = []
        self.agent_connected = False
        self.is_open = True

    @classmethod
    async def open(cls, path: Path, on_change: Callable[[], None]) -> Hypervisor:
        """Connect to the daemon behind the socket `path`. Raises HypervisorError."""
        try:
            with reachable(path) as address:
                connection = await _call(None, "open", libvirt.open, f"qemu+unix:///session?socket={address}")
        except FileNotFoundError as error:
            raise HypervisorError("open", libvirt.libvirtError(str(error))) from error
        self = cls(connection, on_change)
        connection.registerCloseCallback(self._closed, None)
        for event, callback in (
            (libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._lifecycle),
            (libvirt.VIR_DOMAIN_EVENT_ID_AGENT_LIFECYCLE, self._agent),
            (libvirt.VIR_DOMAIN_EVENT_ID_REBOOT, self._lifecycle),
        ):
            self._callbacks.append(
                await self._call("register", connection.domainEventRegisterAny, None, event, callback, None)
            )
        return self

    async def state(self, name: str) -> DomainState | None:
        """The domain's state, or None when no such domain is defined. Raises HypervisorError."""
        domain = await self._lookup(name)
        if domain is None:
            return None
        status, reason = await self._call("state", domain.state)
        reasons = {"Shutoff": _SHUTOFF_REASONS, "Paused": _PAUSED_REASONS}.get(_STATES[status], {})
        return DomainState(_STATES[status], reasons.get(reason, "Unknown"))

    async def start(self, xml: str, *, paused: bool) -> None:
        """Define the domain and start it. Raises HypervisorError."""
        domain = await self._call("define", self._connection.defineXML, xml)
        await self._call("start", domain.createWithFlags, libvirt.VIR_DOMAIN_START_PAUSED if paused else 0)

    async def description(self, name: str) -> str:
        """The live XML. Raises HypervisorError."""
        return str(await self._on(name, "describe", lambda domain: domain.XMLDesc(0)))

    async def suspend(self, name: str) -> None:
        """Stop the guest's processors."""
        await self._on(name, "pause", lambda domain: domain.suspend())

    async def resume(self, name: str) -> None:
        """Let the guest's processors run."""
        await self._on(name, "unpause", lambda domain: domain.resume())

    async def shutdown(self, name: str) -> None:
        """Ask the guest to power off; nothing happens when it has ended already."""
        await self._end(name, "shutdown", lambda domain: domain.shutdown())

    async def destroy(self, name: str) -> None:
        """Cut the power; nothing happens when the guest has ended already."""
        await self._end(
            name, "destroy", lambda domain: domain.destroyFlags(libvirt.VIR_DOMAIN_DESTROY_GRACEFUL)
        )

    async def reset(self, name: str) -> None:
        """Press the reset button."""
        await self._on(name, "reset", lambda domain: domain.reset(0))

    async def reboot(self, name: str, *, by_agent: bool) -> None:
        """Ask the guest to reboot, by its agent or by the ACPI button."""
        flag = libvirt.VIR_DOMAIN_REBOOT_GUEST_AGENT if by_agent else libvirt.VIR_DOMAIN_REBOOT_ACPI_POWER_BTN
        await self._on(name, "reboot", lambda domain: domain.reboot(flag))

    async def set_time(self, name: str, seconds: int) -> None:
        """Set the guest's clock by its agent (needed after a pause)."""
        await self._ask(
            name, "set time", lambda domain: domain.setTime({"seconds": seconds, "nseconds": 0}, 0)
        )

    async def freeze(self, name: str) -> None:
        """Quiesce the guest's file systems."""
        await self._ask(name, "freeze", lambda domain: domain.fsFreeze(None, 0))

    async def thaw(self, name: str) -> None:
        """End a freeze."""
        await self._ask(name, "unfreeze", lambda domain: domain.fsThaw(None, 0))

    async def screenshot(self, name: str) -> tuple[str, bytes]:
        """The MIME type and the bytes of a picture of the first display. Raises HypervisorError."""

        def take(domain: libvirt.virDomain) -> tuple[str, bytes]:
            stream = self._connection.newStream(0)
            try:
                kind = domain.screenshot(stream, 0, 0)
                pieces = []
                while piece := stream.recv(_STREAM_BYTES):
                    pieces.append(piece)
                stream.finish()
            except libvirt.libvirtError:
                stream.abort()
                raise
            return kind, b"".join(pieces)

        return await self._on(name, "screenshot", take)

    async def guest_info(self, name: str) -> dict[str, Any]:
        """What the guest agent says of system, host name, time zone, users and file systems."""
        info: dict[str, Any] = await self._ask(name, "guest info", lambda domain: domain.guestInfo(0, 0))
        return info

    async def guest_interfaces(self, name: str) -> dict[str, Any]:
        """The guest agent's view of the interfaces, by their name in the guest."""
        source = libvirt.VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT
        found: dict[str, Any] = await self._ask(
            name, "interfaces", lambda domain: domain.interfaceAddresses(source)
        )
        return found

    async def set_authorized_keys(self, name: str, user: str, keys: Sequence[str]) -> None:
        """Have the agent make `keys` all that `user` accepts. Raises HypervisorError."""
        await self._ask(name, "keys", lambda domain: domain.authorizedSSHKeysSet(user, list(keys), 0))

    async def set_password(self, name: str, user: str, password: str) -> None:
        """Have the agent set a user's password. Raises HypervisorError."""
        await self._ask(name, "password", lambda domain: domain.setUserPassword(user, password, 0))

    async def agent_command(self, name: str, command: str, timeout_seconds: int) -> str:
        """A raw guest agent command."""
        import libvirt_qemu  # noqa: PLC0415 - an optional part of the binding

        return str(
            await self._ask(
                name,
                "agent",
                lambda domain: libvirt_qemu.qemuAgentCommand(domain, command, timeout_seconds, 0),
            )
        )

    async def domain_capabilities(self, kind: str) -> str:
        """What domains of `kind` (``kvm``, ``qemu``) can have; libvirt probes QEMU for it."""
        arguments = (None, "x86_64", "q35", kind, 0)
        return str(await self._call("capabilities", self._connection.getDomainCapabilities, *arguments))

    async def host_capabilities(self) -> str:
        """What libvirt knows of the node itself."""
        return str(await self._call("host capabilities", self._connection.getCapabilities))

    async def expanded_cpu(self, kind: str, cpu: str) -> str:
        """The ``<cpu>`` element `cpu` with every feature that its model implies."""
        flags = libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES
        arguments = (None, "x86_64", "q35", kind, [cpu], flags)
        return str(await self._call("baseline", self._connection.baselineHypervisorCPU, *arguments))

    async def close(self) -> None:
        """Hang up; the daemon and its guest go on."""
        if not self.is_open:
            return
        self.is_open = False
        await asyncio.to_thread(self._hang_up)
        for threads in (self._threads, self._agent_thread):
            threads.shutdown(wait=False, cancel_futures=True)

    def _hang_up(self) -> None:
        try:
            self._connection.unregisterCloseCallback()
            for callback in self._callbacks:
                self._connection.domainEventDeregisterAny(callback)
            self._connection.close()
        except libvirt.libvirtError:
            # The daemon ended first; there is nothing left to hang up.
            self._callbacks.clear()

    async def _lookup(self, name: str) -> libvirt.virDomain | None:
        try:
            return await self._call("lookup", self._connection.lookupByName, name)
        except HypervisorError as error:
            if error.code == libvirt.VIR_ERR_NO_DOMAIN:
                return None
            raise

    async def _on(self, name: str, operation: str, call: Callable[[libvirt.virDomain], _Result]) -> _Result:
        domain = await self._call("lookup", self._connection.lookupByName, name)
        return await self._call(operation, call, domain)

    async def _end(self, name: str, operation: str, call: Callable[[libvirt.virDomain], object]) -> None:
        try:
            await self._on(name, operation, call)
        except HypervisorError as error:
            # The guest was faster.
            if error.code not in (libvirt.VIR_ERR_OPERATION_INVALID, libvirt.VIR_ERR_NO_DOMAIN):
                raise

    async def _ask(self, name: str, operation: str, call: Callable[[libvirt.virDomain], _Result]) -> _Result:
        """A call that the guest's agent has to answer."""
        domain = await self._call("lookup", self._connection.lookupByName, name)

        def ask() -> _Result:
            domain.agentSetResponseTimeout(_AGENT_SECONDS)
            return call(domain)

        return await _call(self._agent_thread, operation, ask)

    async def _call(self, operation: str, function: Callable[..., _Result], *arguments: object) -> _Result:
        return await _call(self._threads, operation, function, *arguments)

    def _lifecycle(self, *_: object) -> None:
        self._on_change()

    def _agent(self, _connection: object, _domain: object, state: int, _reason: int, _opaque: object) -> None:
        self.agent_connected = state == libvirt.VIR_CONNECT_DOMAIN_EVENT_AGENT_LIFECYCLE_STATE_CONNECTED
        self._on_change()

    def _closed(self, *_: object) -> None:
        self.is_open = False
        self._on_change()


async def _call(
    threads: ThreadPoolExecutor | None,
    operation: str,
    function: Callable[..., _Result],
    *arguments: object,
) -> _Result:
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, function, *arguments)
    except libvirt.libvirtError as error:
        raise HypervisorError(operation, error) from error
    except RuntimeError as error:
        # The connection, and its threads with it, were closed meanwhile.
        raise HypervisorError(operation, libvirt.libvirtError(str(error))) from error
