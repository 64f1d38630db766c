"""A bootable disk: one FAT partition with the kernel and the initramfs, SYSLINUX for BIOS, GRUB for UEFI.

UEFI starts the shim that Microsoft has signed; it starts GRUB, and GRUB the kernel, which Debian has signed:
the disk also starts by Secure Boot.
"""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

_SECTOR = 512
_PARTITION_START = 2048
_DISK_SIGNATURE = 0x76706C6E
_TIMESTAMP = "1700000000"
"""Seconds since 1970 that every file of the disk carries, so that equal inputs give equal bytes."""

_ARGUMENTS = (
    "console=tty0 console=ttyS0,115200 quiet loglevel=3 mitigations=off no_timer_check tsc=unstable"
    " cryptomgr.notests initcall_blacklist=crypto_kdf108_init"
)
"""Without what only real hardware needs, and without the kernel's tests of its own ciphers: where guests are
emulated these are a sixth of the time to the prompt."""
_SYSLINUX = f"""\
SERIAL 0 115200
DEFAULT guest
PROMPT 0
LABEL guest
    KERNEL vmlinuz
    INITRD initrd.gz
    APPEND {_ARGUMENTS}
"""
_GRUB = f"""\
linux /vmlinuz {_ARGUMENTS}
initrd /initrd.gz
boot
"""
_UEFI_PROGRAMS = {
    "EFI/BOOT/BOOTX64.EFI": "usr/lib/shim/shimx64.efi.signed",
    "EFI/BOOT/grubx64.efi": "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed",
}
"""Where firmware looks for the shim of a disk that it was not told of, and the shim for GRUB."""
_GRUB_FOLDERS = ("EFI/debian", "EFI/ubuntu")
"""Where the signed GRUB of either distribution looks for its configuration."""


class BootLoaderError(Exception):
    """A tool that writes the disk has failed; the text has its output."""


def build(tree: Path, kernel: Path, initramfs: bytes, image: Path) -> None:
    """Write the disk `image` (raw). `tree` has the unpacked boot loaders and mtools.

    Raises BootLoaderError.
    """
    files = {name: tree / path for name, path in _UEFI_PROGRAMS.items()}
    files |= {"vmlinuz": kernel, **_written(image.parent, initramfs)}
    payload = sum(path.stat().st_size for path in files.values() if path.exists())
    partition_sectors = (payload + (3 << 20)) // _SECTOR
    size_sectors = -(-(_PARTITION_START + partition_sectors) // 2048) * 2048
    with image.open("wb") as disk:
        disk.truncate(size_sectors * _SECTOR)
        boot_code = (tree / "usr/lib/syslinux/mbr/mbr.bin").read_bytes()
        disk.write(_master_boot_record(boot_code, size_sectors - _PARTITION_START))
    tools = _Tools(tree, f"{image}@@{_PARTITION_START * _SECTOR}")
    geometry = ["-N", "76706c6e", "-h", "255", "-s", "63", "-T", str(size_sectors - _PARTITION_START)]
    tools.run("mformat", *geometry, "-H", str(_PARTITION_START), "-v", "VIRTPLANE", "::")
    for folder in ("EFI", "EFI/BOOT", *_GRUB_FOLDERS):
        tools.run("mmd", f"::{folder}")
    for name, path in files.items():
        tools.run("mcopy", "-m", str(path), f"::{name}")
    tools.syslinux("--install", "--offset", str(_PARTITION_START * _SECTOR), str(image))


def _written(folder: Path, initramfs: bytes) -> dict[str, Path]:
    """The files of the disk that are no package's, by their names there, with fixed times."""
    contents = {"initrd.gz": initramfs, "syslinux.cfg": _SYSLINUX.encode()}
    contents |= {f"{each}/grub.cfg": _GRUB.encode() for each in _GRUB_FOLDERS}
    paths = {name: folder / name.replace("/", "-") for name in contents}
    for name, path in paths.items():
        path.write_bytes(contents[name])
        os.utime(path, (int(_TIMESTAMP), int(_TIMESTAMP)))
    return paths


def _master_boot_record(boot_code: bytes, sectors: int) -> bytes:
    """Boot code, disk signature and one active FAT16 (LBA) partition."""
    entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x0E, b"\xfe\xff\xff", _PARTITION_START, sectors)
    return (
        boot_code[:440].ljust(440, b"\0")
        + struct.pack("<IH", _DISK_SIGNATURE, 0)
        + entry.ljust(64, b"\0")
        + b"\x55\xaa"
    )


class _Tools:
    """mtools and SYSLINUX from the unpacked packages, with fixed times."""

    def __init__(self, tree: Path, partition: str) -> None:
        self._tree = tree
        self._partition = partition
        self._environment = {
            "PATH": f"{tree}/usr/bin:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "MTOOLS_SKIP_CHECK": "1",
            "SOURCE_DATE_EPOCH": _TIMESTAMP,
            "TZ": "UTC",
            "LC_ALL": "C.UTF-8",
        }

    def run(self, tool: str, *arguments: str) -> None:
        self._call([str(self._tree / "usr/bin" / tool), "-i", self._partition, *arguments])

    def syslinux(self, *arguments: str) -> None:
        self._call([str(self._tree / "usr/bin/syslinux"), *arguments])

    def _call(self, command: list[str]) -> None:
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BootLoaderError(
                f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()[-500:]}"
            )
