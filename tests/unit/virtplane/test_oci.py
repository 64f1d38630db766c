"""Image archives: what containerd reads out of them, and that the same input gives the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from virtplane import oci
from virtplane.guest.oci import write_archive as write_container_disk


def _tree(root: Path) -> Path:
    (root / "usr/bin").mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    program = root / "usr/bin/su"
    program.write_text("x")
    program.chmod(0o4750)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "secret").write_text("y")
    (root / "secret").chmod(0o600)
    return root


def _layer(folder: Path, name: str = "layer") -> oci.Layer:
    with oci.LayerWriter(folder / name) as writer:
        writer.add_tree(_tree(folder / f"{name}-tree"))
    return writer.finished()


def _document(archive: Path, digest: str) -> dict[str, Any]:
    with tarfile.open(archive) as tar:
        blob = tar.extractfile(f"blobs/{digest.replace(':', '/')}")
        assert blob is not None
        content = blob.read()
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == digest
    document: dict[str, Any] = json.loads(content)
    return document


def test_a_tree_becomes_a_layer_that_belongs_to_root_with_plain_modes(tmp_path: Path) -> None:
    layer = _layer(tmp_path)
    with tarfile.open(layer.path) as tar:
        entries = {entry.name: entry for entry in tar}
    assert list(entries) == sorted(entries)
    assert {name: entry.mode for name, entry in entries.items() if not entry.issym()} == {
        "secret": 0o644,
        "tmp": 0o1777,
        "usr": 0o755,
        "usr/bin": 0o755,
        "usr/bin/su": 0o755,
    }
    assert entries["bin"].linkname == "usr/bin"
    assert {(entry.uid, entry.gid, entry.mtime) for entry in entries.values()} == {(0, 0, 0)}


def test_a_layers_digests_are_those_of_its_bytes(tmp_path: Path) -> None:
    layer = _layer(tmp_path)
    packed = layer.path.read_bytes()
    assert layer.size_bytes == len(packed)
    assert layer.digest == f"sha256:{hashlib.sha256(packed).hexdigest()}"
    assert layer.diff_id == f"sha256:{hashlib.sha256(gzip.decompress(packed)).hexdigest()}"


def test_the_same_tree_gives_the_same_layer(tmp_path: Path) -> None:
    first, second = _layer(tmp_path, "first"), _layer(tmp_path, "second")
    assert first.digest == second.digest


def test_an_archive_leads_from_its_index_to_configuration_and_layers(tmp_path: Path) -> None:
    layers = [_layer(tmp_path)]
    archive = tmp_path / "image.tar"
    config = oci.ImageConfig(
        "a test", environment={"PATH": "/bin"}, user="0", labels={"org.opencontainers.image.title": "t"}
    )
    digest = oci.write_archive(archive, "localhost:5000/some/image:v1", layers, config)
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        index_file = tar.extractfile("index.json")
        assert index_file is not None
        index = json.load(index_file)
    assert names == sorted(names)
    assert index["manifests"][0]["digest"] == digest
    assert index["manifests"][0]["annotations"] == {
        "io.containerd.image.name": "localhost:5000/some/image:v1",
        "org.opencontainers.image.ref.name": "v1",
    }
    manifest = _document(archive, digest)
    assert manifest["layers"][0]["size"] == layers[0].size_bytes
    document = _document(archive, manifest["config"]["digest"])
    assert document["rootfs"] == {"type": "layers", "diff_ids": [layers[0].diff_id]}
    assert document["config"] == {
        "Env": ["PATH=/bin"],
        "User": "0",
        "Labels": {"org.opencontainers.image.title": "t"},
    }


def test_a_name_without_tag_has_no_tag_in_the_index(tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    oci.write_archive(archive, "localhost:5000/image", [_layer(tmp_path)], oci.ImageConfig("a test"))
    with tarfile.open(archive) as tar:
        index = json.loads((tar.extractfile("index.json") or io.BytesIO()).read())
    assert index["manifests"][0]["annotations"] == {"io.containerd.image.name": "localhost:5000/image"}


def test_a_failed_archive_leaves_no_file_and_keeps_the_old_one(tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    archive.write_text("old")
    gone = oci.Layer(tmp_path / "gone", "sha256:0", 1, "sha256:0")
    with pytest.raises(FileNotFoundError):
        oci.write_archive(archive, "localhost/a:b", [gone], oci.ImageConfig("a test"))
    assert archive.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["image.tar"]


def test_an_error_while_a_layer_is_written_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), oci.LayerWriter(tmp_path / "layer") as writer:
        writer.add_file("a", tmp_path / "missing")


def test_a_container_disk_belongs_to_the_guests_user(tmp_path: Path) -> None:
    disk, archive = tmp_path / "guest.qcow2", tmp_path / "guest.tar"
    disk.write_bytes(b"QFI\xfb")
    digest = write_container_disk(disk, archive, "localhost/guest:latest")
    layer = _document(archive, digest)["layers"][0]["digest"]
    with tarfile.open(archive) as tar, tarfile.open(fileobj=tar.extractfile(_blob(layer))) as inner:
        found = {entry.name: (entry.uid, entry.gid, entry.mode) for entry in inner}
    assert found == {"disk": (107, 107, 0o755), "disk/guest.qcow2": (107, 107, 0o644)}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["guest.qcow2", "guest.tar"]


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"
