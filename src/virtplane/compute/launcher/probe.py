"""virt-probe: what kubelet runs in the launcher's container for a guest's `exec` and `guestAgentPing` probes.

Its command line is KubeVirt's. Exit codes: 0 healthy, 1 not healthy, 2 wrong arguments; for `exec` the
code with which the command ended in the guest.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import socket
import sys
import time

from virtplane.compute.launcher.settings import CONTROL_SOCKET, SHARE_DIRECTORY, options, paused_probes
from virtplane.compute.launcher.virsh import DEFAULT_SOCKET, Guest, GuestError

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_REPORT_SECONDS = 0.5
_POLLS = 10
"""How often, within the time that it has, a command in the guest is looked at."""

_SHOWN_BYTES = 4096
"""What a probe tells of a command's output: its end, which kubelet shows in an event."""


class Usage(Exception):
    """The command line is invalid."""


def split(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options by name, and the words after ``--``, which are the command in the guest."""
    if "--" not in arguments:
        return options(arguments), []
    end = arguments.index("--")
    return options(arguments[:end]), arguments[end + 1 :]


def ping(guest: Guest, control: str) -> int:
    """Whether the agent answers. A paused guest counts as healthy, since it cannot answer.

    A failure is reported through the launcher's socket `control`, too. Raises GuestError.
    """
    try:
        if not guest.is_still():
            guest.ask("guest-ping")
    except GuestError:
        report(control)
        raise
    return 0


def report(control: str) -> None:
    """Let virt-handler tell the guest's owner of the failed ping, unless the launcher is busy or gone."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as launcher, contextlib.suppress(OSError):
        launcher.settimeout(_REPORT_SECONDS)
        launcher.connect(control)
        launcher.sendall(b'{"id": 1, "command": "report-ping"}\n')


def execute(guest: Guest, seconds: float, command: str, arguments: list[str]) -> int:
    """Run a command in the guest and return its exit code. Raises GuestError.

    `seconds` is the time that the command has.
    """
    started = guest.ask("guest-exec", path=command, arg=arguments, **{"capture-output": True})
    pid = started.get("pid") if isinstance(started, dict) else None
    if not isinstance(pid, int):
        raise GuestError("the guest's agent did not say which process it started")
    while True:
        state = guest.ask("guest-exec-status", pid=pid)
        if not isinstance(state, dict):
            raise GuestError(f"the guest's agent did not say how process {pid} is")
        if state.get("exited"):
            return _ended(state)
        if guest.remaining_seconds() <= 0:
            raise GuestError(f"Timed out waiting for guest pid {pid} for command {command} to exit")
        time.sleep(min(seconds / _POLLS, max(0.0, guest.remaining_seconds())))


def _ended(state: dict[str, object]) -> int:
    for name, stream in (("out-data", sys.stdout), ("err-data", sys.stderr)):
        stream.write(_text(state.get(name)))
    code = state.get("exitcode")
    # A command that was ended by a signal has no exit code.
    return code & 0xFF or (1 if code else 0) if isinstance(code, int) else _EXIT_FAILED


def _text(data: object) -> str:
    if not isinstance(data, str):
        return ""
    try:
        return base64.b64decode(data)[-_SHOWN_BYTES:].decode(errors="replace")
    except binascii.Error:
        return ""


def run(arguments: list[str], virsh: str | None = None) -> int:
    """Run one probe. Raises GuestError, and Usage for invalid arguments."""
    found, rest = split(arguments)
    try:
        domain, seconds = found["domainName"], float(found.get("timeoutSeconds") or 1)
    except (KeyError, ValueError) as error:
        raise Usage(f"--domainName is missing or --timeoutSeconds is no number: {error}") from error
    libvirt = found.get("socket") or DEFAULT_SOCKET
    guest = Guest(domain, seconds, libvirt, virsh)
    if "guestAgentPing" in found:
        control = found.get("control") or f"{SHARE_DIRECTORY}/{CONTROL_SOCKET}"
        return 0 if os.path.lexists(paused_probes(libvirt)) else ping(guest, control)
    if not found.get("command"):
        raise Usage("neither --command nor --guestAgentPing is given")
    return execute(guest, seconds, found["command"], rest)


def main() -> int:
    """Console script ``virt-probe``."""
    try:
        return run(sys.argv[1:])
    except (GuestError, OSError) as error:
        sys.stderr.write(f"virt-probe: {error}\n")
        return _EXIT_FAILED
    except Usage as error:
        sys.stderr.write(f"virt-probe: {error}\n")
        return _EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
