"""The node's copy of the QEMU capabilities that libvirt caches.

libvirt's first probe of QEMU takes seconds; with a copy of the results, a launcher starts its guest at once.
virt-handler makes the copy with a launcher of its own, which has the same programs and user as those of
guests. The copy is valid for exactly these programs: after an update a new one is made. Next to it are
libvirt's domain capabilities, from which the node's labels are made; they also depend on kernel and
processor.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import tempfile
from pathlib import Path

import libvirt
from lxml import etree

from virtplane.api.launcherpods import QEMU_USER
from virtplane.compute.handler.launchers.control import (
    LauncherBroken,
    LauncherGone,
    LauncherNotReady,
    connect,
)
from virtplane.compute.handler.libvirtd.calls import LONG_CALL_SECONDS, HypervisorError
from virtplane.compute.handler.libvirtd.daemonconnection import DaemonConnection
from virtplane.compute.handler.node import processor
from virtplane.compute.handler.node.processor import Processor
from virtplane.programs import own_program

logger = logging.getLogger(__name__)

_PROGRAMS = ("qemu-system-x86_64", "virtqemud", "libvirtd")
_START_SECONDS = 10.0
_END_SECONDS = 10.0
_POLL_SECONDS = 0.02
_QUOTED = 300
"""Characters of what the programs printed that a log line repeats."""

_GUESTS = (None, "x86_64", "q35")
"""The emulator (libvirt's choice), architecture and machine type that libvirt is asked about."""
_CPU_INFORMATION = Path("/proc/cpuinfo")
_KVM = Path("/dev/kvm")
# A file system of its own, for the one that the folder is on may forbid devices. The product's image has no
# other mount than busybox's.
_OWN_KVM = """
busybox mount -t tmpfs -o mode=0755 own-kvm "$1"
mknod "$1/kvm" c "$3" "$4"
chown "$2:$2" "$1/kvm"
busybox mount -o bind "$1/kvm" /dev/kvm
shift 4
exec "$@"
"""
_STDERR = "stderr"
_DOMAIN, _FEATURES, _HOST = "virsh_domcapabilities.xml", "supported_features.xml", "capabilities.xml"


def location(folder: Path) -> Path:
    """The directory of the copy for the installed programs, below `folder`."""
    fingerprint = hashlib.sha256()
    for name in _PROGRAMS:
        path = shutil.which(name)
        if path:
            status = os.stat(path)  # noqa: PTH116 - the time of change is what libvirt looks at too
            fingerprint.update(f"{path} {status.st_ctime_ns} {status.st_size}\n".encode())
    return folder / fingerprint.hexdigest()[:16]


def facts_location(folder: Path, kind: str) -> Path:
    """The directory of libvirt's capabilities for guests of `kind` (``kvm``, ``qemu``) on this node."""
    fingerprint = hashlib.sha256(f"{kind} {os.uname().release}\n".encode())
    for line in _CPU_INFORMATION.read_text().splitlines():
        if line.startswith(("model name", "flags", "microcode")):
            fingerprint.update(line.encode())
    return folder / f"{location(folder).name}-{fingerprint.hexdigest()[:16]}"


async def warm(folder: Path, *, kvm: bool) -> None:
    """Make the copy unless it exists. A failure is logged; then launchers probe QEMU themselves, and the node
    lacks labels.
    """
    kind = "kvm" if kvm else "qemu"
    target, facts = location(folder), facts_location(folder, kind)
    if target.is_dir() and facts.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="warm-", dir=folder, ignore_cleanup_errors=True) as work:
        try:
            answers = await _probe(Path(work), kind)
            await asyncio.to_thread(_keep, Path(work), answers, target, facts)
        except (HypervisorError, LauncherBroken, LauncherGone, LauncherNotReady, OSError) as error:
            logger.warning(
                "QEMU's capabilities could not be prepared: the node lacks labels, and guests start slowly."
                " Correct what the error names and restart virt-handler on this node",
                extra={"err": str(error), "printed": _printed(Path(work))},
            )


def _printed(work: Path) -> str:
    """The last output of launcher and daemon, for the log after a failure."""
    file = work / _STDERR
    return file.read_text(errors="replace").strip()[-_QUOTED:] if file.exists() else ""


def _keep(work: Path, answers: dict[str, str], target: Path, facts: Path) -> None:
    if not target.is_dir():
        fresh = work / "found"
        shutil.copytree(work / "run/libvirt/cache/libvirt", fresh)
        fresh.rename(target)
    if answers and not facts.is_dir():
        fresh = work / "facts"
        fresh.mkdir()
        for name, text in answers.items():
            (fresh / name).write_text(text)
        fresh.rename(facts)


def read_processor(folder: Path, *, kvm: bool) -> Processor:
    """The CPU models that guests can have, read from the copy below `folder`; none if there is no copy."""
    facts = facts_location(folder, "kvm" if kvm else "qemu")
    if not facts.is_dir():
        return Processor()
    return processor.read(*((facts / name).read_text() for name in (_DOMAIN, _FEATURES, _HOST)))


