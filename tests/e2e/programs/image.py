"""One image with the servers of the distribution that tests run: no registry is needed for it.

The packages are unpacked, not installed: the machine gets none of them. ``python -m tests.e2e.programs.image
FILE`` builds it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from virtplane import oci
from virtplane.image import distribution, system

REFERENCE = "virtplane.local/programs:latest"
PACKAGES = ("busybox-static", "curl", "docker-registry", "nginx", "postgresql", "redis-server")
USER = 70
"""Its name is postgres: ``initdb`` refuses to run as root, and as a user without a name."""

_LEFT_OUT = (
    "adduser",
    "debconf",
    "dpkg",
    "gcc-",
    "libc-l10n",
    "libdb5",
    "libgdbm",
    "libllvm",
    "libperl",
    "libz3",
    "locales",
    "perl",
    "usrmerge",
)
"""Begins of names: scripts of packages and the just-in-time compiler, two thirds of the size."""
_COMMANDS = ("cat", "grep", "head", "mkdir", "mv", "sh", "sleep", "true", "nslookup")


def build(archive: Path) -> None:
    """Write the image to `archive`. Raises BuildError."""
    with tempfile.TemporaryDirectory(prefix="virtplane-programs-") as name:
        folder = Path(name)
        # apt downloads as a user of its own, who must be able to write here.
        folder.chmod(0o755)
        debs = distribution.fetch(folder / "debs", PACKAGES)
        tree = folder / "tree"
        distribution.unpack([deb for deb in debs if not deb.name.startswith(_LEFT_OUT)], tree)
        _complete(tree)
        with oci.LayerWriter(folder / "layer.tar.gz", level=1) as layer:
            layer.add_tree(tree)
        config = oci.ImageConfig(
            "virtplane's tests", distribution.architecture(), {"PATH": _search_path(tree)}, user=str(USER)
        )
        oci.write_archive(archive, REFERENCE, [layer.finished()], config)


def _complete(tree: Path) -> None:
    system.complete(tree)
    with (tree / "etc/passwd").open("a") as passwd:
        passwd.write(f"postgres:x:{USER}:{USER}::/tmp:/bin/sh\n")
    with (tree / "etc/group").open("a") as group:
        group.write(f"postgres:x:{USER}:\n")
    for name in ("var/lib/nginx", "var/log/nginx"):
        (tree / name).mkdir(parents=True, exist_ok=True)
        (tree / name).chmod(0o1777)
    for name in _COMMANDS:
        command = tree / "usr/bin" / name
        if not command.exists():
            command.symlink_to("busybox")


def _search_path(tree: Path) -> str:
    """With the programs of PostgreSQL, whose folder has the version in its name."""
    (programs,) = (tree / "usr/lib/postgresql").glob("*/bin")
    return f"/{programs.relative_to(tree)}:{system.SEARCH_PATH}"


if __name__ == "__main__":
    build(Path(sys.argv[1]))
