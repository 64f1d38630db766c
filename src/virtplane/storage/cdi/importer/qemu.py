"""`qemu-img` on images of strangers: formats are never guessed, other files never opened, time and memory
bounded.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from virtplane.storage.cdi.importer.formats import DiskFormat
from virtplane.storage.cdi.importer.outcome import ImportFailed
from virtplane.storage.cdi.importer.target import Target

_INFO_SECONDS = 30
_MEMORY_BYTES = 1 << 30
_STACK_BYTES = 1 << 20
"""Of each of qemu-img's threads, up to 64."""
_FEW_ARENAS = {"MALLOC_ARENA_MAX": "2"}
"""The C library reserves 128 MiB for the heap of each thread, which alone could use the address space up."""
_OUTPUT_BYTES = 1 << 20
_PROGRESS = re.compile(rb"\((\d+(?:\.\d+)?)/100%\)")
_UNSUPPORTED = "Unsupported preallocation mode"
_PREALLOCATIONS: tuple[tuple[str, ...], ...] = (
    ("-o", "preallocation=falloc"),
    ("-o", "preallocation=full"),
    ("-S", "0"),
)
"""Ways to allocate everything, the cheapest first; a file system may not have it."""


@dataclass(frozen=True, slots=True)
class FileImage:
    """An image in a local file."""

    path: Path

    def node(self) -> dict[str, object]:
        """QEMU's description of it."""
        return {"driver": "file", "filename": str(self.path)}


@dataclass(frozen=True, slots=True)
class NbdImage:
    """An image that an NBD server exports at a Unix socket."""

    socket: Path

    def node(self) -> dict[str, object]:
        """QEMU's description of it."""
        return {"driver": "nbd", "server": {"type": "unix", "path": str(self.socket)}}


@dataclass(frozen=True, slots=True)
class Part:
    """An image that is a part of a larger file, `size` bytes from `offset`."""

    whole: FileImage | NbdImage
    offset: int
    size: int

    def node(self) -> dict[str, object]:
        """QEMU's description of it."""
        return {"driver": "raw", "offset": self.offset, "size": self.size, "file": self.whole.node()}


Image = FileImage | NbdImage | Part


@dataclass(frozen=True, slots=True)
class Conversion:
    """How to write the disk. `direct` avoids the page cache (after the pod ran out of memory)."""

    preallocate: bool
    direct: bool


async def virtual_size(image: Image, disk_format: DiskFormat, *, may_have_backing: bool = False) -> int:
    """The size in bytes of the disk in `image`, whose backing file is not looked at.

    Raises ImportFailed for what is no such image, or not alone.
    """
    command = ["qemu-img", "info", "--output=json", _filename(image, disk_format)]
    code, output, complaint = await _run(command, seconds=_INFO_SECONDS)
    if code != 0:
        raise ImportFailed(f"Unable to process data: {complaint or 'qemu-img info failed'}")
    try:
        info = json.loads(output)
        size = int(info["virtual-size"])
    except (ValueError, KeyError, TypeError) as error:
        raise ImportFailed("Unable to process data: qemu-img info gave no size") from error
    backing = info.get("backing-filename")
    if backing and not may_have_backing:
        raise ImportFailed(
            f"Unable to process data: Image is invalid because it has invalid backing file {backing}"
        )
    return size


async def convert(
    image: Image, disk_format: DiskFormat, target: Target, how: Conversion, tell: Callable[[float], None]
) -> bool:
    """Write the disk in `image` to `target` as raw; whether all of it was allocated.

    `tell` hears the percentage that is done. Raises ImportFailed.
    """
    attempts: Sequence[tuple[str, ...]] = _PREALLOCATIONS if how.preallocate else ((),)
    if how.preallocate and target.is_device:
        attempts = (("-S", "0"),)
    cache = "none" if how.direct else "writeback"
    for number, options in enumerate(attempts, 1):
        command = ["qemu-img", "convert", "-t", cache, "-p", "-O", "raw", *options]
        if target.is_device:
            command.append("-n")
        command += [_filename(image, disk_format), str(target.path)]
        code, _, complaint = await _run(command, seconds=None, tell=tell)
        if code == 0:
            return how.preallocate
        if _UNSUPPORTED not in complaint or number == len(attempts):
            raise ImportFailed(f"Unable to process data: {complaint or 'qemu-img convert failed'}")
    return False


async def merge(delta: Path, target: Target, how: Conversion, tell: Callable[[float], None]) -> None:
    """Apply what the qcow2 file `delta` adds to the disk in `target`. Raises ImportFailed.

    It may be done again from the beginning: what is written is the same each time.
    """
    rebase = ["qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", str(target.path), str(delta)]
    code, _, complaint = await _run(rebase, seconds=_INFO_SECONDS)
    if code != 0:
        raise ImportFailed(f"Unable to process data: error rebasing image: {complaint}")
    cache = "none" if how.direct else "writeback"
    commit = ["qemu-img", "commit", "-t", cache, "-d", "-p", "-f", "qcow2", str(delta)]
    code, _, complaint = await _run(commit, seconds=None, tell=tell)
    if code != 0:
        raise ImportFailed(f"Unable to process data: error committing image: {complaint}")


async def grow(target: Target, size: int, *, preallocate: bool) -> None:
    """Make the raw disk file `size` bytes large; it is never made smaller. Raises ImportFailed, OSError."""
    if size <= target.path.stat().st_size:
        return
    if not preallocate:
        await asyncio.to_thread(target.extend, size)
        return
    attempts: Sequence[tuple[str, ...]] = (("--preallocation=falloc",), ("--preallocation=full",))
    for options in attempts:
        command = ["qemu-img", "resize", "-q", "-f", "raw", *options, str(target.path), str(size)]
        code, _, complaint = await _run(command, seconds=None)
        if code == 0:
            return
        if _UNSUPPORTED not in complaint:
            break
    raise ImportFailed(f"Unable to process data: {complaint or 'qemu-img resize failed'}")


def _filename(image: Image, disk_format: DiskFormat) -> str:
    """The image for a command line, with its format said and without what it may name as backing file."""
    node: dict[str, object] = {"driver": disk_format.value, "file": image.node()}
    if disk_format in (DiskFormat.QCOW2, DiskFormat.VMDK):
        node["backing"] = None
    return "json:" + json.dumps(node)


async def _run(
    command: Sequence[str], *, seconds: float | None, tell: Callable[[float], None] | None = None
) -> tuple[int, bytes, str]:
    """Exit code, output and complaint of `command`, which may use 1 GiB of address space."""
    limits = ["prlimit", f"--as={_MEMORY_BYTES}", f"--stack={_STACK_BYTES}", "--core=0"]
    if seconds is not None:
        limits.append(f"--cpu={int(seconds)}")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *limits, *command, stdout=pipe, stderr=pipe, env={**os.environ, **_FEW_ARENAS}
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(seconds):
            output, complaint = await asyncio.gather(
                _collect(process.stdout, tell), _collect(process.stderr, None)
            )
            code = await process.wait()
    except TimeoutError:
        return -1, b"", f"qemu-img did not end in {seconds} seconds"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return code, output, complaint.decode(errors="replace").strip()


async def _collect(stream: asyncio.StreamReader, tell: Callable[[float], None] | None) -> bytes:
    """What comes on `stream`, its first MiB; percentages are told as they come."""
    kept = bytearray()
    while piece := await stream.read(4096):
        if tell is not None and (found := _PROGRESS.findall(piece)):
            tell(float(found[-1]))
        if len(kept) < _OUTPUT_BYTES:
            kept += piece[: _OUTPUT_BYTES - len(kept)]
    return bytes(kept)
