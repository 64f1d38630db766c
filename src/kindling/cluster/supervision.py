"""Starting the supervisor, and telling a running one that the settings have changed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

from kindling import program
from kindling.cluster import instance as instances
from kindling.cluster import processes, supervisor
from kindling.cluster.errors import SetupError
from kindling.cluster.instance import Instance

_KILLED_SECONDS = 10
_KEPT_VARIABLES = ("PATH", "LANG", "TZ", "HOME", "PYTHONPATH", program.VARIABLE)


def run_processes(instance: Instance) -> None:
    """Have the supervisor, started now if there is none, run exactly the processes of the instance."""
    if not _reload_supervisor(instance):
        _launch_supervisor(instance)


def supervisor_pid(instance: Instance) -> int:
    """The process ID of the running supervisor; 0 if none runs."""
    try:
        pid = int((instance.state / "supervisor.pid").read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ValueError, ProcessLookupError):
        return 0
    return pid if b"supervise" in command and str(instance.state).encode() in command else 0


def _reload_supervisor(instance: Instance) -> bool:
    """Let the running supervisor reload its process list; returns False if none runs.

    A supervisor with outdated code is stopped: the next one adopts its processes and replaces outdated ones.
    """
    pid = supervisor_pid(instance)
    if not pid:
        return False
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # With the pidfd open, the process ID cannot be reused by another process.
        if supervisor_pid(instance) != pid:
            return False
        is_current = supervisor.has_settings(pid, processes.supervisor(instance))
        # SIGTERM would make it stop its children, too.
        signal.pidfd_send_signal(handle, signal.SIGHUP if is_current else signal.SIGKILL)
        if not is_current:
            _wait_end(handle, "the supervisor of another version")
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return is_current


def _wait_end(handle: int, what: str) -> None:
    """Wait until a killed process has ended. Raises SetupError."""
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    if not poller.poll(_KILLED_SECONDS * 1000):
        raise SetupError(f"ending {what}", f"it has not ended {_KILLED_SECONDS} s after it was killed")


def _launch_supervisor(instance: Instance) -> None:
    log = (instance.logs / "supervisor.log").open("ab")
    spec = processes.supervisor(instance)
    # SIGHUP is ignored until the supervisor has installed its handler: a concurrent `up` may send it at once.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with log:
            launched = subprocess.Popen(
                list(spec.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                env={**_clean_environment(), **spec.environment},
            )
    finally:
        signal.signal(signal.SIGHUP, before)
    instances.write_atomically(instance.state / "supervisor.pid", str(launched.pid).encode())


def _clean_environment() -> dict[str, str]:
    """The environment of the long-running processes: of the caller's, only the variables that programs
    need.
    """
    kept = {key: value for key, value in os.environ.items() if key in _KEPT_VARIABLES}
    # Proxy variables are kept: images may have to be pulled through a proxy.
    kept |= {key: value for key, value in os.environ.items() if key.lower().endswith("_proxy")}
    return kept | {"PYTHONDONTWRITEBYTECODE": "1", "MALLOC_ARENA_MAX": "2"}
