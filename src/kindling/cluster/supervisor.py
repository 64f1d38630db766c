"""The supervisor: a small process that keeps the others running.

A child that ends is restarted, at first immediately and then with increasing delays. The environment of each
child names the instance, so that a new supervisor finds and adopts the children of one that was killed. On
SIGHUP it reloads the list of processes: it starts those of an added node, stops those of a stopped node, and
restarts those whose settings changed. A chore, such as the renewal of certificates, is a process that ends
and runs again a day later; what it changed is read then. This module imports nothing that the children need.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kindling.cluster.errors import SetupError
from kindling.cluster.processes import ProcessSpec

MARK = "KINDLING_PROCESS"
"""Environment variable of every child: ``INSTANCE/NAME``."""
_QUIET_SECONDS = 10.0
_MAX_PAUSE = 5.0
_STOP_SECONDS = 8.0
_LOG_BYTES = 20 * 1024 * 1024
CHORE_SECONDS = 24 * 3600.0
"""Between two runs of a chore."""


@dataclass
class _Child:
    spec: ProcessSpec
    pid: int = 0
    handle: int = -1
    started: float = 0.0
    failures: int = 0
    due: float = 0.0


class Supervisor:
    """Runs what `read_specs` gives for the instance `identifier`, with logs in `logs`, and daily `chores`."""

    def __init__(
        self,
        identifier: str,
        read_specs: Callable[[], Sequence[ProcessSpec]],
        logs: Path,
        chores: Sequence[ProcessSpec] = (),
        *,
        chore_seconds: float = CHORE_SECONDS,
        record: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        self._identifier = identifier
        self._read_specs = read_specs
        self._children: list[_Child] = []
        self._chore_seconds = chore_seconds
        first = time.monotonic() + chore_seconds
        self._chores = [_Child(chore, due=first) for chore in chores]
        self._logs = logs
        self._record = record
        self._stopping = False
        self._outdated = True
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> None:
        """Supervise until SIGTERM, then stop the children in reverse order."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        # Orphaned processes (shims of the runtime) become children of this process (PR_SET_CHILD_SUBREAPER)
        # and are reaped.
        signal.signal(signal.SIGCHLD, self._on_child)
        signal.signal(signal.SIGHUP, self._on_change)
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        while not self._stopping:
            if self._outdated:
                self._outdated = False
                self._sync_processes()
            self._start_due()
            self._wait()
        self._stop_all()

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._stopping = True
        self._wake()

    def _on_change(self, _number: int, _frame: object) -> None:
        self._outdated = True
        self._wake()

    def _on_child(self, _number: int, _frame: object) -> None:
        self._wake()

    def _wake(self) -> None:
        # A full pipe wakes the loop as well.
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_writer, b".")

    def _sync_processes(self) -> None:
        """Start the processes of the specs: adopt running ones, and stop those with outdated settings and
        those that are no longer wanted. Their names are recorded afterwards.

        Raises SetupError when the specs cannot be read and no process is supervised yet.
        """
        try:
            specs = self._read_specs()
        except SetupError as error:
            if not self._children:
                raise
            _say(f"the processes stay as they are, because their settings cannot be read: {error}")
            return
        known = {child.spec.name: child for child in self._children}
        self._children = [known.get(spec.name) or _Child(spec) for spec in specs]
        wanted = {spec.name for spec in specs}
        for child in reversed(known.values()):
            if child.pid and child.spec.name not in wanted:
                _say(f"stopping {child.spec.name} ({child.pid}), which is no longer wanted")
                stop(child.pid, child.handle)
                os.close(child.handle)
        running = find_children(self._identifier, specs)
        for child, spec in zip(self._children, specs, strict=True):
            child.spec = spec
            pid = running.get(spec.name)
            if pid is None:
                continue
            if not child.pid:
                self._hold(child, pid)
                _say(f"adopted {spec.name} ({pid})")
            if child.pid and not has_settings(child.pid, spec):
                _say(f"stopping {spec.name} ({child.pid}), whose settings have changed")
                # When it has ended, it is restarted like any other child, with the new settings.
                stop(child.pid, child.handle)
        try:
            self._record([spec.name for spec in specs])
        except OSError as error:
            _say(f"cannot write down which processes are wanted, so stopping a node will fail: {error}")

    def _start_due(self) -> None:
        now = time.monotonic()
        for child in (*self._children, *self._chores):
            if child.pid == 0 and child.due <= now:
                self._start(child)

    def _start(self, child: _Child) -> None:
        path = self._logs / f"{child.spec.name}.log"
        if path.exists() and path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
        environment = {**os.environ, **child.spec.environment}
        environment[MARK] = f"{self._identifier}/{child.spec.name}"
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        actions = [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
        try:
            pid = os.posix_spawnp(
                child.spec.command[0],
                list(child.spec.command),
                environment,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE),
            )
        except OSError as error:
            _say(f"cannot start {child.spec.name}: {error}")
            child.failures += 1
            child.due = time.monotonic() + pause(child.failures)
            return
        finally:
            os.close(log)
        self._hold(child, pid)

    def _hold(self, child: _Child, pid: int) -> None:
        try:
            child.handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        child.pid, child.started = pid, time.monotonic()

    def _wait(self) -> None:
        poller = select.poll()
        poller.register(self._wake_reader, select.POLLIN)
        watched = (*self._children, *self._chores)
        by_handle = {child.handle: child for child in watched if child.pid}
        for handle in by_handle:
            poller.register(handle, select.POLLIN)
        now = time.monotonic()
        due = [child.due - now for child in watched if not child.pid]
        events = poller.poll(max(10, int(min(due) * 1000)) if due else None)
        for descriptor, _ in events:
            if descriptor == self._wake_reader:
                os.read(self._wake_reader, 4096)
            child = by_handle.get(descriptor)
            if child is not None:
                self._ended(child)
        _reap()

    def _ended(self, child: _Child) -> None:
        lasted = time.monotonic() - child.started
        _say(f"{child.spec.name} ({child.pid}) ended after {lasted:.1f} s")
        os.close(child.handle)
        child.failures = 0 if lasted > _QUIET_SECONDS else child.failures + 1
        child.pid, child.handle = 0, -1
        if child in self._chores:
            child.due = time.monotonic() + self._chore_seconds
            self._outdated = True
            return
        child.due = time.monotonic() + pause(child.failures)

    def _stop_all(self) -> None:
        for child in (*self._chores, *reversed(self._children)):
            if child.pid:
                stop(child.pid, child.handle)
        _reap()


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def pause(failures: int) -> float:
    """The delay in seconds before the next start after `failures` quick exits in a row: none after the
    first.
    """
    return 0.0 if failures <= 1 else float(min(_MAX_PAUSE, 0.2 * 2 ** (failures - 2)))


