"""Builds the disk once for each release of Debian, and keeps it in a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from virtplane.image.debian import boot, disk, packages, tree
from virtplane.image.keeping import Kept
from virtplane.image.locking import Step

_OS_RELEASE = Path("/etc/os-release")
_NEEDED_BYTES = 2_500_000_000
"""The work folder at its fullest: packages, the tree, the disk, and the image."""


def image_path(folder: Path) -> Path:
    """Where the image is kept in `folder`. Raises BuildError where this machine does not run Debian."""
    return _kept().path(folder, packages.os_release(_OS_RELEASE), Path(__file__).parent.glob("*.py"))


def ensure(folder: Path, step: Step, *, force: bool = False) -> Path:
    """The image's path in `folder`; it is built as `Kept.ensure` says. Raises BuildError, OSError."""
    return _kept().ensure(image_path(folder), step, force=force)


def _kept() -> Kept:
    return Kept("debian", ".qcow2", _NEEDED_BYTES, _build)


def _build(work: Path, step: Step) -> Path:
    packages.install_missing_tools(step, shutil.which)
    identities = disk.new_identities()
    # apt downloads as an unprivileged user, who must be able to enter the folder; the tree, which has
    # programs that run as root whoever calls them, is out of reach.
    work.chmod(0o711)
    debs, private, image = work / "debs", work / "private", work / "disk.qcow2"
    private.mkdir(mode=0o700)
    with step("Fetching the distribution's packages"):
        count = packages.fetch(debs, packages.INCLUDED)
    with step(f"Installing {count} packages"):
        root = tree.make(debs, private, packages.INCLUDED, identities)
    with step("Writing the disk"):
        loader = boot.make_loader(root, private, identities)
        raw = private / "disk.raw"
        disk.write(raw, root, loader, identities)
    with step("Compressing the disk"):
        disk.compress(raw, image)
    return image
