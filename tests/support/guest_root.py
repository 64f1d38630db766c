"""A root with busybox and the demo guest's own files, without a kernel or a guest around it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from virtplane.guest import initramfs

GUEST_ETC = Path(initramfs.__file__).parent / "rootfs/etc"


def make_guest_root(folder: Path) -> None:
    """Fill `folder`. Needs root, because programs are linked from inside."""
    busybox = shutil.which("busybox")
    assert busybox is not None, "busybox is not installed"
    for name in ("bin", "dev", "root", "run", "sys", "tmp"):
        (folder / name).mkdir()
    shutil.copytree(GUEST_ETC, folder / "etc")
    for script in ("cloudconfig", "netdata", "nocloud"):
        (folder / "etc" / script).chmod(0o755)
    shutil.copy(busybox, folder / "bin/busybox")
    subprocess.run(["chroot", str(folder), "/bin/busybox", "--install", "-s", "/bin"], check=True)
