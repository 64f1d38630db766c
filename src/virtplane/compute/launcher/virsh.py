"""The guest and its agent as the small programs of the launcher's container see them: through ``virsh``.

virt-probe and virt-freezer run beside the guest, as the launcher's user, for as long as one question takes.
They ask the launcher's own libvirt daemon, so that they work while virt-handler is away. Whatever the guest
answers is read within bounds of size and time.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time

from virtplane.compute.launcher.settings import LIBVIRT_SOCKET, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_SOCKET = f"/var/run/{LIBVIRT_SOCKET}"

_MOST_BYTES = 11 << 20
"""More than libvirt passes on of an agent's answer (10 MiB)."""

_CONNECTED = "name='org.qemu.guest_agent.0' state='connected'"
"""How libvirt's XML shows that the agent's channel is open in the guest."""

_STILL = ("paused (user)", "paused (migrating)", "paused (starting up)")
"""States in which a guest does nothing because somebody wants it so."""


class GuestError(Exception):
    """The guest or its agent did not answer, or has refused a command."""


class Guest:
    """The guest of this container. All calls together must end within `seconds` after this object was
    made.
    """

    def __init__(
        self, domain: str, seconds: float, socket: str = DEFAULT_SOCKET, virsh: str | None = None
    ) -> None:
        """Take libvirt's name of the domain. Raises GuestError where virsh is not installed."""
        found = virsh or program("virsh")
        if found is None:
            raise GuestError("virsh is not installed in this image")
        self._command = [found, "-q", "-c", f"qemu+unix:///session?socket={socket}"]
        self._domain = domain
        self._deadline = time.monotonic() + seconds

    def is_still(self) -> bool:
        """Whether the guest is paused without an error."""
        return self.run("domstate", self._domain, "--reason").strip() in _STILL

    def has_agent(self) -> bool:
        """Whether the guest agent is connected."""
        return _CONNECTED in self.run("dumpxml", self._domain)

    def freeze(self) -> None:
        """Freeze the guest's file systems."""
        self.run("domfsfreeze", self._domain)

    def thaw(self) -> None:
        """Thaw the guest's file systems; no error if they are not frozen."""
        self.run("domfsthaw", self._domain)

    def thaw_command(self) -> list[str]:
        """The command line that thaws the guest, for a process that runs it later."""
        return [*self._command, "domfsthaw", self._domain]

    def ask(self, command: str, **arguments: Any) -> Any:
        """The answer of the guest agent to one of its commands. Raises GuestError."""
        request: dict[str, Any] = {"execute": command}
        if arguments:
            request["arguments"] = arguments
        seconds = max(1, round(self.remaining_seconds()))
        words = ["qemu-agent-command", self._domain, "--timeout", str(seconds), json.dumps(request)]
        try:
            return json.loads(self.run(*words))["return"]
        except (ValueError, KeyError, TypeError) as error:
            raise GuestError(f"the guest's agent gave no answer to {command}: {error}") from error

    def remaining_seconds(self) -> float:
        """The seconds that are left."""
        return self._deadline - time.monotonic()

    def run(self, *words: str) -> str:
        """The output of virsh; its errors go to standard error. Raises GuestError."""
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        with subprocess.Popen(
            [*self._command, *words], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            try:
                printed = self._read(process.stdout.fileno(), words[0])
                code = process.wait(max(0.0, self.remaining_seconds()))
            except subprocess.TimeoutExpired as error:
                raise GuestError(f"virsh {words[0]} took too long") from error
            finally:
                if process.poll() is None:
                    process.kill()
        if code != 0:
            raise GuestError(f"virsh {words[0]} ended with {code}")
        return printed.decode(errors="replace")

    def _read(self, descriptor: int, what: str) -> bytes:
        found = bytearray()
        while len(found) <= _MOST_BYTES:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, self.remaining_seconds()))
            if not ready:
                raise GuestError(f"virsh {what} took too long")
            piece = os.read(descriptor, 1 << 20)
            if not piece:
                return bytes(found)
            found += piece
        raise GuestError(f"virsh {what} printed more than {_MOST_BYTES} bytes")
