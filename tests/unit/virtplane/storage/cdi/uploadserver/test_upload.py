"""Uploads and clones over TLS into a folder."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import random
import ssl
import stat
import subprocess
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
import trustme
from aiohttp import web
from tests.support.waiting import until
from tests.support.web import serve_app, web_session

from virtplane.storage.cdi.cloner.main import CloneFailed, CloneSettings, clone
from virtplane.storage.cdi.importer import pipeline
from virtplane.storage.cdi.importer.outcome import Outcome
from virtplane.storage.cdi.importer.progress import Progress
from virtplane.storage.cdi.importer.settings import Paths
from virtplane.storage.cdi.uploadserver import main as program
from virtplane.storage.cdi.uploadserver.settings import UploadSettings, read_upload_settings

MIB = 1 << 20
CLIENT = "client.upload-server.cdi.kubevirt.io"


@dataclass(frozen=True)
class Pod:
    """An upload server with its volume, and what a client needs."""

    url: str
    folder: Path
    authority: trustme.CA
    ended: asyncio.Task[str]

    @property
    def disk(self) -> Path:
        return self.folder / "data/disk.img"

    def tls(self, name: str = CLIENT) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        self.authority.issue_cert(common_name=name).configure_cert(context)
        return context

    def clone_settings(self, source: Path, *, is_device: bool) -> CloneSettings:
        pair = self.authority.issue_cert(common_name=CLIENT)
        return CloneSettings(
            source=source,
            is_device=is_device,
            url=f"{self.url}/v1beta1/upload",
            certificate=b"".join(each.bytes() for each in pair.cert_chain_pems).decode(),
            key=pair.private_key_pem.bytes().decode(),
            authority=self.authority.cert_pem.bytes().decode(),
            owner_uid="uid",
            preallocate=False,
        )


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def settings(tmp_path: Path, authority: trustme.CA, unused_tcp_port: int) -> UploadSettings:
    (tmp_path / "data").mkdir()
    (tmp_path / "scratch").mkdir()
    server = authority.issue_cert("127.0.0.1")
    server.private_key_pem.write_to_path(str(tmp_path / "key"))
    (tmp_path / "certificate").write_bytes(b"".join(each.bytes() for each in server.cert_chain_pems))
    authority.cert_pem.write_to_path(str(tmp_path / "authority"))
    environment = {
        "TLS_KEY_FILE": str(tmp_path / "key"),
        "TLS_CERT_FILE": str(tmp_path / "certificate"),
        "CLIENT_CERT_FILE": str(tmp_path / "authority"),
        "CLIENT_NAME": CLIENT,
        "UPLOAD_IMAGE_SIZE": str(20 * MIB),
        "FILESYSTEM_OVERHEAD": "0.06",
        "LISTEN_ADDRESS": "127.0.0.1",
        "LISTEN_PORT": str(unused_tcp_port),
    }
    paths = Paths(
        data=tmp_path / "data",
        device=tmp_path / "none",
        scratch=tmp_path / "scratch",
        google=tmp_path / "none",
    )
    return read_upload_settings(environment, paths)


@asynccontextmanager
async def serving(settings: UploadSettings, authority: trustme.CA) -> AsyncIterator[Pod]:
    ended = asyncio.create_task(program.serve(settings))
    url = f"https://127.0.0.1:{settings.port}"
    pod = Pod(url, settings.volume.paths.data.parent, authority, ended)
    async with web_session() as session:
        while not ended.done():
            try:
                async with session.get(f"{url}/healthz", ssl=pod.tls()) as answer:
                    assert await answer.text() == "OK"
                    break
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0)
    try:
        yield pod
    finally:
        ended.cancel()
        await asyncio.gather(ended, return_exceptions=True)


async def post(pod: Pod, path: str, content: object, client: str = CLIENT) -> tuple[int, str]:
    async with (
        web_session() as session,
        session.post(f"{pod.url}{path}", data=content, ssl=pod.tls(client)) as answer,
    ):
        return answer.status, await answer.text()


def as_qcow2(folder: Path, raw: bytes) -> bytes:
    source, made = folder / "raw", folder / "qcow2"
    source.write_bytes(raw)
    command = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(source), str(made)]
    subprocess.run(command, check=True)
    return made.read_bytes()


def with_backing_file(folder: Path) -> bytes:
    made = folder / "overlay"
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", "/etc/shadow", "-F", "raw", "-u"]
    subprocess.run([*command, str(made), "1M"], check=True)
    return made.read_bytes()


@pytest.mark.parametrize("path", ["/v1beta1/upload", "/v1alpha1/upload", "/v1beta1/upload-async"])
@pytest.mark.parametrize("disk_format", ["raw", "gz", "qcow2"])
async def test_upload_fills_the_volume_and_ends_the_server(
    settings: UploadSettings, authority: trustme.CA, tmp_path: Path, path: str, disk_format: str
) -> None:
    raw = b"disk" * 100_000
    content = raw
    if disk_format == "gz":
        content = gzip.compress(raw)
    if disk_format == "qcow2":
        content = as_qcow2(tmp_path, raw)
    async with serving(settings, authority) as pod:
        status, text = await post(pod, path, content)
        assert status == 200, text
        message = json.loads(await pod.ended)
    assert message["message"] == "Upload Complete"
    assert pod.disk.read_bytes()[: len(raw)] == raw
    assert pod.disk.stat().st_size == 18 * MIB


async def test_a_fault_after_the_answer_ends_the_server(
    settings: UploadSettings, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails() -> Outcome:
        raise ZeroDivisionError

    async def received(*_: object) -> Callable[[], Awaitable[Outcome]]:
        return fails

    monkeypatch.setattr(pipeline, "received", received)
    async with serving(settings, authority) as pod:
        assert await post(pod, "/v1beta1/upload-async", b"disk") == (200, "")
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(pod.ended, 30)


async def test_form_carries_the_file_in_its_field(settings: UploadSettings, authority: trustme.CA) -> None:
    form = aiohttp.FormData()
    form.add_field("other", "x")
    form.add_field("file", b"disk" * 1000, filename="disk.img")
    async with serving(settings, authority) as pod:
        assert (await post(pod, "/v1beta1/upload-form", b"x"))[0] == 400
        assert (await post(pod, "/v1beta1/upload-form", form))[0] == 200
        await pod.ended
    assert pod.disk.read_bytes()[:4000] == b"disk" * 1000


async def test_archive_is_unpacked(settings: UploadSettings, authority: trustme.CA) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        entry = tarfile.TarInfo("a/file")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"data"))
    async with serving(settings, authority) as pod:
        assert (await post(pod, "/v1beta1/upload-archive", made.getvalue()))[0] == 200
        await pod.ended
    assert (pod.folder / "data/a/file").read_bytes() == b"data"


async def test_an_archive_leaves_the_volumes_own_root_as_it_is(
    settings: UploadSettings, authority: trustme.CA
) -> None:
    """It may belong to somebody else; ``tar -C folder .`` packs the folder too, as clones do."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in (".", "./a", "./.hidden"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o700, 1_000_000
            archive.addfile(entry)
    async with serving(settings, authority) as pod:
        root = pod.folder / "data"
        root.chmod(0o2777)
        assert (await post(pod, "/v1beta1/upload-archive", made.getvalue()))[0] == 200
        await pod.ended
    assert stat.S_IMODE(root.stat().st_mode) == 0o2777
    assert root.stat().st_mtime > 1_000_000
    assert [(root / name).stat().st_mode & 0o777 for name in ("a", ".hidden")] == [0o700, 0o700]


