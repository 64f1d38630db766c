"""The node's warm copy of what libvirt finds out about QEMU.

libvirt's first look at a QEMU takes seconds; a launcher that finds the answers starts its guest at once. The
copy is made by a launcher of our own, with the same programs and the same user as the real ones, and belongs
to exactly these programs: after an update a new copy is made.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import tempfile
from pathlib import Path

from lxml import etree

from virtplane.compute.handler.hypervisor import Hypervisor, HypervisorError
from virtplane.compute.handler.launcher import LauncherGone, LauncherNotReady, connect
from virtplane.compute.handler.settings import QEMU_USER
from virtplane.programs import own_program

logger = logging.getLogger(__name__)

_PROGRAMS = ("qemu-system-x86_64", "virtqemud", "libvirtd")
_START_SECONDS = 10.0
_POLL_SECONDS = 0.02


def location(folder: Path) -> Path:
    """Where the copy for the installed programs is, below `folder`."""
    fingerprint = hashlib.sha256()
    for name in _PROGRAMS:
        path = shutil.which(name)
        if path:
            status = os.stat(path)  # noqa: PTH116 - the time of change is what libvirt looks at too
            fingerprint.update(f"{path} {status.st_ctime_ns} {status.st_size}\n".encode())
    return folder / fingerprint.hexdigest()[:16]


async def warm(folder: Path) -> None:
    """Make the copy unless it is there. A failure is logged: launchers then find out for themselves."""
    target = location(folder)
    if target.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="warm-", dir=folder, ignore_cleanup_errors=True) as work:
        try:
            await _probe(Path(work))
            found = Path(work) / "run/libvirt/cache/libvirt"
            fresh = Path(work) / "found"
            await asyncio.to_thread(shutil.copytree, found, fresh)
            fresh.rename(target)
        except (HypervisorError, LauncherGone, LauncherNotReady, OSError) as error:
            logger.warning("QEMU's capabilities could not be prepared", extra={"err": str(error)})


def machine_types(folder: Path) -> list[str]:
    """The machine types of the copy below `folder`, aliases included; none where there is no copy."""
    names: set[str] = set()
    for path in location(folder).glob("qemu/**/*.xml"):
        for machine in etree.parse(path).iter("machine"):
            names.update(filter(None, (machine.get("name"), machine.get("alias"))))
    return sorted(names)


async def _probe(work: Path) -> None:
    os.chown(work, QEMU_USER, QEMU_USER)
    work.chmod(0o711)
    work.parent.chmod(0o711)
    user = str(QEMU_USER)
    command = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
    command += [own_program("virt-launcher"), "--name", "warm", "--uid", "warm"]
    command += ["--namespace", "warm", "--kubevirt-share-dir", str(work / "share")]
    command += ["--private-dir", str(work / "private"), "--runtime-dir", str(work / "run")]
    process = await asyncio.create_subprocess_exec(*command)
    try:
        await _ask(work)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _ask(work: Path) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_SECONDS
    while True:
        try:
            link = await connect(work / "share/sockets/launcher-sock", lambda _: None, lambda: None)
            break
        except LauncherNotReady:
            # A file's appearance in a folder that does not exist yet has no event worth its price.
            if loop.time() > deadline:
                raise
            await asyncio.sleep(_POLL_SECONDS)
    answer = await link.request("start")
    hypervisor = await Hypervisor.open(work / "run/libvirt/libvirt-sock", lambda: None)
    try:
        await hypervisor.domain_capabilities("qemu")
    finally:
        await hypervisor.close()
        os.kill(int(answer["libvirt"]), 15)
        await link.close()
