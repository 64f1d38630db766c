"""The launcher's main loop."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time

from virtplane.compute.launcher import dhcp, dhcp6
from virtplane.compute.launcher.control import ControlServer, leave_refusing
from virtplane.compute.launcher.daemonlog import DaemonLog
from virtplane.compute.launcher.libvirtd import LibvirtDaemon
from virtplane.compute.launcher.passt import PasstServer
from virtplane.compute.launcher.seriallog import SerialLog
from virtplane.compute.launcher.settings import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from virtplane.compute.launcher.settings import Settings

_RESTART_SECONDS = 1.0
_SHUTDOWN_REPEAT_SECONDS = 5.0
"""A guest that is still booting ignores the power button."""

_LONGEST_WAIT_SECONDS = 3600.0
_EXIT_CRASH = 1
_REPORT_SECONDS = 5.0
"""How long virt-handler has, after the guest ended during a termination, to read why."""


class Launcher:
    """The supervisor of one launcher pod; ``run`` returns the exit code."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._selector = selectors.DefaultSelector()
        self._control = ControlServer(settings, self._selector, self._handle, self._on_disconnect)
        self._log = DaemonLog()
        self._libvirt = LibvirtDaemon(settings, self._log.writer)
        self._passt = PasstServer(settings)
        self._leases: dict[str, tuple[socket.socket, dict[str, Any]]] = {}
        self._servers: dict[str, list[socket.socket]] = {}
        self._exit_code: int | None = None
        self._restart_at: float | None = None
        self._kill_at: float | None = None
        self._shutdown_at: float | None = None
        self._shutdown_pid: int | None = None
        """The ``virsh shutdown`` that runs while virt-handler is not connected."""
        self._guest_pid: int | None = None
        """The guest's QEMU. Read before it ends, when libvirt removes its pid file."""

    def run(self) -> int:
        """Run until virt-handler sends `exit`, or until the guest has ended after a termination signal."""
        self._prepare()
        self._control.open()
        while self._exit_code is None:
            timeout = self._next_timeout()
            for key, _ in self._selector.select(timeout):
                callback: Callable[[], None] = key.data
                callback()
            self._on_time()
        self._libvirt.terminate()
        self._log.collect()
        self._control.close()
        return self._exit_code

    def _prepare(self) -> None:
        wakeup, signalled = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(signalled)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self._selector.register(wakeup, selectors.EVENT_READ, lambda: self._on_signals(os.read(wakeup, 512)))
        folder = f"{self._settings.private_directory}/{self._settings.uid}"
        os.makedirs(folder, exist_ok=True)
        log = SerialLog(folder)
        self._selector.register(log.open(), selectors.EVENT_READ, log.collect)
        self._selector.register(self._log.reader, selectors.EVENT_READ, self._log.collect)

    def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        command = request["command"]
        if command == "start":
            self._libvirt.start()
        elif command == "dhcp":
            self._serve_lease(request["interface"], request["lease"])
        elif command == "end-dhcp":
            self._end_lease(request["interface"])
        elif command == "passt":
            self._passt.serve(request["cable"], request["arguments"])
        elif command == "pause-probes":
            self._pause_probes(paused=request["paused"] is True)
        elif command == "report-ping":
            self._control.send({"event": "ping-failed"})
        elif command == "exit":
            self._exit_code = int(request["code"])
        elif command != "ping":
            raise ValueError(f"unknown command {command!r}")
        return {
            "done": command,
            "started": self._libvirt.was_started,
            "libvirt": self._libvirt.pid,
            "terminating": self._kill_at is not None,
        }

    def _pause_probes(self, *, paused: bool) -> None:
        """Let probes by the guest's agent succeed whatever it answers, or count again."""
        path = self._settings.paused_probes
        if paused:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        elif os.path.lexists(path):
            os.unlink(path)

    def _serve_lease(self, interface: str, lease: dict[str, Any]) -> None:
        previous = self._leases.get(interface)
        if previous is not None:
            self._leases[interface] = (previous[0], lease)
            return
        server = dhcp.open_socket(interface)
        self._leases[interface] = (server, lease)
        self._servers[interface] = [server]
        self._selector.register(server, selectors.EVENT_READ, lambda: self._on_lease_request(interface))
        if lease.get("ipv6"):
            server6 = dhcp6.open_socket(interface)
            self._servers[interface].append(server6)
            self._selector.register(
                server6, selectors.EVENT_READ, lambda: self._on_ipv6_request(interface, server6)
            )

    def _end_lease(self, interface: str) -> None:
        """Stop serving on an interface that goes. Repeating it does nothing."""
        self._leases.pop(interface, None)
        for server in self._servers.pop(interface, ()):
            self._selector.unregister(server)
            server.close()

    def _on_lease_request(self, interface: str) -> None:
        """Answer one datagram. Neither malformed requests nor failed answers may end the launcher."""
        server, lease = self._leases[interface]
        try:
            reply = dhcp.answer(server.recv(dhcp.MAX_DATAGRAM), lease)
            if reply is not None:
                server.sendto(reply, ("255.255.255.255", dhcp.CLIENT_PORT))
        except OSError as error:
            _not_answered(interface, error)

    def _on_ipv6_request(self, interface: str, server: socket.socket) -> None:
        """The same for DHCPv6."""
        _, lease = self._leases[interface]
        try:
            request, peer = server.recvfrom(dhcp.MAX_DATAGRAM)
            reply = dhcp6.answer(request, lease["ipv6"]) if lease.get("ipv6") else None
            if reply is not None:
                server.sendto(reply, (peer[0], dhcp6.CLIENT_PORT, 0, peer[3]))
        except OSError as error:
            _not_answered(interface, error)

    def _on_signals(self, numbers: bytes) -> None:
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self._on_termination()
        if signal.SIGCHLD in numbers:
            self._reap()

    def _on_termination(self) -> None:
        if not self._libvirt.was_started:
            self._exit_code = 0
            return
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._settings.grace_period_seconds
        self._find_guest()
        if self._control.connected:
            self._control.send({"event": "terminating"})
        else:
            self._press_power_button()

    def _on_disconnect(self) -> None:
        if self._kill_at is not None:
            self._press_power_button()

    def _press_power_button(self) -> None:
        self._shutdown_at = None
        self._find_guest()
        if self._shutdown_pid is None:
            self._shutdown_pid = self._libvirt.shut_domain_down()

    def _find_guest(self) -> None:
        self._guest_pid = self._libvirt.guest_pid() or self._guest_pid

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._libvirt.pid:
                self._libvirt.reaped()
                self._restart_at = time.monotonic() + _RESTART_SECONDS
                self._control.send({"event": "libvirt-ended", "status": status})
            elif pid == self._shutdown_pid:
                self._shutdown_pid = None
                self._shutdown_at = time.monotonic() + _SHUTDOWN_REPEAT_SECONDS
            elif self._passt.reaped(pid):
                if status:
                    sys.stderr.write(f"virt-launcher: passt failed ({status}) and is started again\n")
            elif pid != self._guest_pid or self._kill_at is None:
                continue  # an orphaned child of a program next to the guest: virt-freezer, kubectl exec
            elif self._control.connected:
                self._kill_at = min(self._kill_at, time.monotonic() + _REPORT_SECONDS)
            else:
                # virt-handler is not connected, so it cannot send the exit command.
                self._exit_code = 0

    def _next_timeout(self) -> float | None:
        planned = (self._restart_at, self._kill_at, self._shutdown_at, self._passt.restart_at)
        moments = [moment for moment in planned if moment is not None]
        # Grace periods may be longer than selectors can wait.
        return min(max(0.0, min(moments) - time.monotonic()), _LONGEST_WAIT_SECONDS) if moments else None

    def _on_time(self) -> None:
        now = time.monotonic()
        if self._restart_at is not None and now >= self._restart_at:
            self._restart_at = None
            self._libvirt.start()
        if self._passt.restart_at is not None and now >= self._passt.restart_at:
            self._passt.start()
        if self._shutdown_at is not None and now >= self._shutdown_at:
            self._shutdown_at = None
            if not self._control.connected:
                self._press_power_button()
        if self._kill_at is not None and now >= self._kill_at:
            self._exit_code = 0


def _not_answered(interface: str, error: OSError) -> None:
    # The guest repeats its request: a link that is down or a full queue is temporary.
    sys.stderr.write(
        f"virt-launcher: a DHCP request on {interface} could not be answered: {error.strerror};"
        " the guest will repeat it\n"
    )


def main() -> int:
    """Console script ``virt-launcher``."""
    settings = parse(sys.argv[1:])
    code = _supervise(settings)
    if code and settings.stays_after_failure:
        _stay(settings)
    return code


def _supervise(settings: Settings) -> int:
    if settings.simulates_crash:
        sys.stderr.write("virt-launcher: ends at once, as its pod's instance asks (--simulate-crash)\n")
        return _EXIT_CRASH
    return Launcher(settings).run()


def _stay(settings: Settings) -> None:
    """Keep the container until its pod is deleted; for virt-handler the launcher has ended."""
    ends = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    leave_refusing(settings)
    sys.stderr.write(
        "virt-launcher: the guest has failed; the container stays until its pod is deleted,"
        " as the instance asks (--keep-after-failure)\n"
    )
    sys.stderr.flush()
    signal.sigwait(ends)


if __name__ == "__main__":
    sys.exit(main())
