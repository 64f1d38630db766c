"""The root file system of the disk, as a folder."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

from virtplane.image.commands import run
from virtplane.image.debian import boot
from virtplane.image.debian.disk import Identities

ALONE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child")
"""Runs a program with mounts and processes of its own, which end with the thread that starts it, however
that ends."""
SERVICES = ("systemd-networkd.service", "systemd-resolved.service")
"""cloud-init configures the network through networkd where neither ifupdown nor netplan is installed."""

_CLOUD_INIT = """\
# KubeVirt gives machines these sources; without any of them, interfaces are configured by DHCP.
datasource_list: [NoCloud, ConfigDrive, None]
# The image names no mirror: cloud-init writes its own, or what user data says below apt.
apt:
  preserve_sources_list: false
locale: C.UTF-8
ssh_genkeytypes: [ed25519, ecdsa, rsa]
# The disk's packages update GRUB by themselves.
grub_dpkg:
  enabled: false
"""
_LEFT_BEHIND = (
    # apt's sources and options, as they were during the build.
    "etc/apt/sources.list",
    "etc/apt/sources.list.d/*",
    "etc/apt/apt.conf.d/99mmdebstrap",
    # Machines make their own keys, and identities.
    "etc/ssh/ssh_host_*",
    "var/lib/dbus/machine-id",
    "var/lib/systemd/random-seed",
    # Of the machine that builds.
    "etc/hostname",
    # Links of a second kernel, which there is not.
    "initrd.img.old",
    "vmlinuz.old",
    # Records of the installation.
    "var/cache/debconf/*-old",
    "var/lib/dpkg/*-old",
    "var/log/*.log",
    "var/log/apt/*",
)


def files(identities: Identities) -> dict[str, str]:
    """Our own files in the root file system, which are there before its packages are configured."""
    return {
        # With it, the initial RAM file system gets the program that checks the root file system.
        "etc/fstab": f"UUID={identities.root} / ext4 defaults,errors=remount-ro 0 1\n"
        f"UUID={identities.esp_label} /boot/efi vfat umask=0077,nofail 0 2\n",
        "etc/default/grub.d/50-image.cfg": f'GRUB_TIMEOUT=1\nGRUB_CMDLINE_LINUX="{boot.KERNEL_OPTIONS}"\n',
        "etc/cloud/cloud.cfg.d/50-image.cfg": _CLOUD_INIT,
        # cloud-init runs also without a source of data.
        "etc/cloud/ds-identify.cfg": "policy: search,found=all,maybe=all,notfound=enabled\n",
    }


def command(debs: Path, overlay: Path, tree: Path, packages: Sequence[str]) -> list[str]:
    """mmdebstrap, which installs `packages` of the folder `debs` and the files of `overlay` into `tree`.

    It runs alone.
    """
    options = ["--mode=root", "--format=directory", "--variant=minbase", "--architectures=amd64"]
    options += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"]
    options += ["--aptopt=APT::Install-Recommends false", "--aptopt=Acquire::Languages none"]
    # The tree of a build that the machine's crash interrupts is thrown away.
    options += ["--dpkgopt=force-unsafe-io", f"--essential-hook=sync-in {shlex.quote(str(overlay))} /"]
    options += [f"--include={','.join(packages)}"]
    # apt has checked the signatures when it fetched the packages into this folder, which is root's.
    source = f"deb [trusted=yes] copy://{quote(str(debs))} ./"
    return [*ALONE, "mmdebstrap", *options, "", str(tree), source]


def make(debs: Path, work: Path, packages: Sequence[str], identities: Identities) -> Path:
    """Install `packages` out of the folder `debs` into a folder below `work`. Raises BuildError, OSError."""
    overlay, tree = work / "overlay", work / "tree"
    for name, text in files(identities).items():
        (overlay / name).parent.mkdir(parents=True, exist_ok=True)
        (overlay / name).write_text(text)
    run(command(debs, overlay, tree, packages), "The packages could not be installed.")
    what = "The services of the image could not be enabled."
    run(["chroot", str(tree), "systemctl", "enable", *SERVICES], what)
    boot.prepare_tree(tree, identities)
    clean(tree)
    return tree


def clean(tree: Path) -> None:
    """Remove what is only of the build, or of the machine that builds."""
    for name in _LEFT_BEHIND:
        pattern = tree / name
        # Not by glob(), which passes over links that lead nowhere.
        among = pattern.parent.iterdir() if pattern.parent.is_dir() else ()
        for path in [path for path in among if fnmatchcase(path.name, pattern.name)]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    # Empty: systemd makes one at the first start.
    (tree / "etc/machine-id").write_text("")
