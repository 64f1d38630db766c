"""Builds the image once for each release of Debian, and keeps it in a folder as an OCI archive."""

from __future__ import annotations

import shutil
from pathlib import Path

import virtplane
from virtplane.api import guestfs
from virtplane.api.launcherpods import QEMU_USER
from virtplane.image import system
from virtplane.image.debian import packages
from virtplane.image.guestfs import tree
from virtplane.image.keeping import Kept
from virtplane.image.locking import Step
from virtplane.oci import ImageConfig, LayerWriter, write_archive

_OS_RELEASE = Path("/etc/os-release")
_NEEDED_BYTES = 3_000_000_000
"""The work folder at its fullest: packages, the tree with the appliance, the layer and the archive."""
_FAST = 1
"""gzip's level: what is large, the appliance, takes most of the build's time otherwise."""


def archive_path(folder: Path) -> Path:
    """Where the archive is kept in `folder`. Raises BuildError where this machine does not run Debian."""
    # The archive has the product's version in its name for the image.
    sources = [*Path(__file__).parent.glob("*.py"), Path(virtplane.__file__)]
    return _kept().path(folder, packages.os_release(_OS_RELEASE), sources)


def ensure(folder: Path, step: Step, *, force: bool = False) -> Path:
    """The archive's path in `folder`; it is built as `Kept.ensure` says. Raises BuildError, OSError."""
    return _kept().ensure(archive_path(folder), step, force=force)


def _kept() -> Kept:
    return Kept(guestfs.IMAGE, ".tar", _NEEDED_BYTES, _build)


def _build(work: Path, step: Step) -> Path:
    packages.install_missing_tools(step, shutil.which)
    # As for the Debian disk: apt's user must get in, and to the tree nobody.
    work.chmod(0o711)
    debs, private, archive = work / "debs", work / "private", work / "image.tar"
    private.mkdir(mode=0o700)
    with step("Fetching the distribution's packages"):
        count = packages.fetch(debs, tree.INCLUDED)
    with step(f"Installing {count} packages, and making the appliance"):
        root = tree.make(debs, private)
        shutil.rmtree(debs)
    with step("Packing the image"):
        layer = LayerWriter(private / "layer.tar.gz", level=_FAST)
        with layer:
            layer.add_tree(root)
        shutil.rmtree(root)
        write_archive(archive, guestfs.LOADED_IMAGE, [layer.finished()], _config())
    return archive


def _config() -> ImageConfig:
    return ImageConfig(
        created_by="virtplane image build guestfs",
        environment={"PATH": system.SEARCH_PATH, "LANG": "C.UTF-8"},
        # The owner of guests' disks; a number, so that pods may insist that it is not root.
        user=str(QEMU_USER),
        working_directory="/",
        labels={
            "org.opencontainers.image.title": guestfs.IMAGE,
            "org.opencontainers.image.version": virtplane.__version__,
        },
    )
