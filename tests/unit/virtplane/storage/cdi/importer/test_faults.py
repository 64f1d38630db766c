"""Servers that break, lie and never end: what is imported is whole, or says that it is not."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import lzma
import subprocess
import sys
import tarfile
from collections.abc import Callable

import pytest
from tests.support.hostile_server import answering, endless, reset
from tests.support.image_server import ServedFile, serving
from tests.unit.virtplane.storage.cdi.importer.conftest import MIB, Volume

from virtplane.storage.cdi.importer import http, streams
from virtplane.storage.cdi.importer.archives import TarEntries, find
from virtplane.storage.cdi.importer.outcome import ImportFailed, one_line
from virtplane.storage.cdi.importer.sources import registry

OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(streams, "TRAILING_BYTES", 4 * MIB)


def zstd(content: bytes) -> bytes:
    return subprocess.run(["zstd", "-q", "-c"], input=content, capture_output=True, check=True).stdout


def archive(**files: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as written:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            written.addfile(entry, io.BytesIO(content))
    return made.getvalue()


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("checksum", ["", "sha256:00"])
async def test_zeros_without_end_behind_a_compressed_disk_end_the_import(
    volume: Volume, compress: Callable[[bytes], bytes], checksum: str
) -> None:
    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        await endless(writer, OK, compress(b"disk" * 1000), bytes(MIB))

    async with asyncio.timeout(30), answering(answer) as address:
        ended = await volume.run("http", address, IMPORTER_CHECKSUM=checksum)
    assert ended.code == 1
    assert ended.text == f"Unable to process data: more than {4 * MIB} bytes come after the data"


async def test_garbage_without_end_behind_a_compressed_disk_ends_the_import(volume: Volume) -> None:
    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        await endless(writer, OK, gzip.compress(b"disk" * 1000), b"garbage" * 10_000)

    async with asyncio.timeout(30), answering(answer) as address:
        ended = await volume.run("http", address, IMPORTER_CHECKSUM="sha256:00")
    assert ended.code == 1
    assert "bytes come after the data" in ended.text


async def test_zeros_without_end_behind_an_archive_end_the_import_and_leave_no_file(volume: Volume) -> None:
    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        await endless(writer, OK, archive(file=b"data"), bytes(MIB))

    async with asyncio.timeout(30), answering(answer) as address:
        ended = await volume.run("http", address, IMPORTER_CONTENTTYPE="archive")
    assert ended.code == 1
    assert "bytes come after the data" in ended.text
    assert not list(volume.paths.data.iterdir())


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, zstd])
@pytest.mark.parametrize("beginning", [b"\1", b"QFI\xfb"])
async def test_bombs_end_at_the_size_of_the_volume(
    volume: Volume, compress: Callable[[bytes], bytes], beginning: bytes
) -> None:
    """A disk of zeros goes into the volume, one that is to be converted into scratch space."""
    volume.give_scratch()
    content = compress(beginning + bytes(64 * MIB))
    async with serving(ServedFile(content)) as address:
        ended = await volume.run("http", address)
    assert ended.code == 1
    assert "is larger than the reported available storage" in ended.text
    assert not list(volume.paths.scratch.iterdir())


async def test_nested_bomb_is_refused(volume: Volume) -> None:
    content = gzip.compress(gzip.compress(gzip.compress(bytes(MIB))))
    async with serving(ServedFile(content)) as address:
        ended = await volume.run("http", address)
    assert (ended.code, ended.text) == (
        1,
        "Unable to process data: the file is compressed too many times",
    )


async def test_server_that_announces_less_than_a_compressed_disk_has_is_an_error(volume: Volume) -> None:
    content = gzip.compress(b"disk" * 100_000)

    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + f"Content-Length: {len(content) - 20}\r\n\r\n".encode() + content)
        await writer.drain()

    async with answering(answer) as address:
        ended = await volume.run("http", address)
    assert ended.code == 1
    assert "unexpected end of file" in ended.text or "Data after" in ended.text
    assert len(ended.text) < 200


async def test_resumed_transfer_with_other_bytes_is_not_mixed_in(volume: Volume, raw_disk: bytes) -> None:
    """The second answer is partial, but not of the part that was asked for."""
    head = f'Accept-Ranges: bytes\r\nETag: "one"\r\nContent-Length: {len(raw_disk)}\r\n\r\n'.encode()

    async def answer(request: str, writer: asyncio.StreamWriter) -> None:
        if "Range: " in request:
            writer.write(b"HTTP/1.1 206 P\r\nContent-Range: bytes 5-9/99\r\nContent-Length: 5\r\n\r\n12345")
        else:
            writer.write(OK + head + raw_disk[:MIB])
        await writer.drain()

    async with answering(answer) as address:
        ended = await volume.run("http", address)
    assert ended.code == 1
    assert "the server answers with other bytes than it was asked for" in ended.text


async def test_resumed_transfer_that_ends_early_is_not_taken_as_whole(
    volume: Volume, raw_disk: bytes
) -> None:
    head = f'Accept-Ranges: bytes\r\nETag: "one"\r\nContent-Length: {len(raw_disk)}\r\n\r\n'.encode()

    async def answer(request: str, writer: asyncio.StreamWriter) -> None:
        if "Range: " in request:
            first = int(request.split("bytes=")[1].split("-", maxsplit=1)[0])
            writer.write(f"HTTP/1.1 206 P\r\nContent-Range: bytes {first}-/9\r\n".encode())
            writer.write(b"Content-Length: 5\r\n\r\n12345")
        else:
            writer.write(OK + head + raw_disk[:MIB])
        await writer.drain()

    async with answering(answer) as address:
        ended = await volume.run("http", address)
    assert ended.code == 1
    assert f"{len(raw_disk)} were announced" in ended.text


async def test_resets_and_a_server_that_is_overloaded_are_got_over(volume: Volume, raw_disk: bytes) -> None:
    wrong = ["503 Busy", "reset", "500 Internal", "reset"]
    head = f'Accept-Ranges: bytes\r\nETag: "one"\r\nContent-Length: {len(raw_disk)}\r\n\r\n'.encode()

    async def answer(request: str, writer: asyncio.StreamWriter) -> None:
        if "Range: " not in request:
            writer.write(OK + head + raw_disk[:MIB])
            await writer.drain()
            reset(writer)
        elif (way := wrong.pop(0) if wrong else "") == "reset":
            reset(writer)
        elif way:
            writer.write(f"HTTP/1.1 {way}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        else:
            first = int(request.split("bytes=")[1].split("-", maxsplit=1)[0])
            rest = raw_disk[first:]
            writer.write(b"HTTP/1.1 206 P\r\nConnection: close\r\n")
            writer.write(f"Content-Range: bytes {first}-{len(raw_disk) - 1}/{len(raw_disk)}\r\n".encode())
            writer.write(f"Content-Length: {len(rest)}\r\n\r\n".encode() + rest)
            await writer.drain()

    async with answering(answer) as address:
        ended = await volume.run("http", address)
    assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
    assert ended.disk.read_bytes()[: len(raw_disk)] == raw_disk
    assert not wrong


async def test_archive_with_the_wrong_checksum_leaves_no_file(volume: Volume) -> None:
    content = archive(file=b"data")
    async with serving(ServedFile(content)) as address:
        checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
        good = await volume.run("http", address, IMPORTER_CONTENTTYPE="archive", IMPORTER_CHECKSUM=checksum)
        assert (volume.paths.data / "file").read_bytes() == b"data"
        bad = await volume.run("http", address, IMPORTER_CONTENTTYPE="archive", IMPORTER_CHECKSUM="md5:00")
    assert (good.code, bad.code) == (0, 0)
    assert "checksum mismatch: expected md5:00, calculated md5:" in bad.message
    assert not list(volume.paths.data.iterdir())


async def test_link_of_an_earlier_attempt_leads_no_file_out_of_the_volume(volume: Volume) -> None:
    """A server may give another archive to the second attempt."""
    outside = volume.paths.data.parent / "outside"
    outside.mkdir()
    link = tarfile.TarInfo("way")
    link.type, link.linkname = tarfile.SYMTYPE, str(outside)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as written:
        written.addfile(link)
    async with serving(ServedFile(made.getvalue())) as address:
        assert (await volume.run("http", address, IMPORTER_CONTENTTYPE="archive")).code == 0
    assert (volume.paths.data / "way").is_symlink()
    async with serving(ServedFile(archive(**{"way/file": b"data"}))) as address:
        ended = await volume.run("http", address, IMPORTER_CONTENTTYPE="archive")
    assert ended.code == 0, ended.text
    assert (volume.paths.data / "way/file").read_bytes() == b"data"
    assert not list(outside.iterdir())


_EMPTY = """
import os, sys
from pathlib import Path
from virtplane.storage.cdi.importer.target import Target
folder = Path(sys.argv[1])
os.setgroups([])
os.setgid(107)
os.setuid(107)
(folder / "a/b").mkdir(parents=True)
(folder / "a/b/file").touch()
(folder / "c").mkdir()
(folder / "c/file").touch()
(folder / "link").symlink_to("/etc")
for name in ("a/b", "c", "a"):
    (folder / name).chmod(0 if name == "c" else 0o500)
