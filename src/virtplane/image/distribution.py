"""The programs that containers of the product run, out of the distribution's packages.

apt works with the host's own sources, keys and proxies, but as if nothing were installed, so it finds every
package that is needed. The packages are unpacked, not installed: their scripts need a running system, and
little of what they do is needed here (the merged /usr, accounts, compiled Python).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from virtplane.image.commands import BuildError, run

PACKAGES = (
    "python3",
    "python3-libvirt",
    "qemu-system-x86",
    "qemu-utils",
    "seabios",
    "ovmf",
    "swtpm",
    "swtpm-tools",
    "libvirt-daemon",
    "libvirt-daemon-driver-qemu",
    "libvirt-clients",
    "nftables",
    "iproute2",
    "passt",
    "busybox-static",
    "util-linux",
    # File systems of the hostpath provisioner's volumes.
    "e2fsprogs",
    "xfsprogs",
    # Imports: disks on web servers, images in registries, decompression.
    "bzip2",
    "gzip",
    "nbdkit",
    "skopeo",
    "xz-utils",
    "zstd",
    "kmod",
    # Packages that every container of the distribution has.
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "grep",
    "libc-bin",
    "sed",
    "tar",
    "tzdata",
)
OPTIONAL_PACKAGES = ("virtiofsd",)
"""Programs of newer distributions, which come with others' packages in older ones."""

_LEFT_OUT = frozenset({"adduser", "debconf", "dpkg", "iso-codes", "libasound2-data", "sensible-utils"})
"""Only installation scripts and desktops need these."""

_EXCLUDED = (
    "./etc/apt",
    "./etc/cron.daily",
    "./etc/init.d",
    "./etc/logrotate.d",
    "./etc/systemd",
    "./usr/lib/systemd",
    "./lib/systemd",
    "./usr/share/bash-completion",
    "./usr/share/bug",
    # Directories without anything but copyright files, which are removed together with the programs.
    "./usr/share/doc/*/[!c]*",
    "./usr/share/doc/*/c[!o]*",
    "./usr/share/doc/*/co[!p]*",
    "./usr/share/doc-base",
    "./usr/share/info",
    "./usr/share/lintian",
    "./usr/share/locale",
    "./usr/share/man",
    "./usr/share/zsh",
    "./var/cache",
)
_STATUS = "status"
_MERGED_FOLDERS = ("bin", "lib", "lib64", "sbin")


def fetch(folder: Path, packages: Sequence[str] = PACKAGES) -> list[Path]:
    """Download `packages`, those that are optional, and all they depend on into `folder`.

    Returns them by name. Raises BuildError.
    """
    (folder / "partial").mkdir(parents=True)
    (folder / _STATUS).touch()
    try:
        _download(folder, packages)
    except BuildError:
        if os.geteuid() != 0:
            raise
        # On a fresh machine there are no package lists; outdated lists name packages that the mirror no
        # longer has.
        run(["apt-get", "update", "-q=2"], "The lists of the distribution's packages could not be fetched.")
        _download(folder, packages)
    return [path for path in sorted(folder.glob("*.deb")) if package_of(path) not in _LEFT_OUT]


def _download(folder: Path, packages: Sequence[str]) -> None:
    run(
        download_command(folder, [*packages, *filter(_is_known, OPTIONAL_PACKAGES)]),
        "The distribution's packages could not be fetched.",
        "Check /etc/apt/sources.list*, run apt-get update as root, then try again.",
    )


def _is_known(package: str) -> bool:
    """Whether the distribution has the package."""
    command = ["apt-cache", "--quiet", "show", package]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def download_command(folder: Path, packages: Sequence[str]) -> list[str]:
    """apt-get for a machine on which nothing is installed; the host's records are read, never written."""
    options = {
        # apt puts its lock files next to this file.
        "Dir::State::status": str(folder / _STATUS),
        "Dir::State::extended_states": str(folder / "extended_states"),
        "Dir::Cache::archives": str(folder),
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "APT::Keep-Downloaded-Packages": "true",
    }
    command = ["apt-get", "--yes", "-q=2", "--download-only", "--no-install-recommends"]
    for name, value in options.items():
        command += ["-o", f"{name}={value}"]
    return [*command, "install", *packages]


def package_of(deb: Path) -> str:
    """The package's name out of a file name such as ``libc6_2.36-9_amd64.deb``."""
    return deb.name.partition("_")[0]


def unpack(debs: list[Path], tree: Path) -> None:
    """Unpack `debs` into the new folder `tree`, a merged /usr, leaving out what no container needs.

    Each package's record goes to var/lib/dpkg/status.d, where scanners of images look. Raises BuildError.
    """
    for name in _MERGED_FOLDERS:
        (tree / "usr" / name).mkdir(parents=True)
        (tree / name).symlink_to(f"usr/{name}")
    records = tree / "var/lib/dpkg/status.d"
    records.mkdir(parents=True)
    for deb in debs:
        what = f"The package {deb.name} could not be unpacked."
        _unpack_one(deb, tree, what)
        (records / package_of(deb)).write_text(run(["dpkg-deb", "--field", str(deb)], what))


def _unpack_one(deb: Path, tree: Path, what: str) -> None:
    command = ["tar", "--extract", "--directory", str(tree), "--no-same-owner"]
    # A package may contain /lib/...; here /lib must stay a symbolic link.
    command += ["--keep-directory-symlink", *(f"--exclude={path}" for path in _EXCLUDED)]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE) as packed:
        unpacked = subprocess.run(command, stdin=packed.stdout, capture_output=True, text=True, check=False)
    if packed.returncode != 0 or unpacked.returncode != 0:
        raise BuildError(what, unpacked.stderr.strip() or "It is damaged.", "Is the disk full?")


def python_version(tree: Path) -> str:
    """The version of the unpacked Python, such as 3.11. Raises BuildError."""
    program = tree / "usr/bin/python3"
    if not program.is_symlink():
        raise BuildError("The distribution's Python is not what it should be.", f"{program} is no link.")
    return program.readlink().name.removeprefix("python")


def architecture() -> str:
    """The distribution's name of this machine's processor, which is also OCI's (amd64, arm64)."""
    return run(["dpkg", "--print-architecture"], "This machine's architecture is not known.").strip()