async def test_strangers_and_other_methods_are_refused_and_healthy_needs_no_certificate(
    settings: UploadSettings, authority: trustme.CA
) -> None:
    async with serving(settings, authority) as pod, web_session() as session:
        assert (await post(pod, "/v1beta1/upload", b"x", client="somebody"))[0] == 401
        nobody = ssl.create_default_context()
        authority.configure_trust(nobody)
        for method, path, status in (
            ("POST", "/v1beta1/upload", 401),
            ("GET", "/v1beta1/upload", 404),
            ("GET", "/healthz", 200),
        ):
            async with session.request(method, f"{pod.url}{path}", ssl=nobody) as answer:
                assert answer.status == status
        async with session.head(f"{pod.url}/v1beta1/upload-async", ssl=pod.tls()) as answer:
            assert answer.status == 200
    assert not pod.disk.exists()


async def test_too_large_and_unsafe_uploads_can_be_tried_again(
    settings: UploadSettings, authority: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(settings, authority) as pod:
        status, text = await post(pod, "/v1beta1/upload", gzip.compress(bytes(30 * MIB)))
        assert status == 400
        too_large = "effective image size is larger than the reported available storage: "
        assert text.startswith(f"Saving stream failed: {too_large}")
        assert too_large in caplog.text
        status, text = await post(pod, "/v1beta1/upload", with_backing_file(tmp_path))
        assert (status, "invalid backing file" in text) == (500, True), text
        assert (await post(pod, "/v1beta1/upload", b"disk" * 128))[0] == 200
        await pod.ended


@pytest.mark.parametrize("packed", [False, True])
async def test_client_that_hangs_up_leaves_nothing_and_may_come_again(
    settings: UploadSettings, authority: trustme.CA, packed: bool
) -> None:
    """It hangs up after 10, 50 and 90 % of what it has announced; what it sends at last is shorter."""
    chance = random.Random(1)
    raw = chance.randbytes(4 * MIB)
    content = gzip.compress(raw) if packed else raw

    async def part(percent: int) -> AsyncIterator[bytes]:
        yield content[: len(content) * percent // 100]
        raise ConnectionAbortedError

    async with serving(settings, authority) as pod:
        for percent in (10, 50, 90):
            async with web_session() as session:
                sending = session.post(
                    f"{pod.url}/v1beta1/upload",
                    data=part(percent),
                    ssl=pod.tls(),
                    headers={"Content-Length": str(len(content))},
                )
                with pytest.raises((aiohttp.ClientError, ConnectionAbortedError)):
                    await sending
            assert not pod.ended.done()
        shorter = chance.randbytes(MIB)
        await _when_it_may(pod, shorter)
        assert json.loads(await pod.ended)["message"] == "Upload Complete"
    found = pod.disk.read_bytes()
    assert found[:MIB] == shorter
    assert not found[MIB:].strip(b"\0")


async def _when_it_may(pod: Pod, content: bytes) -> None:
    """Send `content` once the server has noticed that the client before has gone."""

    async def is_taken() -> bool:
        return (await post(pod, "/v1beta1/upload", content))[0] != 503

    await until(is_taken)


@pytest.fixture
def small_volume(settings: UploadSettings) -> Iterator[Path]:
    """The volume is a file system of 8 MiB that claims to be larger."""
    data = settings.volume.paths.data
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(data)], check=True)
    yield data
    subprocess.run(["umount", str(data)], check=True)


