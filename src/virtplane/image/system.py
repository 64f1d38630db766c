"""The files that unpacked packages need to become a system: accounts, name resolution, and folders."""

from __future__ import annotations

from pathlib import Path

from virtplane.api.accounts import COMPONENT_USER
from virtplane.api.launcherpods import QEMU_USER

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PASSWD = f"""\
root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
qemu:x:{QEMU_USER}:{QEMU_USER}:qemu:/:/usr/sbin/nologin
virtplane:x:{COMPONENT_USER}:{COMPONENT_USER}:virtplane:/:/usr/sbin/nologin
"""
_GROUP = f"root:x:0:\ntty:x:5:\nnogroup:x:65534:\nqemu:x:{QEMU_USER}:\nvirtplane:x:{COMPONENT_USER}:\n"
_NSSWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nservices: files\n"

FILES = {"etc/passwd": _PASSWD, "etc/group": _GROUP, "etc/nsswitch.conf": _NSSWITCH}
_FOLDERS = {
    "dev": 0o755,
    "etc": 0o755,
    "mnt": 0o755,
    "proc": 0o755,
    "root": 0o700,
    "run": 0o755,
    "run/lock": 0o1777,
    "sys": 0o755,
    "tmp": 0o1777,
    "var": 0o755,
    "var/tmp": 0o1777,
    "var/lib": 0o755,
}
_LINKS = {"var/run": "../run", "var/lock": "../run/lock"}
"""Relative, because virt-handler looks into launchers' file systems from outside, where /run is its own."""


def complete(tree: Path) -> None:
    """Write accounts, folders and links into the unpacked system `tree`."""
    for name, mode in _FOLDERS.items():
        folder = tree / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
    for name, content in FILES.items():
        (tree / name).write_text(content)
    for name, target in _LINKS.items():
        link = tree / name
        if link.is_symlink():
            link.unlink()
        elif link.is_dir():
            link.rmdir()
        link.symlink_to(target)
