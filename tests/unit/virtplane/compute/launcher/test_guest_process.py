"""The launcher as the first process of its container, with libvirt's real daemon and a guest's real QEMU."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.waiting import until

from virtplane.compute.handler.launchers.control import LauncherLink, connect
from virtplane.compute.handler.libvirtd import calls
from virtplane.compute.handler.libvirtd.hypervisor import Hypervisor

pytestmark = [pytest.mark.host, pytest.mark.timeout(60)]

_NEVER = 3600
"""Seconds: longer than a test may take, so that nothing but what the test does ends the launcher."""

_PROGRAMS = ("libvirtd", "qemu-system-x86_64", "setpriv", "unshare", "nsenter", "virsh")

_DOMAIN = """
<domain type='qemu'><name>ns_vm</name><memory unit='MiB'>16</memory>
<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>
"""


async def _connect(folder: Path) -> LauncherLink:
    return await connect(folder / "share/sockets/launcher-sock", lambda _: None, lambda _: None)


@pytest.fixture
async def container() -> AsyncIterator[tuple[Path, asyncio.subprocess.Process]]:
    if os.geteuid() != 0 or any(shutil.which(name) is None for name in _PROGRAMS):
        pytest.skip(f"needs root, {', '.join(_PROGRAMS)}")
    calls.start_events()
    user = pwd.getpwnam("nobody").pw_uid
    # The user has to reach it, which rules out pytest's own folders.
    with tempfile.TemporaryDirectory(prefix="virtplane-launcher-") as made:
        folder = Path(made)
        os.chown(folder, user, user)
        command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command += ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"]
        command += [str(Path(sys.executable).with_name("virt-launcher")), "--name", "vm", "--uid", "u"]
        command += ["--namespace", "ns", "--kubevirt-share-dir", f"{made}/share"]
        command += ["--private-dir", f"{made}/private", "--runtime-dir", f"{made}/run"]
        command += ["--grace-period-seconds", str(_NEVER)]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        await until((folder / "share/sockets/launcher-sock").exists)
        yield folder, process
        if process.returncode is None:
            process.kill()
        await process.wait()


def _children(launcher: int) -> dict[str, int]:
    """Processes of the container whose parent is its first process, by name."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = stat.read_text().partition(" (")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        name, _, numbers = rest.rpartition(") ")
        if int(numbers.split()[1]) == launcher:
            found[name] = int(number)
    return found


async def _leave_an_orphan(launcher: int) -> None:
    """What ``kubectl exec`` leaves in the container: a process whose parent has ended."""
    enter = ["nsenter", f"--pid=/proc/{launcher}/ns/pid", "sh", "-c", "sleep 600 & exit 0"]
    process = await asyncio.create_subprocess_exec(*enter)
    assert await process.wait() == 0
    await until(lambda: "sleep" in _children(launcher))


async def test_the_guest_is_found_by_the_name_of_the_daemon_in_kubevirts_launchers(
    container: tuple[Path, asyncio.subprocess.Process],
) -> None:
    folder, _ = container
    link = await _connect(folder)
    await link.request("start")
    hypervisor = await Hypervisor.open(folder / "run/libvirt/libvirt-sock", lambda: None)
    await hypervisor.start(_DOMAIN, paused=True)
    uri = f"qemu+unix:///session?socket={folder}/run/libvirt/virtqemud-sock"
    asked = await asyncio.create_subprocess_exec(
        "virsh", "-q", "-c", uri, "list", "--name", stdout=asyncio.subprocess.PIPE
    )
    answer, _ = await asked.communicate()
    assert answer.split() == [b"ns_vm"]
    await hypervisor.close()
    await link.close()


async def test_only_qemus_end_ends_a_launcher_that_was_left_alone(
    container: tuple[Path, asyncio.subprocess.Process],
) -> None:
    folder, process = container
    link = await _connect(folder)
    launcher = link.process.pid
    await link.request("start")
    hypervisor = await Hypervisor.open(folder / "run/libvirt/libvirt-sock", lambda: None)
    await hypervisor.start(_DOMAIN, paused=True)
    await hypervisor.close()
    await link.close()
    await _leave_an_orphan(launcher)
    os.kill(launcher, signal.SIGTERM)
    os.kill(_children(launcher)["sleep"], signal.SIGKILL)
    await until(lambda: "sleep" not in _children(launcher))
    link = await _connect(folder)
    assert (await link.request("ping"))["terminating"] is True
    await link.close()
    os.kill(_children(launcher)["qemu-system-x86"], signal.SIGKILL)
    assert await process.wait() == 0
