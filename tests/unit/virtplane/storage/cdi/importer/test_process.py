"""The importer's process: killed, out of space, beside real servers; what it needs and what it tells."""

from __future__ import annotations

import asyncio
import base64
import gzip
import random
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.hostile_server import answering, endless
from tests.support.image_server import ServedFile, serving
from tests.support.importer_process import imported, importing
from tests.support.moto_server import Keys, serving_bucket
from tests.support.waiting import until, until_listening
from tests.unit.virtplane.storage.cdi.importer.conftest import MIB

from virtplane.image import distribution
from virtplane.image.commands import BuildError

MEMORY_BYTES = 120 * MIB
_NGINX = """\
daemon off; worker_processes 1; pid {folder}/pid; error_log stderr; {user}
events {{}}
http {{
  access_log off; client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2;
  fastcgi_temp_path {folder}/t3; uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{
    listen 127.0.0.1:{port};
    root {folder}/files;
    location /plain/ {{ max_ranges 0; alias {folder}/files/; }}
    location /protected/ {{ auth_basic x; auth_basic_user_file {folder}/passwords; alias {folder}/files/; }}
    location /slow/ {{ limit_rate 4m; alias {folder}/files/; }}
    location /forbidden/ {{ return 403; }}
    location /broken/ {{ return 500; }}
  }}
}}
"""


def run_program(*command: str) -> bytes:
    return subprocess.run(command, check=True, capture_output=True).stdout


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def large_disk() -> bytes:
    """A disk of 48 MiB without zeros."""
    return random.Random(3).randbytes(48 * MIB)


@pytest.fixture(scope="module")
def nginx_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution's nginx, unpacked and not installed."""
    folder = tmp_path_factory.mktemp("nginx")
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o755)  # apt downloads as a user of its own.
    try:
        debs = distribution.fetch(folder / "debs", ("nginx",))
    except BuildError as error:
        pytest.skip(f"the distribution's packages cannot be fetched: {error}")
    distribution.unpack([deb for deb in debs if deb.name.startswith("nginx_")], folder / "tree")
    return folder / "tree/usr/sbin/nginx"


class Nginx:
    """nginx with the files in `files`; it can be killed and started again at its address."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.files = folder / "files"
        self.files.mkdir(parents=True)
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        password = subprocess.run(
            ["openssl", "passwd", "-apr1", "pass:word"], check=True, capture_output=True, text=True
        )
        (folder / "passwords").write_text(f"me:{password.stdout}")
        (folder / "conf").write_text(_NGINX.format(folder=folder, port=self.port, user="user root;"))
        self._command = [str(program), "-c", str(folder / "conf"), "-e", "stderr"]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stderr=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        await until_listening("127.0.0.1", self.port)

    async def stop(self) -> None:
        """End it at once, in the middle of what it sends."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.wait()


@asynccontextmanager
async def nginx(program: Path, folder: Path) -> AsyncIterator[Nginx]:
    server = Nginx(program, folder)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def until_written(disk: Path, size: int) -> None:
    await until(lambda: disk.exists() and disk.stat().st_blocks * 512 >= size)


@pytest.mark.host
@pytest.mark.feature("STO-51")
@pytest.mark.feature("VMC-45")
@pytest.mark.feature("VMC-75")
@pytest.mark.feature("STO-52")
async def test_disks_come_from_nginx_and_its_refusals_are_told(
    nginx_program: Path, tmp_path: Path, raw_disk: bytes, converted: Callable[..., bytes]
) -> None:
    keys = {"IMPORTER_ACCESS_KEY_ID": "me", "IMPORTER_SECRET_KEY": "pass:word"}
    wrong = keys | {"IMPORTER_SECRET_KEY": "other"}
    async with nginx(nginx_program, tmp_path / "nginx") as server:
        (server.files / "disk.qcow2").write_bytes(converted("qcow2"))
        (server.files / "disk.gz").write_bytes(gzip.compress(raw_disk))
        good = [
            await imported(tmp_path, "http", f"{server.address}/{path}", "-v=9", **more)
            for path, more in (("disk.qcow2", {}), ("protected/disk.qcow2", keys), ("plain/disk.gz", {}))
        ]
        assert (tmp_path / "data/disk.img").read_bytes()[: len(raw_disk)] == raw_disk
        for path, status, more in (
            ("missing", 404, {}),
            ("forbidden/x", 403, {}),
            ("broken/x", 500, {}),
            ("protected/disk.gz", 401, wrong),
        ):
            ended = await imported(tmp_path, "http", f"{server.address}/{path}", "-v=9", **more)
            expected = f"expected status code 200, got {status}. Status: {status} "
            assert ended.code == 1
            assert ended.text.startswith(f"Unable to connect to http data source: {expected}")
            assert "other" not in ended.log + ended.text
    for each in good:
        assert (each.code, each.message) == (0, "Import Complete"), each.log
        assert each.peak_bytes < MEMORY_BYTES
        assert "pass:word" not in each.log
        assert base64.b64encode(b"me:pass:word").decode() not in each.log


