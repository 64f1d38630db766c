"""The *host image*: containers that run the machine's own programs.

The image itself is empty; its containers get /usr, the Python environment that this agent runs in, the
source tree of an editable installation and what programs need of /etc, all read-only and at the same paths.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from kindling.node.volumes import mounts as node_mounts

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
    "ssl",
)


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
    """`paths` without those inside another one of them."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda item: len(item.parts)):
        if not any(path.is_relative_to(outer) for outer in kept):
            kept.append(path)
    return kept


def mount_tree(target: Path) -> None:
    """Build at `target` what a volume of the host image shows: the same files that its containers see.

    Raises OSError. Doing it twice changes nothing.
    """
    for path in bind_paths():
        inside = target / path.relative_to("/")
        if node_mounts.is_mounted(inside):
            continue
        if path.is_dir():
            inside.mkdir(parents=True, exist_ok=True)
        else:
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.touch()
        node_mounts.bind(str(path), inside, read_only=True)
        node_mounts.make_private(inside)
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        link, here = Path("/") / name, target / name
        if link.is_symlink() and not here.is_symlink():
            here.symlink_to(link.readlink())


def mounts(taken: Collection[str]) -> list[dict[str, Any]]:
    """CRI mounts of a host container; paths in `taken` (the container's own mounts) are left alone."""
    return [
        {"container_path": str(path), "host_path": str(path), "readonly": True, "propagation": 0}
        for path in bind_paths()
        if str(path) not in taken
    ]
