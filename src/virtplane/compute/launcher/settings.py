"""Paths and options of one launcher."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass
from pathlib import Path

LIBVIRT_SOCKET = "libvirt/libvirt-sock"
"""Below the runtime directory; the monolithic daemon's name, also used with virtqemud."""


@dataclass(frozen=True)
class Settings:
    """What the pod's command line says. Directories are the mount points of the pod's volumes."""

    name: str
    uid: str
    namespace: str
    share_directory: Path = Path("/var/run/kubevirt")
    private_directory: Path = Path("/var/run/kubevirt-private")
    ephemeral_directory: Path = Path("/var/run/kubevirt-ephemeral-disks")
    runtime_directory: Path = Path("/var/run")
    """``XDG_RUNTIME_DIR`` of the libvirt daemon, which makes ``libvirt/`` in it."""
    grace_period_seconds: int = 30

    @property
    def control_socket(self) -> Path:
        """Where virt-handler connects once the launcher is ready."""
        return self.share_directory / "sockets" / "launcher-sock"

    @property
    def initial_socket(self) -> Path:
        """The control socket's name before the launcher is ready."""
        return self.share_directory / "sockets" / "launcher-init-sock"

    @property
    def libvirt_socket(self) -> Path:
        """Where the libvirt daemon answers."""
        return self.runtime_directory / LIBVIRT_SOCKET

    @property
    def home_directory(self) -> Path:
        """Home, configuration and data of the libvirt daemon; short, for libvirt puts sockets below it."""
        return self.private_directory

    @property
    def cache_directory(self) -> Path:
        """``XDG_CACHE_HOME``: virt-handler puts the node's QEMU capabilities here before libvirt starts."""
        return self.runtime_directory / "libvirt" / "cache"


def parse(argv: list[str]) -> Settings:
    """The settings of a command line. Options that only other implementations act on are accepted."""
    parser = argparse.ArgumentParser(prog="virt-launcher", description="Supervise one virtual machine.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--uid", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--kubevirt-share-dir", type=Path, default=Settings.share_directory)
    parser.add_argument("--private-dir", type=Path, default=Settings.private_directory)
    parser.add_argument("--ephemeral-disk-dir", type=Path, default=Settings.ephemeral_directory)
    parser.add_argument("--runtime-dir", type=Path, default=Settings.runtime_directory)
    parser.add_argument(
        "--grace-period-seconds", type=int, default=30, help="until SIGTERM becomes a power cut"
    )
    known, _ = parser.parse_known_args(argv)
    return Settings(
        name=known.name,
        uid=known.uid,
        namespace=known.namespace,
        share_directory=known.kubevirt_share_dir,
        private_directory=known.private_dir,
        ephemeral_directory=known.ephemeral_disk_dir,
        runtime_directory=known.runtime_dir,
        grace_period_seconds=known.grace_period_seconds,
    )


def libvirt_daemon() -> str:
    """The QEMU daemon of modular libvirt where it is installed, else the monolithic one."""
    for name in ("virtqemud", "libvirtd"):
        path = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
        if path:
            return path
    raise FileNotFoundError("neither virtqemud nor libvirtd is installed in this image")
