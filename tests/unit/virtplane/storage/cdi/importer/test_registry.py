"""Container disks: pulled by skopeo from a registry with a password, read out of their layers."""

from __future__ import annotations

import io
import json
import ssl
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme
from tests.support.registry import PASSWORD, USER, server
from tests.unit.virtplane.storage.cdi.importer.conftest import Volume

from virtplane.oci import ImageConfig, LayerWriter, write_archive
from virtplane.storage.cdi.importer.outcome import ImportFailed
from virtplane.storage.cdi.importer.sources.registry import is_disk, labels_of, read_image

KEYS = {"IMPORTER_ACCESS_KEY_ID": USER, "IMPORTER_SECRET_KEY": PASSWORD, "INSECURE_TLS": "true"}


@contextmanager
def registry(
    tmp_path: Path,
    files: dict[str, bytes],
    config: ImageConfig,
    tls: ssl.SSLContext | None = None,
    architecture: str = "",
) -> Iterator[str]:
    """The reference of an image of two layers, the second of which has `files`.

    With `architecture` it is one of an index that has nothing else.
    """
    layers = []
    for number, content in enumerate(({"etc/os-release": b"ID=x"}, files)):
        with LayerWriter(tmp_path / f"layer{number}") as layer:
            for name, data in content.items():
                source = tmp_path / "file"
                source.write_bytes(data)
                layer.add_file(name, source)
        layers.append(layer.finished())
    archive = tmp_path / "image.tar"
    write_archive(archive, "example/disk:1", layers, config)
    web = server(archive, architecture)
    if tls is not None:
        web.socket = tls.wrap_socket(web.socket, server_side=True)
    thread = threading.Thread(target=web.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"docker://127.0.0.1:{web.server_address[1]}/disk:1"
    finally:
        web.shutdown()
        thread.join()
        web.server_close()


@pytest.mark.parametrize("disk_format", ["raw", "qcow2"])
async def test_disk_of_an_image_is_imported_with_the_labels_of_its_environment(
    volume: Volume, tmp_path: Path, raw_disk: bytes, converted: Callable[..., bytes], disk_format: str
) -> None:
    content = raw_disk if disk_format == "raw" else converted("qcow2")
    config = ImageConfig("test", environment={"INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE": "fedora"})
    with registry(tmp_path, {"disk/disk.img": content}, config) as reference:
        first = await volume.run("registry", reference, **KEYS)
        volume.give_scratch()
        ended = await volume.run("registry", reference, **KEYS)
    assert json.loads(first.text)["scratchSpaceRequired"] is True
    assert ended.code == 0, ended.text
    assert json.loads(ended.text)["labels"] == {"instancetype.kubevirt.io/default-preference": "fedora"}
    assert ended.disk.read_bytes()[: len(raw_disk)] == raw_disk
    assert not list(volume.paths.scratch.iterdir())


async def test_archive_below_disk_is_the_disk_itself(volume: Volume, tmp_path: Path, raw_disk: bytes) -> None:
    """An archive at a web server is one of disks (an OVA); in an image it is what the guest gets."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as written:
        entry = tarfile.TarInfo("disk.img")
        entry.size = len(raw_disk)
        written.addfile(entry, io.BytesIO(raw_disk))
    volume.give_scratch()
    with registry(tmp_path, {"disk/disk.tar": made.getvalue()}, ImageConfig("test")) as reference:
        ended = await volume.run("registry", reference, **KEYS)
    assert ended.code == 0, ended.text
    assert ended.disk.read_bytes()[: len(made.getvalue())] == made.getvalue()


@pytest.mark.feature("VMC-48")
@pytest.mark.feature("VMC-74")
@pytest.mark.feature("VMC-76")
@pytest.mark.feature("VMC-77")
async def test_authorities_of_a_config_map_are_trusted_whatever_their_files_are_called(
    volume: Volume, tmp_path: Path, raw_disk: bytes
) -> None:
    """skopeo reads ``.crt`` files of one folder; config maps have ``ca.pem``, and a proxy has its own."""
    volume.give_scratch()
    authority, other = trustme.CA(), trustme.CA()
    for folder, name, each in (("certs", "ca.pem", authority), ("proxycerts", "ca.crt", other)):
        (tmp_path / folder).mkdir()
        each.cert_pem.write_to_path(tmp_path / folder / name)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    keys = KEYS | {"INSECURE_TLS": "false"}
    folders = {
        "IMPORTER_CERT_DIR": str(tmp_path / "certs"),
        "IMPORTER_PROXY_CERT_DIR": str(tmp_path / "proxycerts"),
    }
    with registry(tmp_path, {"disk/disk.img": raw_disk}, ImageConfig("test"), tls) as reference:
        good = await volume.run("registry", reference, **keys, **folders)
        stranger = await volume.run("registry", reference, **keys)
    assert good.code == 0, good.text
    assert good.disk.read_bytes()[: len(raw_disk)] == raw_disk
    assert stranger.code == 1
    assert "certificate" in stranger.text


async def test_image_for_other_architectures_is_told_from_one_that_cannot_be_pulled(
    volume: Volume, tmp_path: Path, raw_disk: bytes
) -> None:
    volume.give_scratch()
    with registry(
        tmp_path, {"disk/disk.img": raw_disk}, ImageConfig("test"), architecture="amd64"
    ) as reference:
        absent = await volume.run(
            "registry", reference, **KEYS, IMPORTER_REGISTRY_IMAGE_ARCHITECTURE="absent"
        )
        there = await volume.run("registry", reference, **KEYS, IMPORTER_REGISTRY_IMAGE_ARCHITECTURE="amd64")
    assert absent.code == 1
    assert 'no image found in image index for architecture "absent", variant "", OS "linux"' in absent.text
    assert "failed to pull image" not in absent.text
    assert there.code == 0, there.text


async def test_image_without_a_disk_and_wrong_passwords_are_told(volume: Volume, tmp_path: Path) -> None:
    volume.give_scratch()
    with registry(tmp_path, {"bin/sh": b"x", "disk/.wh.old": b""}, ImageConfig("test")) as reference:
        none = await volume.run("registry", reference, **KEYS)
        wrong = await volume.run("registry", reference, **KEYS | {"IMPORTER_SECRET_KEY": "wrong"})
        other = await volume.run("registry", reference, **KEYS, IMPORTER_REGISTRY_IMAGE_ARCHITECTURE="arm64")
    assert none.code == 1
    assert none.text == ("Unable to process data: Failed to find VM disk image file in the container image")
    assert wrong.code == 1
    assert wrong.text.startswith("Unable to process data: failed to pull image: ")
    assert "wrong" not in wrong.text
    assert 'manifest image architecture: "amd64" doesn\'t match requested architecture: "arm64"' in other.text
    assert not list(volume.paths.scratch.iterdir())


async def test_image_with_a_bootable_system_is_refused(volume: Volume, tmp_path: Path) -> None:
    volume.give_scratch()
    config = ImageConfig("test", labels={"containers.bootc": "1"})
    with registry(tmp_path, {"disk/disk.img": b"x"}, config) as reference:
        ended = await volume.run("registry", reference, **KEYS)
    assert ended.code == 1
    assert ended.text.startswith("Unable to process data: bootc image detected: ")


async def test_reference_to_a_local_file_is_refused(volume: Volume) -> None:
    volume.give_scratch()
    ended = await volume.run("registry", "oci-archive:/etc/passwd")
    assert ended.code == 1
    assert "is no docker:// reference" in ended.text


def test_digest_that_is_a_path_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"config": {"digest": "sha256:../../etc/passwd"}, "layers": []}')
    with pytest.raises(ImportFailed):
        read_image(tmp_path)


def test_manifest_that_is_nested_without_end_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"x":' + "[" * 1_000_000)
    with pytest.raises(ImportFailed, match="the image's manifest is damaged"):
        read_image(tmp_path)


def test_labels_come_from_names_with_the_mark() -> None:
    environment = ("PATH=/bin", "KUBEVIRT_IO_A_B=1", "INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE=u1")
    assert labels_of(environment) == {
        "kubevirt.io/a-b": "1",
        "instancetype.kubevirt.io/default-instancetype": "u1",
    }


def test_marks_of_removed_files_are_no_disks() -> None:
    assert is_disk("disk/a.img")
    assert not is_disk("disk/.wh.a.img")
    assert not is_disk("etc/disk")
