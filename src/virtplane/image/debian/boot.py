"""GRUB on the disk: for BIOS in its own partition, for UEFI behind the signed shim.

grub-install needs the disk as a device of the machine, with the file system mounted; here it is a file. So
its work is done here: an image for BIOS, copies for UEFI. In a guest, updates of GRUB run grub-install.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from virtplane.image.commands import BuildError, run
from virtplane.image.debian.disk import BIOS, SECTOR_BYTES, Identities, Loader

KERNEL_OPTIONS = "console=tty0 console=ttyS0,115200 consoleblank=0"
"""The last console named is the one that services write to."""

_MODULES = ["biosdisk", "part_gpt", "ext2", "search", "search_fs_uuid", "normal", "configfile"]
"""What GRUB needs to read the rest of itself from the root file system."""

_BOOT_CODE_BYTES = 440
"""Of the disk's first sector; the signature and the partition table follow."""
_CORE_SECTOR_AT = 0x5C
"""Where GRUB's boot sector has the number of the sector to load (kernel_sector in GRUB's boot.S)."""
_BLOCK_LIST = struct.Struct("<QHH")
"""The end of the first sector of GRUB's core: where its rest is, its sectors, the segment to load it to."""


def grub_configuration(identities: Identities) -> str:
    """The menu; the first kernel update in a guest replaces it by one with every kernel."""
    return f"""\
# Replaced by update-grub.
if [ "$grub_platform" = pc ]; then
    serial --speed=115200
    terminal_input console serial
    terminal_output console serial
fi
search --no-floppy --fs-uuid --set=root {identities.root}
set timeout=1
menuentry 'Debian GNU/Linux' {{
    linux /vmlinuz root=UUID={identities.root} ro {KERNEL_OPTIONS}
    initrd /initrd.img
}}
"""


def first_configuration(identities: Identities) -> str:
    """What GRUB reads before it has found the root file system."""
    return f"search.fs_uuid {identities.root} root\nset prefix=($root)/boot/grub\n"


def prepare_tree(tree: Path, identities: Identities) -> None:
    """Write GRUB's own folder in the root file system."""
    grub = tree / "boot/grub"
    grub.mkdir(parents=True, exist_ok=True)
    (grub / "grub.cfg").write_text(grub_configuration(identities))
    shutil.copytree(tree / "usr/lib/grub/i386-pc", grub / "i386-pc", dirs_exist_ok=True)
    (tree / "boot/efi").mkdir(exist_ok=True)
    # The package grub-cloud-amd64 updates GRUB only where this is.
    (tree / "etc/grub.d/enable_cloud").touch()


def make_loader(tree: Path, work: Path, identities: Identities) -> Loader:
    """Make GRUB out of the packages in `tree`. Raises BuildError, OSError."""
    modules = "/usr/lib/grub/i386-pc"
    early = tree / "tmp/early.cfg"
    early.write_text(first_configuration(identities))
    command = ["chroot", str(tree), "grub-mkimage", "--format=i386-pc", f"--directory={modules}"]
    command += ["--prefix=/boot/grub", "--config=/tmp/early.cfg", "--output=/tmp/core.img", *_MODULES]
    run(command, "GRUB could not be made.")
    core = (tree / "tmp/core.img").read_bytes()
    boot_sector = (tree / modules.lstrip("/") / "boot.img").read_bytes()
    early.unlink()
    (tree / "tmp/core.img").unlink()
    esp = make_esp(tree, work / "esp", identities)
    return Loader(boot_code(boot_sector, BIOS.start), placed_core(core, BIOS.start, BIOS.sectors), esp)


def boot_code(boot_sector: bytes, core_sector: int) -> bytes:
    """The code of GRUB's boot sector, loading the core from `core_sector`."""
    code = bytearray(boot_sector[:_BOOT_CODE_BYTES])
    struct.pack_into("<Q", code, _CORE_SECTOR_AT, core_sector)
    return bytes(code)


def placed_core(core: bytes, sector: int, sectors: int) -> bytes:
    """GRUB's core as it lies from `sector` on, in a partition of `sectors`. Raises BuildError."""
    if len(core) > sectors * SECTOR_BYTES:
        raise BuildError("GRUB could not be made.", f"It has {len(core)} bytes, too many for its partition.")
    placed = bytearray(core)
    at = SECTOR_BYTES - _BLOCK_LIST.size
    _, length, segment = _BLOCK_LIST.unpack_from(placed, at)
    _BLOCK_LIST.pack_into(placed, at, sector + 1, length, segment)
    return bytes(placed)


def make_esp(tree: Path, esp: Path, identities: Identities) -> Path:
    """The removable-media path, which firmware starts without an entry of its own."""
    copies = {
        "usr/lib/shim/shimx64.efi.signed": "EFI/BOOT/BOOTX64.EFI",
        "usr/lib/shim/mmx64.efi.signed": "EFI/BOOT/mmx64.efi",
        "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed": "EFI/BOOT/grubx64.efi",
    }
    for source, target in copies.items():
        (esp / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / source, esp / target)
    # Debian's signed GRUB looks here.
    (esp / "EFI/debian").mkdir()
    goes_on = "configfile $prefix/grub.cfg\n"
    (esp / "EFI/debian/grub.cfg").write_text(first_configuration(identities) + goes_on)
    return esp
