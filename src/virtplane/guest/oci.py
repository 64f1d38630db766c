"""A container disk as an OCI image archive: one layer with the disk under ``/disk``, owned by user 107.

KubeVirt users build the same with ``FROM scratch`` and ``ADD --chown=107:107 disk.img /disk/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from virtplane.oci import ImageConfig, LayerWriter
from virtplane.oci import write_archive as write_image

_DISK_USER = 107
_FAST = 1
"""gzip's level: disks are packed by qemu-img, and are imported once."""


def write_archive(
    disk: Path, archive: Path, reference: str, boot_files: Mapping[str, Path] | None = None
) -> str:
    """Write `disk` (raw or qcow2) as the image `reference` to `archive`. Returns the manifest's digest.

    `boot_files` come into the folder ``/boot``, by name: what `kernelBoot` starts.
    """
    blob = archive.with_name(f".{archive.name}.layer")
    try:
        writer = LayerWriter(blob, level=_FAST)
        with writer:
            if boot_files:
                writer.add_directory("boot")
            for name, path in sorted((boot_files or {}).items()):
                writer.add_file(f"boot/{name}", path)
            writer.add_directory("disk", owner=_DISK_USER)
            writer.add_file(f"disk/{disk.name}", disk, owner=_DISK_USER)
        return write_image(archive, reference, [writer.finished()], ImageConfig("virtplane guest"))
    finally:
        blob.unlink(missing_ok=True)
