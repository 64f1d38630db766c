"""Disks of VMware, through nbdkit's vddk plug-in and VMware's library, which a container brings along."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import os
import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from virtplane.storage.cdi.importer import pipeline, vsphere
from virtplane.storage.cdi.importer.formats import DiskFormat
from virtplane.storage.cdi.importer.http import Web, address
from virtplane.storage.cdi.importer.nbd import nbd_reader
from virtplane.storage.cdi.importer.outcome import ImportFailed, Outcome
from virtplane.storage.cdi.importer.pipeline import Job
from virtplane.storage.cdi.importer.qemu import NbdImage
from virtplane.storage.cdi.importer.remote_disk import listening
from virtplane.storage.cdi.importer.settings import Settings
from virtplane.storage.cdi.importer.vsphere import Area, Disk, Reference, Snapshot, VSphere, failed

_log = logging.getLogger(__name__)

_LIBRARY = "vmware-vix-disklib-distrib"
_CONFIGURATION = "vddk-config-file"
_CHANGE_ID = re.compile(r"([0-9a-fA-F]{2}\s?)+-([0-9a-fA-F]{2}\s?)+/[0-9a-fA-F]*")
_VERSION = re.compile(r"VMware VixDiskLib \((?P<version>[^)]*)\).*build-")
_HOST = re.compile(r"Opened '.*@(?P<host>[^:']*):.*' \(0x")
_PASSWORD_LINE = "config key=password"
_LAST_LINES = 20
_LINE_BYTES = 64 << 10
_READ_BYTES = 2 << 20
"""More at once, from several importers, is too much for a vCenter."""


@dataclass
class _Nbdkit:
    """nbdkit while it serves a disk, and what its log has told."""

    socket: Path
    version: str = ""
    host: str = ""
    lines: collections.deque[str] = field(default_factory=lambda: collections.deque(maxlen=_LAST_LINES))

    def hear(self, line: str) -> None:
        """Note a line of the log; the one with the password is dropped."""
        if _PASSWORD_LINE in line:
            return
        self.lines.append(line)
        _log.debug("nbdkit: %s", line)
        if found := _VERSION.search(line):
            self.version = found["version"]
        if found := _HOST.search(line):
            self.host = found["host"]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is read: a disk of a machine, as it is now or was at a snapshot."""

    machine: Reference
    file: str
    disk: Disk
    snapshot: Snapshot | None


async def from_vddk(job: Job) -> Outcome:
    """Import a disk, a snapshot of it, or what changed between two. Raises ImportFailed, OSError."""
    settings = job.settings
    if settings.previous_checkpoint and not settings.current_checkpoint:
        raise failed("previous checkpoint set without current")
    if settings.previous_checkpoint:
        pipeline.check_base(job)
    await _check_plugin(settings)
    endpoint = address(settings.endpoint, "vddk")
    tls = None
    if not settings.has_authorities and endpoint.scheme == "https":
        tls = await vsphere.pinned_tls(endpoint, settings.thumbprint)
    async with (
        Web(insecure=False, cert_folders=settings.cert_folders, tls=tls, cookies=True) as web,
        vsphere.session(web, endpoint, settings.access_key, settings.secret_key) as server,
    ):
        wanted = await _wanted(server, settings)
        command = nbdkit_command(settings, endpoint.host or "", wanted.machine.name, wanted.file)
        async with _serving(command, settings.secret_key) as nbdkit:
            if settings.previous_checkpoint:
                await _apply(job, server, wanted, nbdkit)
                allocated = False
            else:
                allocated = await pipeline.copied(job, NbdImage(nbdkit.socket), DiskFormat.RAW)
    if settings.previous_checkpoint:
        await pipeline.settle(job)
    else:
        await pipeline.finish(job, allocated=allocated)
    return Outcome(preallocation_applied=allocated, vddk_version=nbdkit.version, vddk_host=nbdkit.host)


def nbdkit_command(settings: Settings, server: str, machine: str, file: str) -> list[str]:
    """nbdkit's command line but for the socket and the password, which nobody else is to see."""
    command = ["--filter=retry", "--filter=cacheextents", "vddk"]
    command += [f"libdir={settings.paths.vddk / _LIBRARY}", f"server={server}", f"user={settings.access_key}"]
    if settings.thumbprint:
        command.append(f"thumbprint={settings.thumbprint}")
    command.append(f"vm=moref={machine}")
    if settings.current_checkpoint:
        command += [f"snapshot={settings.current_checkpoint}", "transports=file:nbdssl:nbd"]
    command += ["--verbose", "-D", "nbdkit.backend.datapath=0", "-D", "vddk.datapath=0", "-D", "vddk.stats=1"]
    configuration = settings.paths.vddk_arguments / _CONFIGURATION
    if configuration.exists():
        command.append(f"config={configuration}")
    return [*command, f"file={file}"]