@pytest.mark.host
@pytest.mark.parametrize("disk_format", ["raw", "gz", "qcow2", "archive"])
async def test_full_volume_is_told_to_the_client_who_may_come_again(
    settings: UploadSettings, authority: trustme.CA, tmp_path: Path, small_volume: Path, disk_format: str
) -> None:
    raw = random.Random(2).randbytes(12 * MIB)
    content, path = raw, "/v1beta1/upload"
    if disk_format == "gz":
        content = gzip.compress(raw)
    if disk_format == "qcow2":
        content = as_qcow2(tmp_path, raw)
    if disk_format == "archive":
        made, path = io.BytesIO(), "/v1beta1/upload-archive"
        with tarfile.open(fileobj=made, mode="w") as archive:
            entry = tarfile.TarInfo("file")
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
        content = made.getvalue()
    async with serving(settings, authority) as pod:
        status, text = await post(pod, path, io.BytesIO(content))
        is_disk = disk_format != "archive"
        said = "is larger than the reported available storage" if is_disk else "no space left on device"
        assert (status, said in text) == (400 if is_disk else 500, True), text
        assert is_disk or not list(small_volume.iterdir())
        assert (await post(pod, "/v1beta1/upload", raw[:MIB]))[0] == 200
        await pod.ended
        assert pod.disk.read_bytes()[:MIB] == raw[:MIB]


