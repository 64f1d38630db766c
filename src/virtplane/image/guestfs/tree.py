"""The root file system of the image, as a folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from virtplane.api import guestfs
from virtplane.api.launcherpods import QEMU_USER
from virtplane.image.commands import run
from virtplane.image.debian import tree as debian

INCLUDED = (
    # Instead of usrmerge, which needs Perl to convert what is merged from the beginning.
    "usr-is-merged",
    "libguestfs-tools",
    # The appliance's kernel. It knows virtio, on which libguestfs has its disks, and all file systems.
    "linux-image-cloud-amd64",
    # Other than of ext, such systems are in packages of their own.
    "libguestfs-xfs",
)
"""What is asked for; dependencies follow."""

ROOM_MIB = 128
"""What is free in the appliance's root file system: tools write little beside their disks."""

_SHELL = """\
#!/bin/sh
# The claim's disk is in this folder, or /dev/vda.
exec /bin/bash
"""
_UNUSED = (
    # The appliance has its own.
    "boot",
    "usr/lib/modules",
    "initrd.img",
    "vmlinuz",
    # What nobody reads in a container; copyright files stay.
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/tmp",
)


def make(debs: Path, work: Path, packages: Sequence[str] = INCLUDED) -> Path:
    """Install `packages` out of the folder `debs` into a folder below `work`. Raises BuildError, OSError."""
    overlay, tree = work / "overlay", work / "tree"
    overlay.mkdir()
    # The kernel's package makes no initial RAM file system then: the appliance has its own.
    command = ["env", "INITRD=No", *debian.command(debs, overlay, tree, packages)]
    run(command, "The packages could not be installed.")
    make_appliance(tree)
    debian.clean(tree)
    complete(tree)
    return tree


def make_appliance(tree: Path) -> None:
    """Have the installed libguestfs make its appliance, as small as it can be. Raises BuildError."""
    what = "The appliance of libguestfs could not be made."
    run([*debian.ALONE, "chroot", str(tree), "libguestfs-make-fixed-appliance", guestfs.APPLIANCE], what)
    # It is a file of 4 GiB with holes, which an image does not have: nodes would get 4 GiB of zeros.
    root = tree / guestfs.APPLIANCE.lstrip("/") / "root"
    run(["e2fsck", "-fy", str(root)], what)
    run(["resize2fs", "-M", str(root)], what)
    size = root.stat().st_size + (ROOM_MIB << 20)
    run(["resize2fs", str(root), f"{size >> 10}K"], what)


def complete(tree: Path) -> None:
    """Remove what containers do not need, and add the shell and the user that pods start with."""
    for name in _UNUSED:
        path = tree / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for name, mode in (("boot", 0o755), ("var/tmp", 0o1777)):
        (tree / name).mkdir()
        (tree / name).chmod(mode)
    # The group of this number may be another's already, by another name.
    with (tree / "etc/passwd").open("a") as accounts:
        accounts.write(f"qemu:x:{QEMU_USER}:{QEMU_USER}:qemu:/:/bin/bash\n")
    shell = tree / guestfs.ENTRYPOINT.lstrip("/")
    shell.write_text(_SHELL)
    shell.chmod(0o755)