async def _check_plugin(settings: Settings) -> None:
    """Raise ImportFailed where the plug-in or VMware's library cannot be loaded."""
    process = await asyncio.create_subprocess_exec(
        "nbdkit",
        "--dump-plugin",
        "vddk",
        f"libdir={settings.paths.vddk / _LIBRARY}",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, complaint = await process.communicate()
    if process.returncode != 0:
        lines = complaint[:_LINE_BYTES].decode(errors="replace").strip().splitlines()
        raise failed(f"nbdkit's vddk plugin cannot be used: {lines[0] if lines else 'no reason is told'}")


async def _wanted(server: VSphere, settings: Settings) -> _Wanted:
    machine = await server.machine(settings.uuid)
    snapshots = await server.snapshots(machine)
    disk = await _disk(server, machine, snapshots, settings.backing_file)
    if not settings.current_checkpoint:
        return _Wanted(machine, settings.backing_file, disk, None)
    snapshot = _snapshot(snapshots, settings.current_checkpoint)
    for each in await server.disks(snapshot.reference):
        if each.id == disk.id and each.files:
            return _Wanted(machine, each.files[0], each, snapshot)
    raise failed(f"Could not find disk image with ID {disk.id} in snapshot {settings.current_checkpoint}")


async def _disk(server: VSphere, machine: Reference, snapshots: Sequence[Snapshot], file: str) -> Disk:
    """The disk whose file is `file`, now or at a snapshot, or which rests on it."""
    known: list[Disk] = []
    for owner in (machine, *(each.reference for each in snapshots)):
        disks = await server.disks(owner)
        known += disks
        for each in disks:
            if each.files[:1] == (file,):
                return each
    for each in known:
        if file in each.files:
            return each
    raise failed(f"disk '{file}' is not present in VM hardware config or snapshot list")


def _snapshot(snapshots: Sequence[Snapshot], name: str) -> Snapshot:
    for each in snapshots:
        if name in (each.reference.name, each.label):
            return each
    raise failed(f"snapshot {name} not found")


async def _apply(job: Job, server: VSphere, wanted: _Wanted, nbdkit: _Nbdkit) -> None:
    """Write what has changed since the checkpoint before into the disk that is there."""
    snapshot, previous = wanted.snapshot, job.settings.previous_checkpoint
    assert snapshot is not None
    change_id = previous
    if not _CHANGE_ID.fullmatch(previous):
        before = _snapshot(await server.snapshots(wanted.machine), previous)
        found = [each for each in await server.disks(before.reference) if each.id == wanted.disk.id]
        if not found or not found[0].change_id:
            raise failed(f"the disk has no change ID in snapshot {previous}")
        change_id = found[0].change_id
    async with nbd_reader(nbdkit.socket) as source:
        job.target.check_fits(source.size)
        areas = server.changed_areas(wanted.machine, snapshot, wanted.disk, change_id)

        async def pieces() -> AsyncIterator[tuple[int, bytes]]:
            async for area in areas:
                _check_area(area, source.size)
                for offset in range(area.start, area.start + area.length, _READ_BYTES):
                    size = min(_READ_BYTES, area.start + area.length - offset)
                    yield offset, await source.read(offset, size)
                job.progress.tell(100.0 * (area.start + area.length) / max(source.size, 1))

        await job.target.patch(pieces())


def _check_area(area: Area, size: int) -> None:
    if area.start + area.length > size:
        raise failed("an area that has changed is not on the disk")


@asynccontextmanager
async def _serving(arguments: Sequence[str], password: str) -> AsyncIterator[_Nbdkit]:
    """nbdkit with a disk at a socket while the context lasts. Raises ImportFailed."""
    with tempfile.TemporaryDirectory(prefix="importer-") as folder, _pipe_with(password) as secret:
        nbdkit = _Nbdkit(Path(folder, "nbd"))
        command = ["nbdkit", "--foreground", "--readonly", "--exit-with-parent"]
        command += ["--unix", str(nbdkit.socket), *arguments, f"password=-{secret}"]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(secret,),
        )
        assert process.stderr is not None
        hearing = asyncio.create_task(_hear(process.stderr, nbdkit))
        try:
            try:
                await listening(process, nbdkit.socket)
            except ImportFailed as error:
                if process.returncode is not None:
                    await hearing
                raise failed(f"nbdkit does not serve the disk: {' '.join(nbdkit.lines)}") from error
            yield nbdkit
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            await hearing


async def _hear(stream: asyncio.StreamReader, nbdkit: _Nbdkit) -> None:
    """Pass lines on until the end; one that is too long is cut."""
    rest = b""
    while piece := await stream.read(_LINE_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[-_LINE_BYTES:]
        for line in lines:
            nbdkit.hear(line.decode(errors="replace"))
    if rest:
        nbdkit.hear(rest.decode(errors="replace"))


@contextlib.contextmanager
def _pipe_with(password: str) -> Iterator[int]:
    """A pipe that gives the password: on a command line other processes would see it."""
    reading, writing = os.pipe()
    try:
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            os.set_blocking(pipe.fileno(), False)
            pipe.write(password.encode())
        yield reading
    finally:
        os.close(reading)
