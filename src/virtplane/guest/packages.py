"""Fetch the distribution's packages and unpack them into a folder, without installing anything."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

GUEST_PROGRAMS = ("busybox-static", "dropbear-bin", "openssh-sftp-server", "qemu-guest-agent")
BOOT_LOADERS = ("syslinux", "syslinux-common", "mtools", "shim-signed", "grub-efi-amd64-signed")
"""For BIOS, and for UEFI with Secure Boot."""


class PackageError(Exception):
    """A package could not be fetched or unpacked; the text names it and has apt's output."""


def fetch(folder: Path, kernels: Sequence[str]) -> Path:
    """Download everything the guest is made of into `folder`/debs and unpack it into `folder`/tree.

    Its kernel is that of the first of the meta packages `kernels` that apt knows. Returns the tree.
    Raises PackageError.
    """
    debs = folder / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    # apt drops to an unprivileged user for downloads, who must be able to write here.
    debs.chmod(0o777)
    try:
        _download(debs, kernels)
    except PackageError:
        # The package lists may be missing, or older than the packages on the mirror.
        _run(["apt-get", "update", "-q"], what="the package lists")
        _download(debs, kernels)
    tree = folder / "tree"
    for deb in sorted(debs.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(deb), str(tree)], what=deb.name)
    return tree


def _download(debs: Path, kernels: Sequence[str]) -> None:
    # One call for all: without a cache of its own, as in images of containers, apt reads its lists each time.
    listed = ["apt-cache", "depends", "--recurse", "--important", *kernels, *GUEST_PROGRAMS]
    needed = dependencies(_run(listed, what=" ".join(listed[4:])))
    names = [kernel_package(needed, kernels), *with_libraries(needed, GUEST_PROGRAMS), *BOOT_LOADERS]
    _run(["apt-get", "download", "-q", *names], cwd=debs, what=" ".join(names))


def dependencies(listing: str) -> dict[str, list[str]]:
    """What each package needs, of the output of ``apt-cache depends``. Alternatives are left out."""
    found: dict[str, list[str]] = {}
    needed: list[str] = []
    for line in listing.splitlines():
        if not line.startswith(" "):
            needed = found.setdefault(line, [])
        elif match := re.fullmatch(r"\s+(?:Pre)?Depends: ([a-z0-9.+-]+)", line):
            needed.append(match[1])
    return found


def kernel_package(needed: Mapping[str, Sequence[str]], kernels: Sequence[str]) -> str:
    """The versioned package that the meta package of kernels depends on. Raises PackageError."""
    for meta in kernels:
        for dependency in needed.get(meta, ()):
            if re.fullmatch(r"linux-image-\d.*", dependency):
                return dependency
    raise PackageError(f"no kernel: neither {' nor '.join(kernels)} is known; run apt-get update")


def with_libraries(needed: Mapping[str, Sequence[str]], names: Sequence[str]) -> list[str]:
    """`names` and the library packages that they need, directly or not."""
    found: dict[str, None] = dict.fromkeys(names)
    queue = list(names)
    while queue:
        for dependency in needed.get(queue.pop(), ()):
            if re.fullmatch(r"(lib|zlib1g)[a-z0-9.+-]*", dependency) and dependency not in found:
                found[dependency] = None
                queue.append(dependency)
    return list(found)


def _run(command: list[str], *, what: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PackageError(f"{command[0]} failed for {what}: {done.stderr.strip()[-800:]}")
    return done.stdout