@pytest.mark.feature("VMC-52")
@pytest.mark.timeout(400)
async def test_objects_come_from_moto_and_its_refusals_are_told(
    moto: Path, tmp_path: Path, raw_disk: bytes, converted: Callable[..., bytes]
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a disk+1&=~.img").write_bytes(raw_disk)
    (files / "disk.qcow2").write_bytes(converted("qcow2"))
    (files / "disk.img.gz").write_bytes(gzip.compress(raw_disk))
    with serving_bucket(moto, files) as bucket:
        for name in sorted(each.name for each in files.iterdir()):
            ended = await imported(
                tmp_path, "s3", f"{bucket.address}/{name}", "-v=9", **_signing(bucket.reader)
            )
            assert (ended.code, ended.message) == (0, "Import Complete"), ended.log
            assert ended.disk.read_bytes()[: len(raw_disk)] == raw_disk
            assert ended.peak_bytes < MEMORY_BYTES
            assert bucket.reader.secret not in ended.log
        ended.disk.unlink()
        unknown, forger = (
            Keys("AKIAUNKNOWN", bucket.reader.secret),
            Keys(bucket.reader.access, "wrong-secret"),
        )
        for name, keys, problem in (
            (
                "disk.qcow2",
                forger,
                "SignatureDoesNotMatch: The request signature we calculated does not match",
            ),
            ("disk.qcow2", unknown, "InvalidAccessKeyId: The AWS Access Key Id you provided does not exist"),
            ("disk.qcow2", bucket.stranger, "AccessDenied: Access Denied status code: 403, "),
            ("none", bucket.reader, "NoSuchKey: The specified key does not exist. status code: 404, "),
        ):
            ended = await imported(tmp_path, "s3", f"{bucket.address}/{name}", "-v=9", **_signing(keys))
            assert ended.code == 1
            told = f'could not get s3 object: "disks/{name}": {problem}'
            assert ended.text.startswith(f"Unable to connect to s3 data source: {told}")
            assert keys.secret not in ended.log + ended.text
            assert not ended.disk.exists()


def _signing(keys: Keys) -> dict[str, str]:
    return {"IMPORTER_ACCESS_KEY_ID": keys.access, "IMPORTER_SECRET_KEY": keys.secret}


@pytest.mark.host
async def test_server_that_dies_and_comes_back_is_got_over(
    nginx_program: Path, tmp_path: Path, large_disk: bytes
) -> None:
    async with nginx(nginx_program, tmp_path / "nginx") as server:
        (server.files / "disk").write_bytes(large_disk)
        address = f"{server.address}/slow/disk"
        async with importing(tmp_path, "http", address, PAUSE="0.3") as run:
            ending = asyncio.create_task(run.ended())
            for percent in (10, 50, 90):
                await until_written(run.disk, len(large_disk) * percent // 100)
                await server.stop()
                await server.start()
            await ending
    assert (run.code, run.message) == (0, "Import Complete"), run.log
    assert run.disk.read_bytes()[: len(large_disk)] == large_disk
    assert run.log.count("going on") >= 3
    assert run.peak_bytes < MEMORY_BYTES


async def test_server_that_dies_for_good_is_told_and_what_is_left_is_no_disk(
    tmp_path: Path, large_disk: bytes
) -> None:
    file = ServedFile(large_disk, breaks=[len(large_disk) // 2], ranges=False)
    async with serving(file) as address:
        run = await imported(tmp_path, "http", address)
        assert (run.code, run.text.startswith("Unable to process data: ")) == (1, True), run.text
        assert not run.disk.exists() or run.disk.stat().st_size < len(large_disk)
        again = await imported(tmp_path, "http", address)
    assert again.code == 0, again.log
    assert again.disk.read_bytes()[: len(large_disk)] == large_disk


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_process_that_is_killed_starts_anew(tmp_path: Path, large_disk: bytes, how: int) -> None:
    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 50331648\r\n\r\n" + large_disk[: 8 * MIB])
        await writer.drain()
        await asyncio.Event().wait()

    async with answering(answer) as address, importing(tmp_path, "http", address) as run:
        await until_written(run.disk, 4 * MIB)
        run.process.send_signal(how)
        await run.ended()
    assert run.code != 0
    assert not run.text
    async with serving(ServedFile(large_disk[: 6 * MIB])) as address:
        again = await imported(tmp_path, "http", address)
    assert (again.code, again.message) == (0, "Import Complete"), again.log
    content = again.disk.read_bytes()
    assert content[: 6 * MIB] == large_disk[: 6 * MIB]
    assert not content[6 * MIB :].strip(b"\0")


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A folder whose volume is a file system of 8 MiB, and whose scratch volume has as much."""
    for name in ("data", "scratch"):
        (tmp_path / name).mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(tmp_path / name)]
        subprocess.run(command, check=True)
    yield tmp_path
    for name in ("data", "scratch"):
        subprocess.run(["umount", str(tmp_path / name)], check=True)


@pytest.mark.host
@pytest.mark.parametrize("kind", ["scratch", "archive"])
async def test_full_volume_is_told(small_volume: Path, large_disk: bytes, kind: str) -> None:
    """The volume claims to be larger than it is: it runs full while it is written."""
    more = {"IMPORTER_CONTENTTYPE": "archive"} if kind == "archive" else {}
    content = gzip.compress(b"QFI\xfb" + large_disk[: 16 * MIB], 1)
    if kind == "archive":
        file = small_volume / "big"
        file.write_bytes(large_disk[: 16 * MIB])
        content = run_program("tar", "-c", "-C", str(small_volume), "big")
    async with serving(ServedFile(content)) as address:
        run = await imported(small_volume, "http", address, **more)
    assert run.code == 1
    assert "no space left on device" in run.text
    assert not list((small_volume / kind.replace("archive", "data")).iterdir())


async def test_large_disks_and_bombs_need_little_memory(tmp_path: Path, large_disk: bytes) -> None:
    source, made = tmp_path / "source", tmp_path / "made"
    source.write_bytes(large_disk)
    run_program("qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(source), str(made))
    async with serving(ServedFile(made.read_bytes())) as address:
        in_place = await imported(tmp_path, "http", address)
    assert (in_place.code, in_place.message) == (0, "Import Complete"), in_place.log
    assert in_place.disk.read_bytes()[: len(large_disk)] == large_disk

    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        await endless(writer, b"HTTP/1.1 200 OK\r\n", gzip.compress(b"x" + bytes(100 * MIB)), bytes(MIB))

    async with answering(answer) as address:
        bomb = await imported(tmp_path, "http", address, IMPORTER_IMAGE_SIZE="4Gi")
    assert bomb.code == 1
    assert "bytes come after the data" in bomb.text
    for run in (in_place, bomb):
        assert 20 * MIB < run.peak_bytes < MEMORY_BYTES


async def test_log_has_no_secret(tmp_path: Path, raw_disk: bytes) -> None:
    """The most talkative importer tells neither keys nor headers nor signatures, whether it fails or not."""
    keys = {
        "IMPORTER_ACCESS_KEY_ID": "the-access-key",
        "IMPORTER_SECRET_KEY": "the-secret-key",
        "IMPORTER_EXTRA_HEADER_0": "X-Token: the-header",
    }
    async with serving(ServedFile(raw_disk)) as address:
        good = await imported(tmp_path, "s3", f"{address}/bucket/disk", "-v=9", **keys)
    bad = await imported(tmp_path, "s3", "http://127.0.0.1:1/bucket/disk", "-v", "9", **keys)
    assert (good.code, bad.code) == (0, 1), good.log
    assert '"level":"debug"' in good.log
    for run in (good, bad):
        for secret in ("the-access-key", "the-secret-key", "the-header", "X-Amz-Signature"):
            assert secret not in run.log + run.text
