"""Sending a file to the upload proxy: through CDI's own servers, over TLS, in bounded memory."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import click
import pytest
import trustme
from aiohttp import web
from tests.support.waiting import until_listening
from tests.support.web import serve_app

from kubecore.errors import StatusError
from kubecore.resources import CONFIG_MAPS, SERVICES
from kubecore.testing import MemoryApi
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.resources import CDI_CONFIGS
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.cli.virtctl.contents import Content, whole
from virtplane.cli.virtctl.progress import Progress
from virtplane.cli.virtctl.uploading import uploadproxy
from virtplane.cli.virtctl.uploading.uploadproxy import Attempts, Proxy, send
from virtplane.storage.cdi.importer.settings import Paths
from virtplane.storage.cdi.tokens import VerifiedToken
from virtplane.storage.cdi.uploadproxy.proxy import UploadProxy
from virtplane.storage.cdi.uploadserver import main as upload_server
from virtplane.storage.cdi.uploadserver.settings import UploadSettings, read_upload_settings

MIB = 1 << 20
CLIENT = "client.upload-server.cdi.kubevirt.io"
HOST = "cdi-upload-disk.ns.svc"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def pem(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


def attempts(count: int = 5, *, done: bool = False) -> Attempts:
    """Attempts with a token that is always good, and without pauses."""

    async def token() -> str:
        return "good"

    async def prepare() -> None:
        return None

    async def is_done() -> bool:
        return done

    async def sleep(_: float) -> None:
        return None

    return Attempts(count, token, prepare, is_done, sleep)


@asynccontextmanager
async def running(application: web.Application, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    async with serve_app(application, tls) as port:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"


@asynccontextmanager
async def taking(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a proxy that handles uploads so."""
    application = web.Application(client_max_size=0)
    application.router.add_post("/v1beta1/upload", handler)
    async with running(application, tls) as url:
        yield url


