"""``virtplane image``: what is built of this machine's packages.

``virtplane image FILE``: one OCI image archive of the product, for clusters of other machines.
``virtplane image build debian``: a disk for virtual machines, kept in the state directory.
``virtplane image build guestfs``: the image of ``virtctl guestfs``, kept there as well.

Exit codes: 0 done; 1 the image could not be built; 2 wrong arguments; 3 not permitted; 130 interrupted.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import virtplane
from virtplane.api.accounts import COMPONENT_USER
from virtplane.cli.install import DEFAULT_IMAGE
from virtplane.cli.state import IMAGES, add_state_option
from virtplane.cli.terminal import (
    EXIT_FAILED,
    EXIT_NOT_PERMITTED,
    EXIT_UNUSABLE,
    CommandError,
    report,
    say,
    step,
)
from virtplane.image import distribution, product, system
from virtplane.image.commands import BuildError, NotRoot
from virtplane.image.debian import build as debian
from virtplane.image.guestfs import build as guestfs
from virtplane.oci import ImageConfig, Layer, LayerWriter, write_archive

_BUILD = "build"
"""The first argument where something is to be kept; a file of this name is ``./build``."""

_KEPT = {"debian": debian.ensure, "guestfs": guestfs.ensure}

_NEEDED_BYTES = 1_500_000_000
"""The work folder at its fullest: packages, what is in them, and the compressed layers."""


def main(arguments: list[str]) -> int:
    """Command line."""
    keeps = arguments[:1] == [_BUILD]
    options = kept_parser().parse_args(arguments[1:]) if keeps else parser().parse_args(arguments)
    try:
        with _ending_by_signal():
            if keeps:
                _build_kept(options.name, options.state, force=options.force)
            else:
                _build(options.file, options.name)
    except CommandError as error:
        return report(error)
    except BuildError as error:
        code = EXIT_NOT_PERMITTED if isinstance(error, NotRoot) else EXIT_FAILED
        return report(CommandError(error.what, error.why, error.do, code=code))
    except OSError as error:
        return report(CommandError("The image could not be written.", str(error), "Is the disk full?"))
    except KeyboardInterrupt:
        say("Interrupted; nothing is left behind.")
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of ``image``."""
    made = argparse.ArgumentParser(
        prog="virtplane image",
        description="Build one OCI image of virtplane with QEMU and libvirt from this system's packages.",
        epilog="Load it with: ctr --namespace k8s.io images import FILE, or copy it to a registry."
        f" `virtplane image {_BUILD} debian` builds a disk for virtual machines instead.",
    )
    made.add_argument("file", type=Path, metavar="FILE", help="the archive to write")
    made.add_argument("--name", default=DEFAULT_IMAGE, help=f"name of the image (default: {DEFAULT_IMAGE})")
    return made


def kept_parser() -> argparse.ArgumentParser:
    """The options of ``image build``."""
    made = argparse.ArgumentParser(
        prog=f"virtplane image {_BUILD}",
        description="Build one of these from this system's packages, and print its path. It is kept in the"
        " state directory; later calls only print the path. debian: a bootable disk (qcow2). guestfs: the"
        " image of `virtctl guestfs`, an OCI archive.",
    )
    made.add_argument("name", choices=tuple(_KEPT), help="of the release of Debian that this system runs")
    made.add_argument("--force", action="store_true", help="build it anew, from the newest packages")
    add_state_option(made)
    return made


def _build_kept(name: str, state: Path, *, force: bool) -> None:
    image = _KEPT[name](state / IMAGES, step, force=force)
    built = image.stat()
    age_days = max(0, int((time.time() - built.st_mtime) // 86400))
    age = f", {age_days} days old (--force builds a new one)" if age_days else ""
    say(f"{built.st_size / 1e6:.0f} MB{age}")
    print(image)


def _build(archive: Path, name: str) -> None:
    _check(archive, name)
    root = product.checkout()
    with tempfile.TemporaryDirectory(prefix="virtplane-image-") as folder:
        work = Path(folder)
        # apt downloads as an unprivileged user, who must be able to enter the directory below.
        work.chmod(0o755)
        _check_space(work)
        layers = _layers(root, work)
        with step(f"Writing {archive}"):
            digest = write_archive(archive, name, layers, _config(distribution.architecture()))
    size = archive.stat().st_size
    say(f"{name}  {digest}  {size / 1e6:.0f} MB in {archive}")


def _layers(root: Path, work: Path) -> list[Layer]:
    """Fill and pack the three layers of the image, lowest first."""
    trees = {name: work / name for name in ("system", "dependencies", "product")}
    debs = work / "debs"
    with step("Fetching the distribution's packages"):
        packages = distribution.fetch(debs)
    with step(f"Unpacking {len(packages)} packages"):
        distribution.unpack(packages, trees["system"])
        system.complete(trees["system"])
        shutil.rmtree(debs)
    python = distribution.python_version(trees["system"])
    with step("Installing the Python packages"):
        product.install_dependencies(root, trees["dependencies"], python)
        product.install_product(root, trees["product"])
    with step("Compiling Python modules"):
        for tree in trees.values():
            product.compile_python(tree, python)
    layers = []
    for name, tree in trees.items():
        with step(f"Packing the layer {name}"), LayerWriter(work / f"{name}.tar.gz") as writer:
            writer.add_tree(tree)
        layers.append(writer.finished())
        shutil.rmtree(tree)
    return layers


def _config(architecture: str) -> ImageConfig:
    return ImageConfig(
        created_by="virtplane image",
        architecture=architecture,
        environment={"PATH": system.SEARCH_PATH, "LANG": "C.UTF-8"},
        user=str(COMPONENT_USER),
        working_directory="/",
        labels={
            "org.opencontainers.image.title": "virtplane",
            "org.opencontainers.image.description": "Virtual machines through the Kubernetes API",
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.version": virtplane.__version__,
        },
    )


def _check(archive: Path, name: str) -> None:
    """Detect errors early that would otherwise show after minutes. Raises CommandError."""
    if not is_reference(name):
        raise CommandError(
            f"{name!r} is not the name of an image.",
            "It needs a registry or localhost, a path in lower case, and a tag.",
            f"For example: --name {DEFAULT_IMAGE}",
            code=EXIT_UNUSABLE,
        )
    if archive.is_dir() or not archive.parent.is_dir():
        why = f"{archive} is a folder." if archive.is_dir() else f"There is no folder {archive.parent}."
        raise CommandError(f"{archive} cannot be written.", why, "Name a file.", code=EXIT_UNUSABLE)


def is_reference(name: str) -> bool:
    """Whether `name` is a complete image name: registry, path and tag."""
    path, _, tag = name.rpartition(":")
    registry, slash, rest = path.partition("/")
    return bool(
        slash
        and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?", registry)
        and re.fullmatch(r"[a-z0-9]+([._/-]+[a-z0-9]+)*", rest)
        and re.fullmatch(r"\w[\w.-]{0,127}", tag, re.ASCII)
    )


def _check_space(work: Path) -> None:
    free = shutil.disk_usage(work).free
    if free < _NEEDED_BYTES:
        raise CommandError(
            "There is not enough space to build the image.",
            f"{work.parent} has {free / 1e6:.0f} MB free; {_NEEDED_BYTES / 1e6:.0f} MB are needed.",
            "Make room, or name another folder in the environment variable TMPDIR.",
        )


@contextmanager
def _ending_by_signal() -> Iterator[None]:
    """Make SIGTERM end the build like Ctrl-C, so that the work directory is removed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
