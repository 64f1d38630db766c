"""OCI image archives made from directories' descriptions, byte for byte the same for the same input."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

_EPOCH = 0


@dataclass(frozen=True, slots=True)
class Layer:
    """The content of a single-layer image. Paths are relative, parents come before children."""

    directories: Sequence[tuple[str, int]] = ()
    """(path, mode)"""
    files: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)
    """path -> (content, mode)"""
    links: Mapping[str, str] = field(default_factory=dict)
    """path -> target"""

    def tar(self) -> bytes:
        """The layer as an uncompressed archive."""
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path, mode in self.directories:
                archive.addfile(_entry(path, mode, tarfile.DIRTYPE))
            for path, target in self.links.items():
                link = _entry(path, 0o777, tarfile.SYMTYPE)
                link.linkname = target
                archive.addfile(link)
            for path, (content, mode) in self.files.items():
                entry = _entry(path, mode, tarfile.REGTYPE)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return stream.getvalue()


def write_archive(path: Path, reference: str, layer: Layer, config: Mapping[str, Any]) -> None:
    """Write an OCI archive holding one image `reference` with one `layer` and a runtime `config`.

    `config` is the ``config`` object of an image configuration (Env, Entrypoint, Cmd, User, ...).
    """
    import platform  # noqa: PLC0415 - only this function needs it

    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    layer_bytes = layer.tar()
    config_bytes = orjson.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer_bytes)]},
            "history": [{"created_by": "kindling"}],
        }
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _descriptor("application/vnd.oci.image.config.v1+json", config_bytes),
        "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", layer_bytes)],
    }
    manifest_bytes = orjson.dumps(manifest)
    entry = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest_bytes)
    entry["platform"] = {"architecture": architecture, "os": "linux"}
    entry["annotations"] = {"io.containerd.image.name": reference}
    index = orjson.dumps({"schemaVersion": 2, "manifests": [entry]})
    with tarfile.open(path, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, "oci-layout", orjson.dumps({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", index)
        for blob in (manifest_bytes, config_bytes, layer_bytes):
            _add(archive, f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}", blob)


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _entry(path: str, mode: int, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.mode, entry.type, entry.mtime = mode, kind, _EPOCH
    return entry


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = _entry(name, 0o644, tarfile.REGTYPE)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
