"""``virtplane load FILE...``: imports images into every node of the embedded cluster, without a registry.

``--debian`` offers a disk to its users instead (`goldenimage`).
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from virtplane.api import guestfs
from virtplane.cli import cluster
from virtplane.cli.state import IMAGES, add_state_option
from virtplane.cli.terminal import (
    EXIT_FAILED,
    EXIT_NOT_PERMITTED,
    EXIT_UNUSABLE,
    CommandError,
    require_root,
    say,
    step,
)
from virtplane.guest import build as guest
from virtplane.guest import oci
from virtplane.guest.files import FileKind, NotLoadable, disk_reference, kind_of
from virtplane.guest.variants import CLOUD, FULL, Variant
from virtplane.image.commands import BuildError, NotRoot


def parser() -> argparse.ArgumentParser:
    """The options of ``load``."""
    made = argparse.ArgumentParser(
        prog="virtplane load",
        description="Make images known to every node of the embedded cluster, without a registry.",
        epilog="An OCI or Docker archive keeps its images' names. A disk (qcow2, raw, ISO) becomes a"
        " container disk, virtplane.local/NAME:v1, with the file's name for NAME.",
    )
    add_state_option(made)
    made.add_argument("--name", help="image name for a disk, for example virtplane.local/debian:12")
    made.add_argument(
        "--demo-guest", action="store_true", help=f"also {CLOUD.reference}, built here; it knows virtio"
    )
    made.add_argument(
        "--demo-guest-full",
        action="store_true",
        help=f"also {FULL.reference}, built here; it knows all emulated hardware, and starts later",
    )
    made.add_argument(
        "--debian",
        action="store_true",
        help="also a Debian disk, built here, as DataSource kubevirt-os-images/debian: machines clone it",
    )
    made.add_argument(
        "--guestfs",
        action="store_true",
        help=f"also {guestfs.LOADED_IMAGE}, built here: `virtctl guestfs` runs it",
    )
    made.add_argument("files", nargs="*", type=Path, metavar="FILE", help="an image archive or a disk")
    return made


def main(arguments: list[str]) -> int:
    """Command line. Raises CommandError."""
    options = parser().parse_args(arguments)
    variants = [CLOUD] * options.demo_guest + [FULL] * options.demo_guest_full
    if not options.files and not variants and not options.debian and not options.guestfs:
        do = "Name a file, or --demo-guest, or --debian, or --guestfs."
        raise CommandError("There is nothing to load.", do=do, code=EXIT_UNUSABLE)
    require_root("load")
    if not (options.state / "instance.json").is_file():
        do = f"Start one: {cluster.PROGRAM} up --state {options.state}"
        raise CommandError("There is no cluster.", f"{options.state} holds none.", do)
    kinds = _kinds(options.files, options.name)
    archives = [path for path, kind in kinds.items() if kind is FileKind.ARCHIVE]
    disks = [path for path, kind in kinds.items() if kind is FileKind.DISK]
    if archives:
        load_archives(options.state, archives)
    for disk in disks:
        load_disk(options.state, disk, options.name or disk_reference(disk))
    for variant in variants:
        load_demo_guest(options.state, variant)
    if options.guestfs:
        load_guestfs(options.state)
    if options.debian:
        from virtplane.cli import goldenimage

        goldenimage.load_debian(options.state)
    return 0


def load_archives(state: Path, archives: Sequence[Path]) -> None:
    """Import image archives into every node. Raises CommandError."""
    if code := cluster.kindling("load", *map(str, archives), state=state):
        raise CommandError("An image could not be loaded.", "See the message above.", code=code)


def load_disk(state: Path, disk: Path, reference: str) -> None:
    """Import a disk into every node as the container disk `reference`. Raises CommandError."""
    images = state / IMAGES
    try:
        images.mkdir(exist_ok=True)
        # In the state directory, because packing needs twice the disk's size for a short time.
        with tempfile.TemporaryDirectory(prefix=".load-", dir=images) as folder:
            archive = Path(folder) / "disk.tar"
            with step(f"Packing {disk}"):
                oci.write_archive(disk, archive, reference)
            load_archives(state, [archive])
    except OSError as error:
        raise CommandError(f"{disk} could not be packed.", str(error), "Is the disk full?") from error
    say(f"Use it as: containerDisk: {{image: {reference}}}")


def load_demo_guest(state: Path, variant: Variant) -> None:
    """Import a demo guest into every node; it is built unless it exists. Raises CommandError."""
    archive = demo_guest_archive(state, variant)
    if not archive.exists():
        with tempfile.TemporaryDirectory(prefix="virtplane-guest-") as folder:
            with step("Building the guest's image"):
                built = build_demo_guest(Path(folder), variant)
            keep_demo_guest(built, archive)
    load_archives(state, [archive])


def load_guestfs(state: Path) -> None:
    """Import the image of ``virtctl guestfs`` into every node; it is built unless it exists.

    Raises CommandError.
    """
    from virtplane.image.guestfs import build

    try:
        (state / IMAGES).mkdir(exist_ok=True)
        archive = build.ensure(state / IMAGES, step)
    except BuildError as error:
        code = EXIT_NOT_PERMITTED if isinstance(error, NotRoot) else EXIT_FAILED
        raise CommandError(error.what, error.why, error.do, code=code) from error
    except OSError as error:
        raise CommandError("The image could not be written.", str(error), "Is the disk full?") from error
    load_archives(state, [archive])
    say("Use it as: virtctl guestfs CLAIM (with --kvm=false where guests are emulated)")


def demo_guest_archive(state: Path, variant: Variant = CLOUD) -> Path:
    """The path of a demo guest's archive; its name changes with the inputs of the build."""
    digest = hashlib.sha256()
    for path in sorted(Path(guest.__file__).parent.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.read_bytes())
    return state / IMAGES / f"{_stem(variant)}-{digest.hexdigest()[:12]}.tar"


