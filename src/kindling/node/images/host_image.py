"""The *host image*: containers that run the machine's own programs.

The image itself is empty; its containers get /usr, the Python environment that this agent runs in, the
source tree of an editable installation and what programs need of /etc, all read-only and at the same paths.
The environment's programs are in /usr/bin as well, where those of an ordinary image are: it is an overlay of
the machine's /usr/bin, which comes first, and the environment's.

Root in a container reads as root of the machine, so what packages and administrators keep from other users
(keys, rules, programs for one group) is covered: files by /dev/null, directories by an empty one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from kindling.node.volumes import mounts as node_mounts
from kubecore import mountinfo

REPOSITORY = "kindling.local/host"

_ETC = (
    "alternatives",
    "ca-certificates",
    "ethertypes",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "mke2fs.conf",
    "netconfig",
    "protocols",
    "rpc",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
)
_EMPTY = Path("/run/kindling-empty")
"""Covers directories; in the node's own /run."""
_BIN = Path("/usr/bin")
_OVERLAYS = Path("/run/kindling-bin")
"""Where /usr/bin with the environment's programs is mounted; in the node's own /run."""

_PACKAGES = Path("/var/lib/dpkg/status")
"""Changes whenever a package does."""
_LOCAL = Path("/usr/local")
"""Where files appear without any package."""


def is_host_image(reference: str) -> bool:
    """Whether an image reference names the host image (any tag)."""
    return reference.partition("@")[0].rpartition(":")[0] == REPOSITORY or reference == REPOSITORY


def source_tree() -> Path:
    """The directory that this package was imported from."""
    return Path(__file__).resolve().parents[3]


def bind_paths() -> list[Path]:
    """Paths of the machine that host containers see, outermost first, none inside another."""
    wanted = [Path("/usr"), Path(sys.prefix), Path(sys.base_prefix), source_tree()]
    for name in ("bin", "sbin", "lib", "lib64"):
        root = Path("/") / name
        if root.is_dir() and not root.is_symlink():
            wanted.append(root)
    wanted += [path for name in _ETC if (path := Path("/etc") / name).exists()]
    return outermost(wanted)


def outermost(paths: Iterable[Path]) -> list[Path]:
    """The entries of `paths` that are not inside another entry."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda item: len(item.parts)):
        if not any(path.is_relative_to(outer) for outer in kept):
            kept.append(path)
    return kept


def own_paths() -> list[Path]:
    """Files of the product, which its containers may read whatever the files' modes are."""
    return [Path(sys.prefix), source_tree()]


def hidden(paths: Iterable[Path], own: Collection[Path] = ()) -> list[Path]:
    """Files and directories below `paths` that are not world-readable, outermost first, except those in
    `own`.

    Raises OSError when the search for them fails.
    """
    private_directory = ("-type", "d", "!", "-perm", "-o=rx", "-print0", "-prune")
    private_file = ("!", "-type", "d", "!", "-type", "l", "!", "-perm", "-o=r", "-print0")
    command = ["find", *map(str, paths), "-ignore_readdir_race", *private_directory, "-o", *private_file]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        raise OSError(
            f"searching for files that the host image must hide failed: {done.stderr.decode()[:300]}"
        )
    found = [Path(os.fsdecode(name)) for name in done.stdout.split(b"\0") if name]
    return [path for path in found if not any(path.is_relative_to(directory) for directory in own)]


class HostFiles:
    """The machine's files as containers of the host image see them. Its methods block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: tuple[int, list[Path]] = (-1, [])

    def covered(self) -> list[Path]:
        """The paths to hide from containers of the host image.

        The search is repeated when packages have changed, and in /usr/local every time. Raises OSError.
        """
        with self._lock:
            stamp = _PACKAGES.stat().st_mtime_ns if _PACKAGES.exists() else -1
            if stamp < 0 or stamp != self._known[0]:
                self._known = (stamp, hidden(bind_paths(), own_paths()))
            local = hidden([_LOCAL], own_paths()) if _LOCAL.is_dir() else []
            _EMPTY.mkdir(mode=0o555, exist_ok=True)
            known = [path for path in self._known[1] if path.exists()]
        return list(dict.fromkeys(known + local))

    def programs(self) -> Path | None:
        """The folder to show as /usr/bin, None where the environment's programs are in the machine's own.

        A new overlay is made whenever packages change, because an overlay may not show changes in its lower
        directories. Raises OSError.
        """
        own = Path(sys.prefix) / "bin"
        if own == _BIN or not own.is_dir() or not any(_BIN.is_relative_to(path) for path in bind_paths()):
            return None
        with self._lock:
            stamps = [path.stat().st_mtime_ns for path in (_PACKAGES, _BIN, own) if path.exists()]
            folder = _OVERLAYS / str(max(stamps))
            # Compare device numbers: the mount table also lists mounts of the machine's /run, which the
            # node's own /run hides.
            if not folder.is_mount():
                for former in mountinfo.mount_points_below(_OVERLAYS):
                    node_mounts.unmount(former)  # running containers keep the overlay mounted
                folder.mkdir(parents=True, exist_ok=True)
                lower = ":".join(str(path).replace("\\", "\\\\").replace(":", "\\:") for path in (_BIN, own))
                node_mounts.mount("overlay", folder, "overlay", node_mounts.MS_RDONLY, f"lowerdir={lower}")
                node_mounts.make_private(folder)
        return folder

    def mount_tree(self, target: Path) -> None:
        """Mount at `target` the files that an image volume of the host image shows, the same as in its
        containers.

        Raises OSError. Doing it twice changes nothing.
        """
        mounted = set(mountinfo.mount_points_below(target))
        for path in bind_paths():
            inside = target / path.relative_to("/")
            if path.is_dir():
                inside.mkdir(parents=True, exist_ok=True)
            else:
                inside.parent.mkdir(parents=True, exist_ok=True)
                inside.touch()
            _bind_once(path, inside, mounted)
        if programs := self.programs():
            _bind_once(programs, target / _BIN.relative_to("/"), mounted)
        for path in self.covered():
            _bind_once(_cover(path), target / path.relative_to("/"), mounted)
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            link, here = Path("/") / name, target / name
            if link.is_symlink() and not here.is_symlink():
                here.symlink_to(link.readlink())

    def mounts(self, taken: Collection[str]) -> list[dict[str, Any]]:
        """CRI mounts of a host container; paths in `taken` (the container's own mounts) are left alone.

        Raises OSError.
        """
        shown = [(path, path) for path in bind_paths()]
        if programs := self.programs():
            shown.append((programs, _BIN))
        shown += [(_cover(path), path) for path in self.covered()]
        return [
            {"container_path": str(path), "host_path": str(source), "readonly": True, "propagation": 0}
            for source, path in shown
            if str(path) not in taken
        ]


def _cover(path: Path) -> Path:
    return _EMPTY if path.is_dir() else Path("/dev/null")


def _bind_once(source: Path, inside: Path, mounted: Collection[Path]) -> None:
    if inside in mounted:
        return
    node_mounts.bind(str(source), inside, read_only=True)
    node_mounts.make_private(inside)
