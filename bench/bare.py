"""The same machine under QEMU alone: same disk, devices and accelerator, no libvirt and no cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from bench import memory


@dataclass(frozen=True, slots=True)
class BareRun:
    """Seconds until the processors run, the login prompt is there, the process is gone; KiB of memory."""

    running: float
    prompt: float
    gone: float
    overhead: int
    translated: int


def disk_of(archive: Path, folder: Path) -> Path:
    """Unpack the disk of a container disk's archive (OCI layout) into `folder`."""
    with tarfile.open(archive) as outer:
        for member in sorted(outer.getmembers(), key=lambda each: -each.size):
            content = outer.extractfile(member) if member.isfile() else None
            if content is None or not member.name.startswith("blobs/"):
                continue
            with contextlib.suppress(tarfile.ReadError), tarfile.open(fileobj=content) as layer:
                for each in layer.getmembers():
                    found = layer.extractfile(each) if each.isfile() else None
                    if found is not None and each.name.lstrip("./").startswith("disk/"):
                        target = folder / Path(each.name).name
                        with target.open("wb") as copy:
                            shutil.copyfileobj(found, copy)
                        return target
    raise FileNotFoundError(f"{archive} has no file below disk/")


async def run(disk: Path, accelerator: str, memory_mib: int = 128, *, until_prompt: bool = True) -> BareRun:
    """Start the machine once, measure, and end it."""
    with tempfile.TemporaryDirectory(prefix="bench-bare-") as name:
        folder = Path(name)
        overlay = folder / "overlay.qcow2"
        begun = time.monotonic()
        await _call("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(disk), str(overlay))
        async with _qemu(folder, overlay, accelerator, memory_mib) as (qemu, reader, writer):
            await _command(reader, writer, "qmp_capabilities")
            await _command(reader, writer, "cont")
            running = time.monotonic() - begun
            if until_prompt:
                await _appears(folder / "console", b"login:")
            prompt = time.monotonic() - begun
            guest, translated = memory.guest_and_translations(qemu.pid, memory_mib * 1024 * 1024)
            whole = memory.process(qemu.pid)
            assert whole is not None
            ended = time.monotonic()
            await _command(reader, writer, "quit")
            await qemu.wait()
            gone = time.monotonic() - ended
        return BareRun(running, prompt, gone, whole.pss - guest - translated, translated)


@contextlib.asynccontextmanager
async def _qemu(
    folder: Path, overlay: Path, accelerator: str, memory_mib: int
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.StreamWriter]]:
    monitor = folder / "monitor"
    arguments = [
        *("-S", "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35,usb=off"),
        *("-accel", accelerator, "-cpu", "host" if accelerator == "kvm" else "max"),
        *("-m", str(memory_mib), "-smp", "1", "-qmp", f"unix:{monitor},server=on,wait=off"),
        *("-blockdev", f"driver=qcow2,node-name=root,file.driver=file,file.filename={overlay}"),
        *(
            "-device",
            "virtio-blk-pci,drive=root",
            "-netdev",
            "user,id=net",
            "-device",
            "virtio-net-pci,netdev=net",
        ),
        *("-device", "VGA", "-device", "virtio-balloon-pci", "-device", "virtio-rng-pci"),
        *("-device", "virtio-scsi-pci", "-device", "virtio-serial-pci"),
        *("-serial", f"file:{folder / 'console'}", "-vnc", f"unix:{folder / 'vnc'}"),
    ]
    process = await asyncio.create_subprocess_exec("qemu-system-x86_64", *arguments)
    try:
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(str(monitor))
                break
            except OSError:
                if process.returncode is not None:
                    raise
                await asyncio.sleep(0.005)
        await reader.readline()
        try:
            yield process, reader, writer
        finally:
            writer.close()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _command(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
    writer.write(json.dumps({"execute": name}).encode())
    await writer.drain()
    while b'"return"' not in await asyncio.wait_for(reader.readline(), 10):
        continue


async def _appears(console: Path, text: bytes, seconds: float = 120.0) -> None:
    limit = time.monotonic() + seconds
    while not (console.exists() and text in console.read_bytes()):
        if time.monotonic() > limit:
            raise TimeoutError(f"{text!r} did not appear on the console")
        await asyncio.sleep(0.02)


async def _call(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    if await process.wait():
        raise RuntimeError(f"{command[0]} failed")
