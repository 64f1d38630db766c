"""Write OCI image archives (the layout as one tar) that ``ctr images import`` and registries' tools accept.

Layers of any size are written and hashed as streams. The same input gives the same bytes: entries come in
sorted order, belong to root unless told otherwise, and carry no times.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import stat
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

_EPOCH = "1970-01-01T00:00:00Z"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclass(frozen=True)
class Layer:
    """A finished layer: the compressed file, its digest and size, and the digest of the tar inside."""

    path: Path
    digest: str
    size_bytes: int
    diff_id: str


@dataclass(frozen=True)
class ImageConfig:
    """How containers of the image start; an empty field is left out."""

    created_by: str
    architecture: str = "amd64"
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    working_directory: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


class LayerWriter:
    """Writes one layer to `path`, entry by entry; a context manager. `finished` is for after its end."""

    def __init__(self, path: Path, *, level: int = 6) -> None:
        self._path, self._level = path, level

    def __enter__(self) -> Self:
        self._file = self._path.open("wb")
        self._compressed = _Hashing(self._file)
        self._gzip = gzip.GzipFile("", "wb", self._level, self._compressed, mtime=0)
        self._plain = _Hashing(self._gzip)
        self._tar = tarfile.open(fileobj=self._plain, mode="w|")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._file.close()
            return
        self._tar.close()
        self._gzip.close()
        self._file.close()

    def finished(self) -> Layer:
        """The written layer; call it after the writer's context has ended."""
        return Layer(self._path, self._compressed.digest, self._compressed.size, self._plain.digest)

    def add_directory(self, name: str, mode: int = 0o755, owner: int = 0) -> None:
        """Add the folder `name`."""
        entry = _entry(name, tarfile.DIRTYPE, mode, owner)
        self._tar.addfile(entry)

    def add_link(self, name: str, target: str) -> None:
        """Add the symbolic link `name`."""
        entry = _entry(name, tarfile.SYMTYPE, 0o777, 0)
        entry.linkname = target
        self._tar.addfile(entry)

    def add_file(self, name: str, source: Path, mode: int = 0o644, owner: int = 0) -> None:
        """Add the contents of `source` as `name`."""
        entry = _entry(name, tarfile.REGTYPE, mode, owner)
        entry.size = source.stat().st_size
        with source.open("rb") as content:
            self._tar.addfile(entry, content)

    def add_tree(self, root: Path) -> None:
        """Add everything below `root`, belonging to root, with the modes of `image_mode`.

        Device nodes and sockets are left out.
        """
        for path in sorted(root.rglob("*")):
            name, status = path.relative_to(root).as_posix(), path.lstat()
            if stat.S_ISLNK(status.st_mode):
                self.add_link(name, str(path.readlink()))
            elif stat.S_ISDIR(status.st_mode):
                self.add_directory(name, image_mode(status.st_mode))
            elif stat.S_ISREG(status.st_mode):
                self.add_file(name, path, image_mode(status.st_mode))


def image_mode(mode: int) -> int:
    """The mode in an image of what has `mode` on this machine, whose umask must not matter.

    Set-user-id bits go: an image's programs need no more than their caller has.
    """
    if mode & stat.S_ISVTX:
        return 0o1777
    return 0o755 if mode & stat.S_IXUSR else 0o644


class _Hashing(io.RawIOBase):
    """Passes everything on to `sink` and remembers its digest and size."""

    def __init__(self, sink: BinaryIO | gzip.GzipFile) -> None:
        super().__init__()
        self._sink, self._hash, self.size = sink, hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._hash.update(data)
        self.size += len(data)
        return self._sink.write(data)

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def write_archive(archive: Path, reference: str, layers: Sequence[Layer], config: ImageConfig) -> str:
    """Write the image `reference` of `layers`, lowest first, to `archive`. Returns the manifest's digest.

    `archive` appears whole or not at all.
    """
    config_blob = _encode(config_document(config, layers))
    manifest = _encode(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config_blob),
            "layers": [
                {"mediaType": _LAYER, "digest": layer.digest, "size": layer.size_bytes} for layer in layers
            ],
        }
    )
    index = _encode({"schemaVersion": 2, "manifests": [_index_entry(manifest, reference)]})
    files: dict[str, bytes | Path] = {
        "oci-layout": _encode({"imageLayoutVersion": "1.0.0"}),
        "index.json": index,
    }
    files |= {_blob_name(_digest(blob)): blob for blob in (config_blob, manifest)}
    files |= {_blob_name(layer.digest): layer.path for layer in layers}
    partial = archive.with_name(f".{archive.name}.partial")
    try:
        with tarfile.open(partial, "w") as tar:
            for name, content in sorted(files.items()):
                _add(tar, name, content)
        partial.replace(archive)
    finally:
        partial.unlink(missing_ok=True)
    return _digest(manifest)


def config_document(config: ImageConfig, layers: Sequence[Layer]) -> dict[str, object]:
    """The image's configuration as the OCI image specification has it."""
    run: dict[str, object] = {
        "Env": [f"{name}={value}" for name, value in sorted(config.environment.items())],
        "User": config.user,
        "WorkingDir": config.working_directory,
        "Labels": dict(config.labels),
    }
    return {
        "architecture": config.architecture,
        "os": "linux",
        "created": _EPOCH,
        "config": {key: value for key, value in run.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": [{"created": _EPOCH, "created_by": config.created_by} for _ in layers],
    }


def _index_entry(manifest: bytes, reference: str) -> dict[str, object]:
    _, colon, tag = reference.rpartition(":")
    names = {"io.containerd.image.name": reference}
    if colon and "/" not in tag:
        names["org.opencontainers.image.ref.name"] = tag
    return _descriptor(_MANIFEST, manifest) | {"annotations": names}


def _entry(name: str, kind: bytes, mode: int, owner: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    entry.uid = entry.gid = owner
    return entry


def _add(tar: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    entry = _entry(name, tarfile.REGTYPE, 0o644, 0)
    if isinstance(content, bytes):
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
        return
    entry.size = content.stat().st_size
    with content.open("rb") as stream:
        tar.addfile(entry, stream)


def _blob_name(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _encode(document: dict[str, object]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