async def test_server_whose_certificates_grew_old_ends_and_says_so(
    settings: UploadSettings, authority: trustme.CA
) -> None:
    late = replace(settings, deadline=datetime.now(UTC) - timedelta(seconds=1))
    assert json.loads(await program.serve(late)) == {"deadlinePassed": True, "message": "Deadline Passed"}


async def test_clone_of_files_carries_holes_and_links(
    settings: UploadSettings, authority: trustme.CA, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "lost+found").mkdir(parents=True)
    (source / "sub").mkdir()
    (source / "sub/link").symlink_to("../disk.img")
    with (source / "disk.img").open("wb") as disk:
        disk.truncate(16 * MIB)
        disk.seek(8 * MIB)
        disk.write(b"data")
    async with serving(settings, authority) as pod:
        progress = Progress("uid", "clone")
        text = await clone(pod.clone_settings(source, is_device=False), progress)
        assert text == "Clone Complete"
        assert json.loads(await pod.ended)["message"] == "Clone Complete"
    data = pod.folder / "data"
    assert (data / "disk.img").read_bytes() == (source / "disk.img").read_bytes()
    assert (data / "disk.img").stat().st_blocks * 512 < MIB
    assert (data / "sub/link").readlink() == Path("../disk.img")
    assert not (data / "lost+found").exists()
    assert progress.percent == 100.0


async def test_clone_that_is_refused_says_why(
    settings: UploadSettings, authority: trustme.CA, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * (30 * MIB))
    async with serving(settings, authority) as pod:
        with pytest.raises(CloneFailed):
            await clone(pod.clone_settings(source, is_device=True), Progress("uid", "clone"))


@pytest.mark.parametrize("status", [302, 303, 307, 308])
async def test_clone_goes_to_no_other_server_than_its_own(
    status: int, authority: trustme.CA, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * MIB)
    asked: list[str] = []

    async def send_elsewhere(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=status, headers={"Location": "/of-another-tenant"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", send_elsewhere)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    async with serve_app(app, tls) as port, asyncio.TaskGroup() as others:
        pod = Pod(f"https://127.0.0.1:{port}", tmp_path, authority, others.create_task(_ended()))
        with pytest.raises(CloneFailed, match=f"Unexpected status code {status}"):
            await clone(pod.clone_settings(source, is_device=True), Progress("uid", "clone"))
    assert asked == ["/v1beta1/upload"]


async def _ended() -> str:
    return ""


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "device"
    file.write_bytes(b"\xff" * (16 * MIB))
    made = subprocess.run(
        ["losetup", "--find", "--show", str(file)], check=True, capture_output=True, text=True
    )
    yield Path(made.stdout.strip())
    subprocess.run(["losetup", "--detach", made.stdout.strip()], check=True)


@pytest.fixture
def to_device(settings: UploadSettings, device: Path) -> UploadSettings:
    paths = replace(settings.volume.paths, device=device)
    return replace(settings, volume=replace(settings.volume, paths=paths, overhead=0.0))


@pytest.mark.host
@pytest.mark.parametrize("hole_bytes", [0, 4 * MIB])
async def test_clone_from_files_to_a_device_takes_the_disk_alone(
    to_device: UploadSettings, authority: trustme.CA, tmp_path: Path, device: Path, hole_bytes: int
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "another").write_bytes(b"file" * 1000)
    with (source / "disk.img").open("wb") as disk:
        disk.seek(hole_bytes)
        disk.write(b"disk" * MIB)
    async with serving(to_device, authority) as pod:
        await clone(pod.clone_settings(source, is_device=False), Progress("uid", "clone"))
        await pod.ended
    content = device.read_bytes()
    assert content[hole_bytes : hole_bytes + 4 * MIB] == b"disk" * MIB
    assert not content[:hole_bytes].strip(b"\0")
    assert not content[hole_bytes + 4 * MIB :].strip(b"\0")


@pytest.mark.host
async def test_clone_of_files_without_a_disk_is_no_clone_to_a_device(
    to_device: UploadSettings, authority: trustme.CA, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "another").write_bytes(b"file" * MIB)
    async with serving(to_device, authority) as pod:
        with pytest.raises(CloneFailed, match=r"disk\.img is not in the archive"):
            await clone(pod.clone_settings(source, is_device=False), Progress("uid", "clone"))
        assert not pod.ended.done()
