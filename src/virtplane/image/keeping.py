"""What takes minutes to build is built once, by one process, and kept in a folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from virtplane.image import distribution
from virtplane.image.commands import BuildError, NotRoot
from virtplane.image.debian import packages
from virtplane.image.locking import Step, alone

_REMOVALS = 20
"""How often it is tried to remove a work folder; what is left then, the next build removes."""
_CACHE_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Built by virtplane; it can be built again.\n"


@dataclass(frozen=True, slots=True)
class Kept:
    """One thing that is built of this machine's packages and kept.

    `stem` and `suffix` are of its file's name, `needed_bytes` is its work folder at its fullest, and `build`
    makes it in such a folder; it raises BuildError, OSError.
    """

    stem: str
    suffix: str
    needed_bytes: int
    build: Callable[[Path, Step], Path]

    def path(self, folder: Path, os_release: str, sources: Iterable[Path]) -> Path:
        """Where it is kept in `folder`; its name changes with the release and with how it is built.

        Raises BuildError where this machine does not run Debian.
        """
        release = packages.release(os_release)
        digest = hashlib.sha256()
        for path in sorted(sources):
            digest.update(path.read_bytes())
        return folder / f"{self.stem}-{release}-{digest.hexdigest()[:12]}{self.suffix}"

    def ensure(self, image: Path, step: Step, *, force: bool = False) -> Path:
        """The file at the path `image`; it is built unless it is there, or with `force` in any case.

        Only one process builds; others wait, and take what it has built. A build that is interrupted leaves
        no file, and what else it leaves the next one removes. Raises BuildError, OSError.
        """
        if image.exists() and not force:
            return image
        if os.geteuid() != 0:
            what = "Such an image is built by root: packages are installed with their owners."
            raise NotRoot(what, "", "Run this command as root, or through sudo.")
        packages.check_machine(distribution.architecture())
        folder = image.parent
        _make_folder(folder)
        before = _state(image)
        with alone(folder / f"{self.stem}.lock", step, "Waiting for another build"):
            if image.exists() and (not force or _state(image) != before):
                return image
            prefix = f".{self.stem}-"
            for left in folder.glob(f"{prefix}*"):
                _remove(left)
            work = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
            try:
                _check_space(work, self.needed_bytes)
                self._keep(self.build(work, step), image)
            finally:
                _remove(work)
        return image

    def _keep(self, built: Path, image: Path) -> None:
        """Put the file in its place at once, complete even after a crash; remove those of other builds."""
        built.chmod(0o644)
        with built.open("rb") as stream:
            os.fsync(stream.fileno())
        built.replace(image)
        descriptor = os.open(image.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        for other in image.parent.glob(f"{self.stem}-*{self.suffix}"):
            if other != image:
                other.unlink()


def _check_space(work: Path, needed_bytes: int) -> None:
    free = shutil.disk_usage(work).free
    if free < needed_bytes:
        raise BuildError(
            "There is not enough space to build the image.",
            f"{work.parent} has {free / 1e6:.0f} MB free; {needed_bytes / 1e6:.0f} MB are needed.",
            "Make room, or name another folder with --state.",
        )


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