def served_as(authority: trustme.CA, host: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(host).configure_cert(context)
    return context


@dataclass
class Cluster:
    """A claim with an upload server at `port`."""

    port: int
    tls: ssl.SSLContext

    async def verified(self, token: str) -> VerifiedToken:
        assert token == "good"
        return VerifiedToken("Upload", "disk", "ns", "", "persistentvolumeclaims", {})

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        notes = {"upload.target": "", "pod.ready": "true"}
        annotations = {f"cdi.kubevirt.io/storage.{key}": value for key, value in notes.items()}
        return PersistentVolumeClaim(metadata=ObjectMeta(name=name, namespace="ns", annotations=annotations))

    async def session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(resolver=Loopback(self.port), ssl=self.tls, force_close=True)
        return aiohttp.ClientSession(connector=connector)


class Loopback(aiohttp.abc.AbstractResolver):
    """Every name is loopback, at one port."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[Any]:
        fixed = {"host": "127.0.0.1", "port": self._port, "family": 2, "proto": 0, "flags": 0}
        return [{"hostname": host, **fixed}]

    async def close(self) -> None:
        return None


def server_settings(folder: Path, authority: trustme.CA, port: int) -> UploadSettings:
    for name in ("data", "scratch"):
        (folder / name).mkdir()
    pair = authority.issue_cert(HOST)
    pair.private_key_pem.write_to_path(str(folder / "key"))
    (folder / "certificate").write_bytes(b"".join(each.bytes() for each in pair.cert_chain_pems))
    authority.cert_pem.write_to_path(str(folder / "authority"))
    environment = {
        "TLS_KEY_FILE": str(folder / "key"),
        "TLS_CERT_FILE": str(folder / "certificate"),
        "CLIENT_CERT_FILE": str(folder / "authority"),
        "CLIENT_NAME": CLIENT,
        "UPLOAD_IMAGE_SIZE": str(20 * MIB),
        "FILESYSTEM_OVERHEAD": "0.06",
        "LISTEN_ADDRESS": "127.0.0.1",
        "LISTEN_PORT": str(port),
    }
    none = folder / "none"
    return read_upload_settings(environment, Paths(folder / "data", none, folder / "scratch", google=none))


@pytest.mark.feature("CTL-43")
async def test_an_image_arrives_through_cdis_proxy_and_upload_server(
    tmp_path: Path, authority: trustme.CA, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"disk" * 700_000)
    settings = server_settings(tmp_path, authority, unused_tcp_port)
    tls = ssl.create_default_context()
    authority.configure_trust(tls)
    authority.issue_cert(common_name=CLIENT).configure_cert(tls)
    cluster = Cluster(unused_tcp_port, tls)
    sessions: list[aiohttp.ClientSession] = []

    async def session() -> aiohttp.ClientSession:
        sessions.append(await Cluster.session(cluster))
        return sessions[-1]

    monkeypatch.setattr(cluster, "session", session, raising=False)
    server = asyncio.create_task(upload_server.serve(settings))
    output = io.StringIO()
    try:
        async with running(UploadProxy(cluster).application(), served_as(authority, "127.0.0.1")) as url:
            proxy = Proxy(url, authority=pem(authority))
            await until_listening("127.0.0.1", unused_tcp_port)
            await send(proxy, whole(image), attempts(), Progress(image.stat().st_size, output))
        assert json.loads(await server)["message"] == "Upload Complete"
    finally:
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
        for each in sessions:
            await each.close()
    assert (tmp_path / "data/disk.img").read_bytes()[: image.stat().st_size] == image.read_bytes()
    assert output.getvalue().splitlines()[-1].startswith("100% 2.7 MiB / 2.7 MiB")


async def accept(request: web.Request) -> web.Response:
    await request.read()
    return web.Response()


@pytest.mark.feature("CTL-45")
async def test_the_proxys_certificate_is_verified_unless_it_need_not_be(
    tmp_path: Path, authority: trustme.CA
) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"disk")
    async with taking(accept, served_as(authority, "127.0.0.1")) as url:
        tries = 0

        async def prepare() -> None:
            nonlocal tries
            tries += 1

        given = attempts()
        counted = Attempts(given.count, given.new_token, prepare, given.is_done, given.sleep)
        with pytest.raises(click.ClickException) as raised:
            await send(Proxy(url), whole(image), counted, Progress(4, io.StringIO()))
        assert "tls: failed to verify certificate" in raised.value.message
        assert "--insecure" in raised.value.message
        assert tries == 1
        await send(Proxy(url, insecure=True), whole(image), counted, Progress(4, io.StringIO()))
        trusted = Proxy(url, authority=pem(authority))
        await send(trusted, whole(image), counted, Progress(4, io.StringIO()))


async def test_a_proxy_at_an_address_is_verified_by_the_name_of_its_service(
    tmp_path: Path, authority: trustme.CA
) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"disk")
    async with taking(accept, served_as(authority, "cdi-uploadproxy.cdi.svc")) as url:
        named = Proxy(url, authority=pem(authority), server_name="cdi-uploadproxy.cdi.svc")
        await send(named, whole(image), attempts(), Progress(4, io.StringIO()))
        for other in ("", "other.cdi.svc"):
            wrong = Proxy(url, authority=pem(authority), server_name=other)
            with pytest.raises(click.ClickException, match="failed to verify certificate"):
                await send(wrong, whole(image), attempts(), Progress(4, io.StringIO()))


async def test_cdis_configuration_may_name_the_certificate_itself(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"disk")
    pair = trustme.CA().issue_cert("127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    pair.configure_cert(tls)
    async with taking(accept, tls) as url:
        leaf = pair.cert_chain_pems[0].bytes().decode()
        await send(Proxy(url, authority=leaf), whole(image), attempts(), Progress(4, io.StringIO()))


async def test_a_damaged_authority_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"disk")
    async with taking(accept) as url:
        await send(Proxy(url, authority="x"), whole(image), attempts(), Progress(4, io.StringIO()))
    assert "WARNING: the upload proxy's authority in CDIConfig is not readable" in capsys.readouterr().err


async def test_no_more_is_read_than_the_server_takes(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(96 * MIB)
    progress = Counting(96 * MIB, io.StringIO())
    most = 0

    async def take(request: web.Request) -> web.Response:
        nonlocal most
        received = 0
        async for piece in request.content.iter_any():
            received += len(piece)
            most = max(most, progress.sent - received)
        assert received == 96 * MIB
        return web.Response()

    async with taking(take) as url:
        await send(Proxy(url), whole(image), attempts(), progress)
    assert most < 32 * MIB


class Counting(Progress):
    """Knows how many bytes were sent."""

    sent = 0

    def add(self, count: int) -> None:
        self.sent += count
        super().add(count)


async def test_a_part_of_a_file_is_sent_alone(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"head" + b"disk" * 1000 + b"tail")
    taken: list[bytes] = []

    async def take(request: web.Request) -> web.Response:
        taken.append(await request.read())
        return web.Response()

    async with taking(take) as url:
        part = Content(image, 4000, 4)
        await send(Proxy(url), part, attempts(), Progress(4000, io.StringIO()))
        await send(Proxy(url), Content(image, 0), attempts(), Progress(0, io.StringIO()))
    assert taken == [b"disk" * 1000, b""]


async def test_a_file_that_becomes_shorter_ends_the_upload(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"disk")
    async with taking(accept) as url:
        with pytest.raises(click.ClickException, match="became shorter"):
            await send(Proxy(url), Content(image, 4 * MIB), attempts(), Progress(4 * MIB, io.StringIO()))


async def test_an_answer_before_the_end_of_the_upload_is_heard(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(64 * MIB)

    async def refuse(request: web.Request) -> web.Response:
        await request.content.readany()
        return web.Response(status=413, text="too\x1b[1m large\n" + "x" * 10000)

    async with taking(refuse) as url:
        with pytest.raises(click.ClickException) as raised:
            await send(Proxy(url), whole(image), attempts(1), Progress(64 * MIB, io.StringIO()))
    text = raised.value.message
    assert text.startswith("error uploading image after 1 retries: ")
    assert "\x1b" not in text and len(text) < 5000


async def test_nobody_behind_the_address_is_an_error(tmp_path: Path, unused_tcp_port: int) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"disk")
    url = f"http://127.0.0.1:{unused_tcp_port}"
    with pytest.raises(click.ClickException) as raised:
        await send(Proxy(url), whole(image), attempts(0), Progress(4, io.StringIO()))
    assert raised.value.message.startswith(
        f'error uploading image after 1 retries: Post "{url}/v1beta1/upload": '
    )


@pytest.mark.parametrize("url", ["https://", "ftp://host"])
async def test_addresses_that_are_none_are_told_at_once(tmp_path: Path, url: str) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"disk")
    with pytest.raises(click.ClickException, match="the URL is invalid"):
        await send(Proxy(url), whole(image), attempts(), Progress(4, io.StringIO()))


async def test_redirects_are_not_followed_with_the_token(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"disk")

    async def lead_away(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=307, headers={"Location": "http://127.0.0.1:9/"})

    async with taking(lead_away) as url:
        with pytest.raises(click.ClickException, match="unexpected return value 307"):
            await send(Proxy(url), whole(image), attempts(1), Progress(4, io.StringIO()))


def test_the_environment_names_a_web_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert uploadproxy._web_proxy("https://outside.example/x") == "http://proxy:3128"
    assert uploadproxy._web_proxy("https://inside.example") is None
    assert uploadproxy._web_proxy("http://outside.example") is None
    monkeypatch.setenv("https_proxy", "socks5://proxy")
    with pytest.raises(click.ClickException, match="is no HTTP proxy"):
        uploadproxy._web_proxy("https://outside.example")


@pytest.mark.parametrize(
    ("address", "found"),
    [("10.0.0.9", ("PEM", "cdi-uploadproxy.kubevirt.svc")), ("10.0.0.8", ("", ""))],
)
async def test_address_of_the_proxys_service_is_verified_by_its_name(
    address: str, found: tuple[str, str]
) -> None:
    api = MemoryApi([CDI_CONFIGS])
    spec = {"uploadProxyURLOverride": "https://10.0.0.9"}
    api.put(CDI_CONFIGS, {"metadata": {"name": "config"}, "spec": spec})
    metadata = {"name": "cdi-uploadproxy", "namespace": "kubevirt"}
    api.put(SERVICES, {"metadata": metadata, "spec": {"clusterIP": address}})
    metadata = {"name": "cdi-uploadproxy-signer-bundle", "namespace": "kubevirt"}
    api.put(CONFIG_MAPS, {"metadata": metadata, "data": {"ca-bundle.crt": "PEM"}})
    async with api.client() as client:
        proxy = await uploadproxy.find_proxy(client, "", insecure=False)
    assert (proxy.authority, proxy.server_name) == found


async def test_user_who_may_not_see_the_proxys_service_is_asked_nothing_else() -> None:
    api = MemoryApi([CDI_CONFIGS])
    spec = {"uploadProxyURLOverride": "https://10.0.0.9"}
    api.put(CDI_CONFIGS, {"metadata": {"name": "config"}, "spec": spec})

    def refuse(request: Any) -> None:
        if "services" in request.path:
            raise StatusError(code=403, reason="Forbidden", message="no")

    api.reactions.append(refuse)
    async with api.client() as client:
        assert await uploadproxy.find_proxy(client, "", insecure=False) == uploadproxy.Proxy(
            "https://10.0.0.9"
        )
