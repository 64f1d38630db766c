"""A launcher with libvirt's real daemon, both without privileges."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.support.waiting import until

from virtplane.compute.handler.launchers.control import LauncherLink, LauncherNotReady, connect
from virtplane.compute.handler.libvirtd import calls

USER = pwd.getpwnam("nobody").pw_uid
"""libvirt starts domains only as a user that has a name."""


class Daemon:
    """A launcher with its libvirt daemon, which runs without privileges."""

    def __init__(self, folder: Path, link: LauncherLink, pid: int) -> None:
        self.folder = folder
        self.socket = folder / "run/libvirt/libvirt-sock"
        self.link = link
        self.pid = pid

    def send(self, number: int) -> None:
        os.kill(self.pid, number)


@asynccontextmanager
async def launched(*before: str) -> AsyncIterator[Daemon]:
    """A launcher whose daemon has started; the command begins with `before`."""
    programs = ("libvirtd", "qemu-system-x86_64", "setpriv")
    if os.geteuid() != 0 or any(shutil.which(name) is None for name in programs):
        pytest.skip(f"needs root, {', '.join(programs)}")
    calls.start_events()
    # The user has to reach it, which rules out pytest's own folders.
    with tempfile.TemporaryDirectory(prefix="virtplane-libvirt-") as made:
        folder = Path(made)
        os.chown(folder, USER, USER)
        user = [*before, "setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]
        command = [*user, str(Path(sys.executable).with_name("virt-launcher")), "--name", "vm", "--uid", "u"]
        command += ["--namespace", "ns", "--kubevirt-share-dir", f"{made}/share"]
        command += ["--private-dir", f"{made}/private", "--runtime-dir", f"{made}/run"]
        process = await asyncio.create_subprocess_exec(
            *command, stderr=None if before else asyncio.subprocess.DEVNULL
        )
        link = await listening(folder / "share/sockets/launcher-sock")
        started = Daemon(folder, link, int((await link.request("start"))["libvirt"]))
        try:
            yield started
            started.send(signal.SIGCONT)
            await link.request("exit", code=0)
            await link.close()
            await asyncio.wait_for(process.wait(), 10)
        finally:
            _kill_what_names(folder)


def _kill_what_names(folder: Path) -> None:
    """Kill whose command line names the folder: guests live on after libvirt, which in a pod its container
    ends.
    """
    for found in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(folder).encode() in found.read_bytes():
                os.kill(int(found.parent.name), signal.SIGKILL)


async def listening(path: Path) -> LauncherLink:
    """A connection to the launcher, once it has opened its socket."""

    def is_not_ready(error: Exception) -> bool:
        return isinstance(error, LauncherNotReady)

    link: LauncherLink = await until(
        lambda: connect(path, lambda _: None, lambda _: None), not_yet=is_not_ready
    )
    return link