def machine_types(folder: Path) -> list[str]:
    """The machine types of the copy below `folder`, aliases included; none where there is no copy."""
    return sorted(_machines(folder))


def deprecated_machine_types(folder: Path) -> list[str]:
    """Those of them that QEMU says it will not have much longer."""
    return sorted(name for name, is_deprecated in _machines(folder).items() if is_deprecated)


def _machines(folder: Path) -> dict[str, bool]:
    """The machine types by their names, each with whether it is deprecated."""
    found: dict[str, bool] = {}
    for path in location(folder).glob("qemu/**/*.xml"):
        for machine in etree.parse(path).iter("machine"):
            names = filter(None, (machine.get("name"), machine.get("alias")))
            found.update(dict.fromkeys(names, machine.get("deprecated") == "yes"))
    return found


async def _probe(work: Path, kind: str) -> dict[str, str]:
    os.chown(work, QEMU_USER, QEMU_USER)
    work.chmod(0o711)
    work.parent.chmod(0o711)
    user = str(QEMU_USER)
    command = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]
    if kind == "kvm":
        command = _with_own_kvm(work) + command
    command += [own_program("virt-launcher"), "--name", "warm", "--uid", "warm"]
    command += ["--namespace", "warm", "--kubevirt-share-dir", str(work / "share")]
    command += ["--private-dir", str(work / "private"), "--runtime-dir", str(work / "run")]
    descriptor = os.open(work / _STDERR, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(*command, stderr=descriptor)
    finally:
        os.close(descriptor)
    try:
        answers = await _ask(work, kind)
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
        return answers
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _with_own_kvm(work: Path) -> list[str]:
    """Run what follows with a ``/dev/kvm`` that QEMU's user may open, as launchers have it; the node's own
    device, which others use too, stays as it is."""
    folder = work / "dev"
    folder.mkdir()
    number = _KVM.stat().st_rdev
    arguments = [str(folder), str(QEMU_USER), str(os.major(number)), str(os.minor(number))]
    return ["unshare", "--mount", "sh", "-ec", _OWN_KVM, "own-kvm", *arguments]


async def _ask(work: Path, kind: str) -> dict[str, str]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _START_SECONDS
    while True:
        try:
            link = await connect(work / "share/sockets/launcher-sock", lambda _: None, lambda _: None)
            break
        except LauncherNotReady:
            # Polling is cheaper here than watching a directory that does not exist yet.
            if loop.time() > deadline:
                raise
            await asyncio.sleep(_POLL_SECONDS)
    await link.request("start")
    daemon = await DaemonConnection.open(work / "run/libvirt/libvirt-sock", lambda: None)
    try:
        return await _answers(daemon, kind)
    finally:
        await daemon.close()
        # libvirt's daemon ends together with it.
        await link.request("exit", code=0)
        await link.close()


async def _answers(daemon: DaemonConnection, kind: str) -> dict[str, str]:
    try:
        domain = await _domain_capabilities(daemon, kind)
    except HypervisorError as error:
        if kind == "qemu":
            raise
        # The copy is useful even so.
        text = "The node's processor is not known, so the node lacks its labels"
        logger.warning(text, extra={"err": str(error)})
        await _domain_capabilities(daemon, "qemu")
        return {}
    own = processor.host_cpu(domain)
    answers = {_DOMAIN: domain, _FEATURES: "", _HOST: ""}
    try:
        if own:
            answers[_FEATURES] = await _expanded_cpu(daemon, kind, own)
        if kind == "kvm":
            # Only KVM reports the frequency of the time stamp counter, and the query takes seconds.
            answers[_HOST] = await _host_capabilities(daemon)
    except HypervisorError as error:
        text = "The node's processor is known in part only, so the node lacks some of its labels"
        logger.warning(text, extra={"err": str(error)})
    return answers


async def _domain_capabilities(daemon: DaemonConnection, kind: str) -> str:
    """The capabilities of domains of type `kind` (``kvm``, ``qemu``); libvirt probes QEMU for them."""
    ask = daemon.libvirt.getDomainCapabilities
    return str(await daemon.call("capabilities", ask, *_GUESTS, kind, 0, seconds=LONG_CALL_SECONDS))


async def _host_capabilities(daemon: DaemonConnection) -> str:
    """The capabilities of the node itself."""
    ask = daemon.libvirt.getCapabilities
    return str(await daemon.call("host capabilities", ask, seconds=LONG_CALL_SECONDS))


async def _expanded_cpu(daemon: DaemonConnection, kind: str, cpu: str) -> str:
    """The ``<cpu>`` element `cpu`, expanded with every feature that its model implies."""
    wanted = ([cpu], libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES)
    ask = daemon.libvirt.baselineHypervisorCPU
    return str(await daemon.call("baseline", ask, *_GUESTS, kind, *wanted, seconds=LONG_CALL_SECONDS))
