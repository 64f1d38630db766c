"""Imports from web servers: every format and compression, and servers that do what servers do."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import subprocess
import tarfile
from collections.abc import Callable

import pytest
from tests.support.image_server import ServedFile, serving
from tests.unit.virtplane.storage.cdi.importer.conftest import MIB, Ended, Volume
from yarl import URL

from virtplane.storage.cdi.importer.http import Web, WebObject

FORMATS = ("qcow2", "vmdk", "vdi", "vpc", "vhdx")


def zstd(content: bytes) -> bytes:
    return subprocess.run(["zstd", "-q", "-c"], input=content, capture_output=True, check=True).stdout


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": zstd,
    "bz2": bz2.compress,
}


def same_disk(ended: Ended, expected: bytes) -> bool:
    content = ended.disk.read_bytes()
    return content[: len(expected)] == expected and not content[len(expected) :].strip(b"\0")


@pytest.mark.feature("STO-52")
async def test_raw_disk_is_written_without_scratch_and_grown_to_the_volume(
    volume: Volume, raw_disk: bytes
) -> None:
    async with serving(ServedFile(raw_disk)) as address:
        ended = await volume.run("http", f"{address}/disk.img")
    assert ended.code == 0, ended.text
    assert ended.message == "Import Complete"
    assert same_disk(ended, raw_disk)
    assert ended.disk.stat().st_size == 20 * MIB
    assert ended.disk.stat().st_blocks * 512 < 4 * MIB
    assert ended.disk.stat().st_mode & 0o777 == 0o660
    assert ended.percent == 100.0


async def test_a_disk_that_is_on_its_volume_is_told_in_the_log(
    volume: Volume, raw_disk: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with serving(ServedFile(raw_disk)) as address:
        ended = await volume.run("http", f"{address}/disk.img")
    assert f"Successfully completed fsync({ended.disk}) syscall" in caplog.messages


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_compressed_raw_disk_is_written_without_scratch(
    volume: Volume, raw_disk: bytes, compression: str
) -> None:
    async with serving(ServedFile(COMPRESSIONS[compression](raw_disk))) as address:
        ended = await volume.run("http", f"{address}/disk.img.{compression}")
    assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
    assert same_disk(ended, raw_disk)


@pytest.mark.parametrize("disk_format", FORMATS)
async def test_disk_to_convert_is_read_in_place(
    volume: Volume, raw_disk: bytes, converted: Callable[..., bytes], disk_format: str
) -> None:
    async with serving(ServedFile(converted(disk_format))) as address:
        ended = await volume.run("http", f"{address}/disk.{disk_format}")
    assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
    assert same_disk(ended, raw_disk)
    assert ended.percent == 100.0


@pytest.mark.parametrize("disk_format", FORMATS)
async def test_server_without_ranges_makes_formats_ask_for_scratch_and_use_it(
    volume: Volume, raw_disk: bytes, converted: Callable[..., bytes], disk_format: str
) -> None:
    async with serving(ServedFile(converted(disk_format), ranges=False)) as address:
        first = await volume.run("http", f"{address}/disk")
        assert not first.disk.exists()
        volume.give_scratch()
        second = await volume.run("http", f"{address}/disk")
    assert first.code == 0
    assert json.loads(first.text)["scratchSpaceRequired"] is True
    assert (second.code, second.message) == (0, "Import Complete"), second.text
    assert same_disk(second, raw_disk)
    assert not list(volume.paths.scratch.iterdir())


async def test_compressed_qcow2_needs_scratch(
    volume: Volume, raw_disk: bytes, converted: Callable[..., bytes]
) -> None:
    content = gzip.compress(lzma.compress(converted("qcow2")))
    async with serving(ServedFile(content)) as address:
        first = await volume.run("http", f"{address}/disk.qcow2.xz.gz")
        volume.give_scratch()
        second = await volume.run("http", f"{address}/disk.qcow2.xz.gz")
    assert json.loads(first.text)["scratchSpaceRequired"] is True
    assert (second.code, second.message) == (0, "Import Complete"), second.text
    assert same_disk(second, raw_disk)


def appliance(disk: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in (("appliance.ovf", b"<Envelope/>"), ("ä" * 120 + ".vmdk", disk), ("x.mf", b"")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


@pytest.mark.parametrize("ranges", [True, False])
async def test_disk_of_an_appliance_is_found(
    volume: Volume, raw_disk: bytes, converted: Callable[..., bytes], ranges: bool
) -> None:
    content = appliance(converted("vmdk", "-o", "subformat=streamOptimized"))
    if not ranges:
        volume.give_scratch()
    async with serving(ServedFile(content, ranges=ranges)) as address:
        ended = await volume.run("http", f"{address}/machine.ova")
    assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
    assert same_disk(ended, raw_disk)


async def test_a_file_shorter_than_a_sector_is_no_disk(volume: Volume) -> None:
    async with serving(ServedFile(b'[{"name": "disk.img"}]')) as address:
        ended = await volume.run("http", f"{address}/")
    assert ended.code == 1
    assert "fewer than 512 bytes" in ended.message, ended.text


@pytest.mark.parametrize("ranges", [True, False])
async def test_archive_without_disks_is_the_disk_itself(volume: Volume, ranges: bool) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in ("a.txt", "folder/b"):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"data"))
    content = made.getvalue()
    if not ranges:
        volume.give_scratch()
    async with serving(ServedFile(content, ranges=ranges)) as address:
        ended = await volume.run("http", f"{address}/files.tar")
    assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
    assert same_disk(ended, content)


async def test_archive_is_unpacked_inside_the_volume_only(volume: Volume) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in ("a/file", "../outside", "/absolute"):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"data"))
    async with serving(ServedFile(gzip.compress(made.getvalue()))) as address:
        ended = await volume.run("http", f"{address}/files.tar.gz", IMPORTER_CONTENTTYPE="archive")
    assert ended.code == 1
    assert "unable to untar files" in ended.text
    assert not list(volume.paths.data.iterdir()), "half of an archive must not look like all of it"
    assert not (volume.paths.data.parent / "outside").exists()


@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256", "sha512"])
async def test_checksum_is_that_of_the_bytes_as_they_come(
    volume: Volume, raw_disk: bytes, algorithm: str
) -> None:
    content = gzip.compress(raw_disk)
    right = hashlib.new(algorithm, content).hexdigest()
    async with serving(ServedFile(content)) as address:
        good = await volume.run("http", address, IMPORTER_CHECKSUM=f"{algorithm}:{right.upper()}")
        bad = await volume.run("http", address, IMPORTER_CHECKSUM=f"{algorithm}:{'0' * len(right)}")
    assert (good.code, good.message) == (0, "Import Complete"), good.text
    assert bad.code == 0
    assert bad.message == (
        "Unable to process data: checksum validation failed: checksum mismatch: "
        f"expected {algorithm}:{'0' * len(right)}, calculated {algorithm}:{right}"
    )
    assert not bad.disk.exists()


async def test_broken_transfer_goes_on_where_it_broke(volume: Volume, raw_disk: bytes) -> None:
    breaks = [len(raw_disk) * part // 100 for part in (10, 50, 90)]
    file = ServedFile(raw_disk, breaks=breaks)
    async with serving(file) as address:
        ended = await volume.run("http", address)
    assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
    assert same_disk(ended, raw_disk)
    assert file.sent < 2 * len(raw_disk)
    assert file.answers("GET") == 4


async def test_broken_transfer_of_another_object_is_not_mixed_in(volume: Volume, raw_disk: bytes) -> None:
    file = ServedFile(raw_disk, breaks=[MIB], ranges=True)
    async with serving(file) as address:
        original, file.tag = file.tag, ""
        ended = await volume.run("http", address)
        file.tag = original
    assert ended.code == 1
    assert ended.text.startswith("Unable to process data: ")


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_refusals_are_told_with_their_status(volume: Volume, status: int) -> None:
    async with serving(ServedFile(b"", status=status)) as address:
        ended = await volume.run("http", address)
    assert ended.code == 1
    assert ended.text.startswith(
        f"Unable to connect to http data source: expected status code 200, got {status}. Status: {status}"
    )


async def test_server_that_sends_less_than_it_says_is_an_error(volume: Volume, raw_disk: bytes) -> None:
    file = ServedFile(raw_disk, claimed_length=len(raw_disk) + 10, ranges=False)
    async with serving(file) as address:
        ended = await volume.run("http", address)
    assert ended.code == 1
    assert ended.text.startswith("Unable to process data: ")


async def test_credentials_and_headers_go_along_on_redirects(volume: Volume, raw_disk: bytes) -> None:
    secret = volume.paths.extra_headers / "0"
    secret.mkdir(parents=True)
    (secret / "secretHeader").write_text("X-Two: secret\n")
    async with serving(ServedFile(raw_disk, user="me", password="pass:word")) as other:
        file = ServedFile(raw_disk, redirect=f"{other}/disk.img")
        async with serving(file) as address:
            ended = await volume.run(
                "http",
                f"{address}/moved",
                IMPORTER_ACCESS_KEY_ID="me",
                IMPORTER_SECRET_KEY="pass:word",
                IMPORTER_EXTRA_HEADER_0="X-One: 1",
            )
    assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
    assert file.requests[0].headers["X-One"] == "1"
    assert file.requests[0].headers["X-Two"] == "secret"


async def test_too_large_disk_is_refused_before_it_is_written(
    volume: Volume, raw_disk: bytes, converted: Callable[..., bytes]
) -> None:
    for content in (raw_disk, converted("qcow2")):
        async with serving(ServedFile(content)) as address:
            ended = await volume.run("http", address, IMPORTER_IMAGE_SIZE=str(4 * MIB))
        assert ended.code == 1
        assert "is larger than the reported available storage 4194304. A larger PVC is required" in ended.text
        assert not ended.disk.exists() or ended.disk.stat().st_size <= 4 * MIB


async def test_bomb_ends_at_the_size_of_the_volume(volume: Volume) -> None:
    async with serving(ServedFile(gzip.compress(bytes(64 * MIB)))) as address:
        ended = await volume.run("http", address)
    assert ended.code == 1
    assert "is larger than the reported available storage" in ended.text


@pytest.mark.feature("STO-49")
async def test_preallocated_disk_has_no_holes(volume: Volume, raw_disk: bytes) -> None:
    async with serving(ServedFile(raw_disk)) as address:
        ended = await volume.run("http", address, PREALLOCATION="true")
    assert json.loads(ended.text)["preallocationApplied"] is True
    assert ended.disk.stat().st_blocks * 512 >= 20 * MIB


async def test_second_attempt_leaves_nothing_of_the_first(volume: Volume, raw_disk: bytes) -> None:
    (volume.paths.data / "disk.img").write_bytes(b"\xff" * (12 * MIB))
    async with serving(ServedFile(raw_disk)) as address:
        ended = await volume.run("http", address)
    assert same_disk(ended, raw_disk)


@pytest.mark.parametrize("size", ["20Mi", "20971520"])
async def test_size_may_be_said_in_words(volume: Volume, raw_disk: bytes, size: str) -> None:
    async with serving(ServedFile(raw_disk)) as address:
        ended = await volume.run("http", address, IMPORTER_IMAGE_SIZE=size)
    assert ended.disk.stat().st_size == 20 * MIB


async def test_unknown_source_and_unreachable_server_say_so(volume: Volume) -> None:
    unknown = await volume.run("ftp", "ftp://127.0.0.1/x")
    assert (unknown.code, unknown.text) == (1, "Unknown data source: ftp")
    nobody = await volume.run("http", "http://127.0.0.1:1/disk.img")
    assert nobody.code == 1
    assert nobody.text.startswith("Unable to connect to http data source: ")


@pytest.mark.parametrize(
    ("kind", "content", "warns"),
    [
        ("text/html; charset=utf-8", "kubevirt", True),
        ("application/gzip", "kubevirt", False),
        ("text/html", "archive", False),
    ],
)
async def test_pages_in_place_of_disks_are_warned_of(
    volume: Volume, raw_disk: bytes, caplog: pytest.LogCaptureFixture, kind: str, content: str, warns: bool
) -> None:
    async with serving(ServedFile(raw_disk, content_type=kind)) as address:
        await volume.run("http", address, IMPORTER_CONTENTTYPE=content)
    said = "Unexpected content type 'text/html'. Content might not be a KubeVirt image."
    assert (said in caplog.messages) is warns


async def test_connections_read_a_mib_at_a_time(raw_disk: bytes) -> None:
    async with (
        serving(ServedFile(raw_disk)) as address,
        Web(insecure=False, cert_folders=()) as web,
        web.get(WebObject(URL(f"{address}/disk.img"))) as response,
    ):
        assert response.connection is not None
        assert vars(response.connection.transport)["max_size"] == MIB, "Python has no such knob any more"
