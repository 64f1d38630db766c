"""Packages of this machine's Debian: those of the disk, and the programs that build with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from virtplane.image import distribution
from virtplane.image.commands import BuildError, run
from virtplane.image.locking import Step

INCLUDED = (
    "apt",
    # Instead of usrmerge, which needs Perl to convert what is merged from the beginning.
    "usr-is-merged",
    "linux-image-cloud-amd64",
    # GRUB for BIOS, and behind the signed shim for UEFI; its scripts update both on the disk.
    "grub-cloud-amd64",
    "systemd-sysv",
    "systemd-resolved",
    "systemd-timesyncd",
    "dbus",
    "udev",
    "libpam-systemd",
    "libnss-myhostname",
    "cloud-init",
    "cloud-guest-utils",
    "qemu-guest-agent",
    "openssh-server",
    "sudo",
    # update-initramfs compresses with it.
    "zstd",
    "ca-certificates",
    "curl",
    "iproute2",
    "iputils-ping",
    "kmod",
    "less",
    "nano",
    "netbase",
    "procps",
    "tzdata",
)
"""What is asked for; dependencies follow."""

BASE = tuple(f"?and({each},?architecture(amd64))" for each in ("?essential", "?priority(required)"))
"""Patterns for what every Debian system has."""

TOOLS = {
    "apt-ftparchive": "apt-utils",
    "mcopy": "mtools",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.vfat": "dosfstools",
    "mmdebstrap": "mmdebstrap",
    "qemu-img": "qemu-utils",
    "setpriv": "util-linux",
    "sfdisk": "fdisk",
}
"""The programs of a build, and the packages that they are in."""

_APT = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--yes", "-q=2"]
_INSTALL = [*_APT, "install", "--no-install-recommends"]


def os_release(path: Path) -> str:
    """The text of the file os-release at `path`; empty where there is none."""
    return path.read_text() if path.exists() else ""


def release(text: str) -> str:
    """The release of Debian, such as 12, out of the `text` of os-release. Raises BuildError elsewhere."""
    words = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    name, version = (words.get(key, "").strip("\"'") for key in ("ID", "VERSION_ID"))
    if name != "debian" or not version.isdecimal():
        found = " ".join(filter(None, (name, version))) or "another system"
        raise BuildError(
            "Images of Debian are built of this machine's own packages.",
            f"This machine runs {found}, no release of Debian.",
            "Build it on Debian 12 or 13.",
        )
    return version


def check_machine(architecture: str) -> None:
    """Raise BuildError where packages of another processor would be installed."""
    if architecture != "amd64":
        raise BuildError("Images of Debian can be built only on amd64.", f"This machine is {architecture}.")


def missing_tools(which: Callable[[str], str | None]) -> list[str]:
    """The packages of programs that `which` does not find."""
    return sorted(package for program, package in TOOLS.items() if which(program) is None)


def install_tools(packages: list[str]) -> None:
    """Install `packages` on this machine. Raises BuildError."""
    what = f"These packages could not be installed: {' '.join(packages)}."
    try:
        run([*_INSTALL, *packages], what)
    except BuildError:
        # On a fresh machine there are no package lists.
        run([*_APT, "update"], "The lists of the distribution's packages could not be fetched.")
        run([*_INSTALL, *packages], what, "Check /etc/apt/sources.list*, then try again.")


def install_missing_tools(step: Step, which: Callable[[str], str | None]) -> None:
    """Install on this machine what a build needs and `which` does not find. Raises BuildError."""
    if missing := missing_tools(which):
        with step(f"Installing {' '.join(missing)}"):
            install_tools(missing)


def fetch(folder: Path, included: Sequence[str]) -> int:
    """Fetch `included`, and what every Debian system has, into the new `folder`; it becomes a repository.

    Returns how many packages there are. The machine's apt does it, with its sources, keys and proxies.
    Raises BuildError.
    """
    distribution.fetch(folder, (*BASE, *included))
    what = "The index of the fetched packages could not be written."
    (folder / "Packages").write_text(run(["apt-ftparchive", "packages", "."], what, folder=folder))
    return len(list(folder.glob("*.deb")))