def stop(pid: int, handle: int) -> None:
    """Send SIGTERM, then SIGKILL to processes that still run."""
    for number, seconds in ((signal.SIGTERM, _STOP_SECONDS), (signal.SIGKILL, _STOP_SECONDS)):
        try:
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        if poller.poll(int(seconds * 1000)):
            return
        _say(f"process {pid} did not end after signal {number}")


def find_children(identifier: str, wanted: Sequence[ProcessSpec]) -> dict[str, int]:
    """Running processes of an instance by name, whoever started them.

    Child processes of these (shims of the runtime) inherit the environment variable, so the command line is
    compared, too: only its end, because ``nsenter`` replaces itself by the program it starts. Any process can
    have such a variable and command line: processes of other users, and in other PID namespaces (pods), are
    ignored.
    """
    found: dict[str, int] = {}
    commands = {
        spec.name: ["\0".join(each).encode() + b"\0" for each in (spec.command, spec.earlier) if each]
        for spec in wanted
    }
    prefix = f"{MARK}={identifier}/".encode()
    own = _identity(Path("/proc/self/ns/pid"))
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid != os.geteuid() or _identity(entry / "ns/pid") != own:
                continue
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        for item in environment:
            name = item.removeprefix(prefix).decode() if item.startswith(prefix) else ""
            if command and any(each.endswith(command) for each in commands.get(name, ())):
                found.setdefault(name, int(entry.name))
    return found


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def has_settings(pid: int, spec: ProcessSpec) -> bool:
    """Whether a running process was started with the environment of `spec`."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return True  # The process is ending: its next start uses the new settings anyway.
    return all(f"{name}={value}".encode() in environment for name, value in spec.environment.items())


def outdated(identifier: str, specs: Sequence[ProcessSpec]) -> list[str]:
    """The names of running processes whose settings differ from `specs`."""
    running = find_children(identifier, specs)
    wanted = {spec.name: spec for spec in specs}
    return [name for name, pid in running.items() if not has_settings(pid, wanted[name])]


def _reap() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
