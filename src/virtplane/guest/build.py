"""Build the demo guest: ``python -m virtplane.guest.build ARCHIVE`` writes a container disk."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from virtplane.guest import disk, initramfs, oci, packages
from virtplane.guest.variants import CLOUD, FULL, Variant

USER, PASSWORD = "root", "virtplane"
BUILD_ERRORS = (packages.PackageError, initramfs.MissingPart, disk.BootLoaderError)
"""What a build may raise."""


def build(archive: Path, variant: Variant = CLOUD, *, keep_disk: Path | None = None) -> str:
    """Write a demo guest's container disk to `archive` (and the raw disk to `keep_disk`).

    Returns the manifest's digest. Raises BUILD_ERRORS.
    """
    with tempfile.TemporaryDirectory(prefix="virtplane-guest-") as work:
        folder = Path(work)
        tree = packages.fetch(folder, variant.kernels)
        root = folder / "root"
        root.mkdir()
        contents = initramfs.build(tree, root, variant.modules)
        image = folder / "disk.img"
        kernel = initramfs.kernel_of(tree)
        disk.build(tree, kernel, contents, image)
        packed = folder / "guest.qcow2"
        _pack(image, packed)
        if keep_disk is not None:
            keep_disk.write_bytes(image.read_bytes())
        archive.parent.mkdir(parents=True, exist_ok=True)
        boot_files = {"vmlinuz": kernel, "initrd.gz": image.parent / "initrd.gz"}
        return oci.write_archive(
            packed, archive, variant.reference, boot_files if variant.has_boot_files else None
        )


def _pack(image: Path, packed: Path) -> None:
    """Convert to qcow2, which omits empty blocks; qemu-img's output is reproducible."""
    subprocess.run(
        ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(image), str(packed)],
        check=True,
        capture_output=True,
    )


def main() -> int:
    """Command line of the builder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--keep-disk", type=Path, metavar="FILE", help="also write the raw disk")
    parser.add_argument("--full", action="store_true", help="with drivers for all emulated hardware")
    arguments = parser.parse_args()
    try:
        variant = FULL if arguments.full else CLOUD
        digest = build(arguments.archive, variant, keep_disk=arguments.keep_disk)
    except BUILD_ERRORS as error:
        sys.stderr.write(f"The guest could not be built: {error}\n")
        return 1
    sys.stdout.write(f"{digest}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
