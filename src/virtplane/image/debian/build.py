"""Builds the image once for each release of Debian, and keeps it in a folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from virtplane.image import distribution
from virtplane.image.commands import BuildError, NotRoot
from virtplane.image.debian import boot, disk, packages, tree
from virtplane.image.locking import Step, alone

_OS_RELEASE = Path("/etc/os-release")
_WORK_PREFIX = ".debian-"
_REMOVALS = 20
"""How often it is tried to remove a work folder; what is left then, the next build removes."""
_CACHE_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Built by virtplane; it can be built again.\n"
_NEEDED_BYTES = 2_500_000_000
"""The work folder at its fullest: packages, the tree, the disk, and the image."""


def image_path(folder: Path) -> Path:
    """Where the image is kept in `folder`; its name changes with the release and with how it is built.

    Raises BuildError where this machine does not run Debian.
    """
    release = packages.release(_OS_RELEASE.read_text() if _OS_RELEASE.exists() else "")
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return folder / f"debian-{release}-{digest.hexdigest()[:12]}.qcow2"


def ensure(folder: Path, step: Step, *, force: bool = False) -> Path:
    """The image's path in `folder`; it is built unless it is there, or with `force` in any case.

    Only one process builds; others wait, and take what it has built. A build that is interrupted leaves no
    image, and what else it leaves the next one removes. Raises BuildError, OSError.
    """
    image = image_path(folder)
    if image.exists() and not force:
        return image
    if os.geteuid() != 0:
        what = "The Debian image is built by root: packages are installed with their owners."
        raise NotRoot(what, "", "Run this command as root, or through sudo.")
    packages.check_machine(distribution.architecture())
    _make_folder(folder)
    before = _state(image)
    with alone(folder / "debian.lock", step, "Waiting for another build"):
        if image.exists() and (not force or _state(image) != before):
            return image
        for left in folder.glob(f"{_WORK_PREFIX}*"):
            _remove(left)
        work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=folder))
        try:
            _keep(_build(work, step), image)
        finally:
            _remove(work)
    return image


def _make_folder(folder: Path) -> None:
    """Make the folder. A new one has the tag of caches (CACHEDIR.TAG), in which nothing is anybody's
    own: so a cluster takes a directory for its state in which there is only that.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        (folder / "CACHEDIR.TAG").write_text(_CACHE_TAG)


def _state(image: Path) -> tuple[int, int] | None:
    try:
        found = image.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _remove(work: Path) -> None:
    """Remove a work folder. Programs of an interrupted build may write into it until they are killed."""
    for _ in range(_REMOVALS):
        shutil.rmtree(work, ignore_errors=True)
        if not work.exists():
            return
        time.sleep(0.1)


def _build(work: Path, step: Step) -> Path:
    free = shutil.disk_usage(work).free
    if free < _NEEDED_BYTES:
        raise BuildError(
            "There is not enough space to build the image.",
            f"{work.parent} has {free / 1e6:.0f} MB free; {_NEEDED_BYTES / 1e6:.0f} MB are needed.",
            "Make room, or name another folder with --state.",
        )
    if missing := packages.missing_tools(shutil.which):
        with step(f"Installing {' '.join(missing)}"):
            packages.install_tools(missing)
    identities = disk.new_identities()
    # apt downloads as an unprivileged user, who must be able to enter the folder; the tree, which has
    # programs that run as root whoever calls them, is out of reach.
    work.chmod(0o711)
    debs, private, image = work / "debs", work / "private", work / "disk.qcow2"
    private.mkdir(mode=0o700)
    with step("Fetching the distribution's packages"):
        count = packages.fetch(debs)
    with step(f"Installing {count} packages"):
        root = tree.make(debs, private, packages.INCLUDED, identities)
    with step("Writing the disk"):
        loader = boot.make_loader(root, private, identities)
        raw = private / "disk.raw"
        disk.write(raw, root, loader, identities)
    with step("Compressing the disk"):
        disk.compress(raw, image)
    return image


def _keep(built: Path, image: Path) -> None:
    """Put the image in its place at once, complete even after a crash; remove those of other builds."""
    built.chmod(0o644)
    with built.open("rb") as stream:
        os.fsync(stream.fileno())
    built.replace(image)
    descriptor = os.open(image.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for other in image.parent.glob("debian-*.qcow2"):
        if other != image:
            other.unlink()