Target(folder / "disk.img", False, 0, 0.0).empty()
"""


@pytest.mark.host
def test_locked_folders_of_an_earlier_attempt_are_removed(volume: Volume) -> None:
    """The importer is not root, and its volume's root is not its own."""
    volume.paths.data.chmod(0o777)
    for folder in volume.paths.data.parents:
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(folder.stat().st_mode | 0o055)
    (volume.paths.data / "lost+found").mkdir(0o700)
    subprocess.run([sys.executable, "-c", _EMPTY, str(volume.paths.data)], check=True)
    assert [each.name for each in volume.paths.data.iterdir()] == ["lost+found"]


class _Bytes:
    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    async def read(self) -> bytes:
        return self._content.read(1 << 20)

    async def close(self) -> None:
        return None


def _header(size: bytes, kind: bytes = b"0", name: bytes = b"x") -> bytes:
    block = bytearray(512)
    block[: len(name)] = name
    block[124 : 124 + len(size)] = size
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize(
    "content",
    [
        _header(b"\xff" * 12),
        _header(b"\x80" + b"\xff" * 11),
        _header(b"00000000512\0", b"x") + (b"9" * 330).ljust(512, b"9"),
        _header(b"00000020000\0", b"x") + (b"5" * 5000 + b" path=x\n").ljust(8192, b"\0"),
        _header(b"77777777777\0", b"L"),
    ],
)
async def test_archives_with_impossible_numbers_are_damaged(content: bytes) -> None:
    with pytest.raises(
        ImportFailed, match=r"the archive is|a header of the archive|of the archive is damaged"
    ):
        await find(TarEntries(_Bytes(content + bytes(2048))), lambda name: False)