def _stem(variant: Variant) -> str:
    return "demo-guest-full" if variant is FULL else "demo-guest"


def build_demo_guest(folder: Path, variant: Variant = CLOUD) -> Path:
    """Build a demo guest in `folder`; returns the archive's path. Raises CommandError."""
    archive = folder / "demo-guest.tar"
    try:
        guest.build(archive, variant)
    except guest.BUILD_ERRORS as error:
        raise CommandError(
            "The demo guest could not be built.", str(error), "Run apt-get update, then try again."
        ) from error
    return archive


def keep_demo_guest(built: Path, archive: Path) -> None:
    """Rename a built guest atomically to its final path, and remove those of other versions."""
    archive.parent.mkdir(exist_ok=True)
    partial = archive.with_suffix(".partial")
    shutil.copyfile(built, partial)
    partial.replace(archive)
    stem = archive.stem.rpartition("-")[0]
    for other in archive.parent.glob("demo-guest*"):
        # One of another version, or what an interrupted build has left of one.
        if other != archive and re.fullmatch(rf"{stem}-[0-9a-f]+", other.stem):
            other.unlink()


def _kinds(files: Sequence[Path], name: str | None) -> dict[Path, FileKind]:
    """The kind of each file, determined before anything is loaded. Raises CommandError."""
    kinds: dict[Path, FileKind] = {}
    for path in files:
        try:
            kinds[path] = kind_of(path)
        except NotLoadable as error:
            raise CommandError(f"{path} cannot be loaded: {error}.", code=EXIT_UNUSABLE) from error
        except OSError as error:
            why = error.strerror or str(error)
            raise CommandError(f"{path} cannot be read.", why, code=EXIT_UNUSABLE) from error
    if name is None:
        return kinds
    from virtplane.cli.image import is_reference

    if list(kinds.values()) != [FileKind.DISK]:
        raise CommandError("--name is for one disk; archives name their images.", code=EXIT_UNUSABLE)
    if not is_reference(name):
        why = "It needs a registry, a path in lower case, and a tag."
        do = "For example: --name virtplane.local/debian:12"
        raise CommandError(f"{name!r} is not the name of an image.", why, do, code=EXIT_UNUSABLE)
    return kinds
