"""A container disk as an OCI image archive: one layer with the disk under ``/disk``, owned by user 107.

KubeVirt users build the same with ``FROM scratch`` and ``ADD --chown=107:107 disk.img /disk/``.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

_EPOCH = "1970-01-01T00:00:00Z"
_DISK_USER = 107
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def write_archive(disk: Path, archive: Path, reference: str) -> str:
    """Write `disk` (raw or qcow2) as the image `reference` to `archive`. Returns the manifest's digest."""
    layer = _layer(disk)
    compressed = gzip.compress(layer, compresslevel=1, mtime=0)
    config = _encode(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": _EPOCH,
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            "history": [{"created": _EPOCH, "created_by": "virtplane guest"}],
        }
    )
    manifest = _encode(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar+gzip", compressed)],
        }
    )
    entry = _descriptor(_MANIFEST, manifest) | {
        "annotations": {
            "io.containerd.image.name": reference,
            "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
        }
    }
    index = _encode({"schemaVersion": 2, "manifests": [entry]})
    files = {"oci-layout": _encode({"imageLayoutVersion": "1.0.0"}), "index.json": index}
    for blob in (config, manifest, compressed):
        files[f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}"] = blob
    temporary = archive.with_suffix(".partial")
    with tarfile.open(temporary, "w") as tar:
        for name, content in sorted(files.items()):
            _add(tar, name, content)
    temporary.rename(archive)
    return _digest(manifest)


def _layer(disk: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        folder = tarfile.TarInfo("disk")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        folder.uid = folder.gid = _DISK_USER
        tar.addfile(folder)
        _add(tar, f"disk/{disk.name}", disk.read_bytes(), owner=_DISK_USER)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, owner: int = 0) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    entry.uid = entry.gid = owner
    tar.addfile(entry, io.BytesIO(content))


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _encode(document: dict[str, object]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
