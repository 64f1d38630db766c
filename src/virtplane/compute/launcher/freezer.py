"""virt-freezer: the program that backup tools run in the launcher's container before and after a backup
(Velero's hooks).

Its command line is KubeVirt's. A guest without a connected agent, or one that is paused, is not frozen,
because its file systems cannot be quiesced or do not change, and the backup continues. A freeze ends by
itself after ``--unfreezeTimeoutSeconds`` (300 where absent, 0 never). Exit codes: 0 done, 1 failed, 2 wrong
arguments.
"""

from __future__ import annotations

import os
import sys

from virtplane.compute.launcher.settings import options
from virtplane.compute.launcher.virsh import DEFAULT_SOCKET, Guest, GuestError

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_UNFREEZE_SECONDS = 300
_ANSWER_SECONDS = 50.0
"""Velero gives the hook a minute."""

_STATE = "/var/run/kubevirt-private/freeze"
"""Names the freeze that is in force: a timer of an earlier one leaves a later one alone."""

_TIMER = 'sleep "$1"; [ "$(cat "$2")" = "$3" ] || exit 0; rm -f "$2"; shift 3; exec "$@"'


class Usage(Exception):
    """The command line is invalid."""


def freeze(guest: Guest, seconds: int, state: str = _STATE) -> None:
    """Freeze the guest's file systems; they are thawed after `seconds` at the latest (0: no limit)."""
    if guest.is_still():
        sys.stderr.write("virt-freezer: the guest is paused: nothing to freeze\n")
        return
    _forget(state)
    if seconds:
        # Started before the freeze, so that the guest is thawed even if this process is killed.
        _thaw_later(guest, seconds, state)
    if guest.ask("guest-fsfreeze-status") != "frozen":
        guest.freeze()


def unfreeze(guest: Guest, state: str = _STATE) -> None:
    """Thaw the guest's file systems."""
    _forget(state)
    guest.thaw()


def _forget(state: str) -> None:
    if os.path.lexists(state):
        os.unlink(state)


def _thaw_later(guest: Guest, seconds: int, state: str) -> None:
    """Start a process that thaws later, unless the guest was frozen or thawed again in between."""
    token = os.urandom(8).hex()
    descriptor = os.open(state, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="ascii") as target:
        target.write(token)
    command = ["/bin/sh", "-c", _TIMER, "unfreeze", str(seconds), state, token, *guest.thaw_command()]
    nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)]
    os.posix_spawn(command[0], command, dict(os.environ), file_actions=nowhere, setsid=True)


def run(arguments: list[str], virsh: str | None = None, state: str = _STATE) -> None:
    """Freeze or thaw. Raises GuestError, and Usage for invalid arguments."""
    found = options(arguments)
    wanted = [name for name in ("freeze", "unfreeze") if found.get(name, "false") in ("", "true")]
    if len(wanted) != 1 or not found.get("name") or not found.get("namespace"):
        raise Usage("--name, --namespace and one of --freeze and --unfreeze are needed")
    try:
        seconds = int(found.get("unfreezeTimeoutSeconds") or _UNFREEZE_SECONDS)
    except ValueError as error:
        raise Usage(f"--unfreezeTimeoutSeconds is no number: {error}") from error
    domain = f"{found['namespace']}_{found['name']}"
    guest = Guest(domain, _ANSWER_SECONDS, found.get("socket") or DEFAULT_SOCKET, virsh)
    if not guest.has_agent():
        sys.stderr.write("virt-freezer: no guest agent is connected: the guest is left as it is\n")
    elif wanted == ["freeze"]:
        freeze(guest, max(0, seconds), state)
    else:
        unfreeze(guest, state)


def main() -> int:
    """Console script ``virt-freezer``."""
    try:
        run(sys.argv[1:])
    except (GuestError, OSError) as error:
        sys.stderr.write(f"virt-freezer: {error}\n")
        return _EXIT_FAILED
    except Usage as error:
        sys.stderr.write(f"virt-freezer: {error}\n")
        return _EXIT_USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