async def test_archive_of_files_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("virtplane.storage.cdi.importer.archives._ENTRIES", 1000)
    with pytest.raises(ImportFailed, match="too many entries"):
        await find(TarEntries(_Bytes(_header(b"00000000000\0") * 1001)), lambda name: False)


async def test_devices_links_and_sizes_of_links_in_layers_are_passed_over() -> None:
    kinds = b"".join(_header(b"00000000777\0", kind, b"disk/a") for kind in (b"1", b"2", b"3", b"4", b"6"))
    disk = _header(b"00000000004\0", b"0", b"disk/b") + b"data".ljust(512, b"\0")
    entries = TarEntries(_Bytes(kinds + disk + bytes(1024)))
    found = await find(entries, registry.is_disk)
    assert found is not None
    assert found.name == "disk/b"
    assert await entries.read() == b"data"


async def test_huge_image_of_a_registry_and_a_silent_registry_end_skopeo(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_LOOK_SECONDS", 0.05)
    folder = volume.paths.data
    write = ["sh", "-c", f"while :; do head -c 4000000 /dev/zero >> {folder}/layer; sleep 0.01; done"]
    with pytest.raises(ImportFailed, match="is larger than the reported available storage"):
        await registry._copied(write, folder, 5 * MIB)
    monkeypatch.setattr(registry, "STALL_SECONDS", 0.2)
    with pytest.raises(ImportFailed, match="no progress for 10 minutes"):
        await registry._copied(["sleep", "600"], folder, 1 << 40)


def test_full_volume_is_told_as_the_controller_knows_it() -> None:
    said = "qemu-img: error while writing at byte 0: No space left on device"
    assert one_line(said).endswith("no space left on device")
    assert one_line("tar: x: Disk quota exceeded").endswith("disk quota exceeded")


@pytest.mark.parametrize("endpoint", ["http://[bad/x", "http:///x", "/etc/passwd"])
async def test_endpoint_that_is_no_address_is_told(volume: Volume, endpoint: str) -> None:
    ended = await volume.run("http", endpoint)
    assert ended.code == 1
    assert ended.text.startswith("Unable to connect to http data source: ")


async def test_signature_in_a_redirect_is_not_told(volume: Volume) -> None:
    secret = "https://[x/disk?X-Amz-Signature=secret"
    async with serving(ServedFile(b"", redirect=secret)) as address:
        ended = await volume.run("http", f"{address}/moved")
    assert ended.code == 1
    assert ended.text == "Unable to connect to http data source: a redirect leads to an address that is none"
