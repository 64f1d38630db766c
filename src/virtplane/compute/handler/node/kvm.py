"""Whether KVM can run guests on this node. A device node proves nothing: nested hosts may offer one that
cannot.

Some hosts even execute the first instructions of a guest, in real mode, and fail later. So the probe lets
QEMU itself run a tiny firmware with KVM: it goes from real mode through protected mode into 64-bit mode with
paging, reads a control register, and reports through QEMU's debug exit port. A host that runs this firmware
runs guests.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

_ROM_SIZE = 65536
_CODE_OFFSET = 0xFF00
_RESET_VECTOR = 0xFFF0
_VALUE = 42
_EXIT_CODE = (_VALUE << 1) | 1
"""QEMU's isa-debug-exit turns a written value into this exit code."""

PROBE_SECONDS = 10.0
"""KVM that has not executed a few instructions by then never will."""

PROCESSOR_SECONDS = 1.5
"""Nor will one that spent so much of a processor on them: QEMU starts in a tenth of it."""

_LOOK_SECONDS = 0.1

# cli; ds = 0xf000; lgdt; cr0.PE; far jump to 32-bit code, which loads flat segments, maps the first 2 MiB at
# 0x1000..0x3fff, sets cr4.PAE, cr3, EFER.LME and cr0.PG, and jumps to 64-bit code: read cr0, write 42 to port
# 0xf4, halt. The GDT follows.
_CODE = bytes.fromhex(
    "fab800f08ed8660f0116a0ff0f20c00c010f22c066ea1cff0f00080066b810008ed88ec08ed0c705001000000320"
    "0000c7050410000000000000c7050020000003300000c7050420000000000000c7050030000083000000c7050430"
    "0000000000000f20e083c8200f22e0b8001000000f22d8b9800000c00f320d000100000f300f20c00d000000800f"
    "22c0ea93ff0f0018000f20c0b82a000000e6f4f4ebfd1f00a6ff0f000000000000000000ffff0000009acf00ffff"
    "00000092cf00ffff0000009aaf"
)
_JUMP_TO_CODE = bytes.fromhex("e90dff")


@dataclass(frozen=True, slots=True)
class KvmVerdict:
    """Whether guests can run with KVM, and if not, why."""

    usable: bool
    why: str = ""


def firmware() -> bytes:
    """The probe's firmware image: code near the end, the reset vector jumping to it."""
    rom = bytearray(b"\xff" * _ROM_SIZE)
    rom[_CODE_OFFSET : _CODE_OFFSET + len(_CODE)] = _CODE
    rom[_RESET_VECTOR : _RESET_VECTOR + len(_JUMP_TO_CODE)] = _JUMP_TO_CODE
    return bytes(rom)


async def probe(device: Path = Path("/dev/kvm"), accelerator: str = "kvm") -> KvmVerdict:
    """Run the firmware with `accelerator`, and report whether it finished within ten seconds."""
    if accelerator == "kvm" and not device.exists():
        return KvmVerdict(False, f"{device} does not exist")
    with tempfile.TemporaryDirectory(prefix="kvm-probe-") as folder:
        image = Path(folder) / "probe.rom"
        image.write_bytes(firmware())
        return await _run(image, accelerator)


async def _stderr(process: asyncio.subprocess.Process) -> bytes | None:
    """QEMU's error output when it ends; None when it exceeds its CPU time instead."""
    ending = asyncio.create_task(process.communicate(), name="kvm-probe")
    try:
        while not (await asyncio.wait((ending,), timeout=_LOOK_SECONDS))[0]:
            if processor_seconds(process.pid) > PROCESSOR_SECONDS:
                return None
        return ending.result()[1]
    finally:
        ending.cancel()


def processor_seconds(pid: int) -> float:
    """The CPU time that a process has used; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _run(image: Path, accelerator: str) -> KvmVerdict:
    model = "host" if accelerator == "kvm" else "max"
    command = ["qemu-system-x86_64", "-machine", f"q35,accel={accelerator}", "-cpu", model, "-m", "16"]
    command += ["-nodefaults", "-display", "none", "-bios", str(image)]
    command += ["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]
    null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=null, stdout=null, stderr=pipe)
    except OSError as error:
        return KvmVerdict(False, f"QEMU cannot be started: {error.strerror}")
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            output = await _stderr(process)
    except TimeoutError:
        output = None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if output is None:
        return KvmVerdict(False, "KVM exists but does not execute a guest's code")
    if process.returncode == _EXIT_CODE:
        return KvmVerdict(True)
    lines = output.decode(errors="replace").strip().splitlines()
    return KvmVerdict(
        False, f"KVM exists but cannot run a guest: {lines[0] if lines else process.returncode}"
    )
