"""The upload proxy: whose uploads it takes, and where they go."""

from __future__ import annotations

import asyncio
import base64
import gzip
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp import web
from tests.support.web import serve_app, web_session

from kubecore.resources import CONFIG_MAPS, SECRETS
from kubecore.testing import MemoryApi
from virtplane.api import cdi_names
from virtplane.api.core_v1 import PersistentVolumeClaimSpec, TypedObjectReference
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.storage_kinds import PersistentVolumeClaim
from virtplane.storage.cdi import tokens
from virtplane.storage.cdi.tokens import InvalidToken, VerifiedToken
from virtplane.storage.cdi.uploadproxy import targets
from virtplane.storage.cdi.uploadproxy.component import ClusterAccess, runner_of
from virtplane.storage.cdi.uploadproxy.proxy import UploadProxy

READY = {
    "cdi.kubevirt.io/storage.upload.target": "",
    "cdi.kubevirt.io/storage.pod.ready": "true",
}
ALLOWED = VerifiedToken("Upload", "disk", "ns", "", "persistentvolumeclaims", {})


def claim(name: str, given: dict[str, str], *, populated: bool = False) -> PersistentVolumeClaim:
    source = TypedObjectReference(api_group="cdi.kubevirt.io", kind="VolumeUploadSource", name="s")
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name=name, namespace="ns", uid="1", annotations=given),
        spec=PersistentVolumeClaimSpec(data_source_ref=source if populated else None),
    )


@dataclass
class FakeCluster:
    """Claims by name; `session` leads every host to `port` on loopback."""

    claims: dict[str, PersistentVolumeClaim] = field(default_factory=dict)
    port: int = 0
    tls: ssl.SSLContext | None = None
    sessions: list[aiohttp.ClientSession] = field(default_factory=list)

    async def verified(self, token: str) -> VerifiedToken:
        if token == "good":
            return ALLOWED
        if token == "clone":
            return VerifiedToken("Clone", "disk", "ns", "", "persistentvolumeclaims", {})
        raise InvalidToken("no")

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return self.claims.get(name)

    async def session(self) -> aiohttp.ClientSession:
        resolver = Loopback(self.port)
        connector = aiohttp.TCPConnector(resolver=resolver, ssl=self.tls or True)
        self.sessions.append(aiohttp.ClientSession(connector=connector))
        return self.sessions[-1]

    async def close(self) -> None:
        for session in self.sessions:
            await session.close()


class Loopback(aiohttp.abc.AbstractResolver):
    """Every name is loopback, at one port."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[Any]:
        found = {
            "hostname": host,
            "host": "127.0.0.1",
            "port": self._port,
            "family": 2,
            "proto": 0,
            "flags": 0,
        }
        return [found]

    async def close(self) -> None:
        return None


async def ask(
    cluster: FakeCluster, *, token: str = "Bearer good", method: str = "POST", path: str = "/v1beta1/upload"
) -> tuple[int, str]:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async with (
        serve_app(UploadProxy(cluster, wait=3, sleep=sleep).application()) as port,
        web_session() as session,
    ):
        url = f"http://127.0.0.1:{port}{path}"
        async with session.request(method, url, data=b"disk", headers={"Authorization": token}) as answer:
            return answer.status, await answer.text()


@pytest.mark.feature("INS-29")
@pytest.mark.parametrize(
    ("token", "status"), [("", 400), ("Basic x", 400), ("Bearer bad", 401), ("bearer clone", 400)]
)
async def test_only_tokens_for_uploads_are_let_in(token: str, status: int) -> None:
    assert (await ask(FakeCluster(), token=token))[0] == status


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ([], "rejecting Upload Request for PVC disk that doesn't exist"),
        ([claim("disk", {})], "PVC disk is not an upload target"),
        (
            [claim("disk", READY | {"cdi.kubevirt.io/storage.pod.phase": "Succeeded"})],
            "rejecting Upload Request for PVC disk that already finished uploading",
        ),
        (
            [claim("disk", {}, populated=True)],
            "rejecting Upload Request for PVC disk, PVC' wasn't created yet",
        ),
        (
            [claim("disk", {"cdi.kubevirt.io/storage.upload.target": ""})],
            "timed out waiting for the upload pod of PVC disk",
        ),
        (
            [claim("disk", READY | {"cdi.kubevirt.io/storage.contentType": "<b>x</b>"})],
            "rejecting upload request for PVC disk - upload content-type &lt;b&gt;x&lt;/b&gt; is invalid",
        ),
    ],
)
async def test_claims_that_take_no_upload_say_why(claims: list[PersistentVolumeClaim], text: str) -> None:
    cluster = FakeCluster({each.metadata.name: each for each in claims})
    assert await ask(cluster) == (503, text)


@pytest.mark.feature("INS-29")
@pytest.mark.parametrize("populated", [False, True])
async def test_upload_goes_to_the_server_of_the_claim_that_is_filled(populated: bool) -> None:
    authority = trustme.CA()
    name = "prime-1" if populated else "disk"
    host = f"cdi-upload-{name}.ns.svc"
    served, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert(host).configure_cert(served)
    authority.configure_trust(client)
    taken: list[tuple[str, str, bytes]] = []

    async def take(request: web.Request) -> web.Response:
        taken.append((request.host, request.path, await request.read()))
        return web.Response(status=409, text="later")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", take)
    async with serve_app(application, served) as port:
        claims = {"disk": claim("disk", {} if populated else READY, populated=populated)}
        claims |= {"prime-1": claim("prime-1", READY)} if populated else {}
        cluster = FakeCluster(claims, port, client)
        try:
            assert await ask(cluster) == (409, "later")
        finally:
            await cluster.close()
    assert taken == [(f"{host}:8443", "/v1beta1/upload", b"disk")]


async def test_compressed_upload_goes_on_whole_whatever_its_header_says() -> None:
    authority, host = trustme.CA(), "cdi-upload-disk.ns.svc"
    served, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert(host).configure_cert(served)
    authority.configure_trust(client)
    taken: list[bytes] = []

    async def take(request: web.Request) -> web.Response:
        taken.append(await request.read())
        return web.Response()

    application = web.Application()
    application.router.add_post("/{path:.*}", take)
    disk = gzip.compress(bytes(1 << 20))
    async with serve_app(application, served) as port:
        cluster = FakeCluster({"disk": claim("disk", READY)}, port, client)
        runner = runner_of(UploadProxy(cluster))
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1beta1/upload"
            headers = {"Authorization": "Bearer good", "Content-Encoding": "gzip"}
            async with web_session() as session, session.post(url, data=disk, headers=headers) as answer:
                assert answer.status == 200
        finally:
            await runner.cleanup()
            await cluster.close()
    assert taken == [disk]


def test_archives_go_to_the_path_for_archives() -> None:
    archive = claim("disk", READY | {"cdi.kubevirt.io/storage.contentType": "archive"})
    found = targets.server_url("disk", archive, "/v1alpha1/upload-async")
    assert found == "https://cdi-upload-disk.ns.svc:8443/v1alpha1/upload-archive"


async def test_server_that_is_not_there_is_an_error_of_the_proxy() -> None:
    cluster = FakeCluster({"disk": claim("disk", READY)}, port=1)
    try:
        status, text = await ask(cluster)
    finally:
        await cluster.close()
    assert status == 502
    assert text.startswith("error in upload-proxy: ")


async def test_browsers_may_ask_first() -> None:
    assert (await ask(FakeCluster(), method="OPTIONS"))[0] == 200


@pytest.mark.looptime
async def test_whoever_sends_what_is_no_token_asks_nothing_of_the_api(tmp_path: Path) -> None:
    api = MemoryApi()
    keys = [tokens.new_signing_key() for _ in range(2)]
    signed = [
        tokens.Signer(cdi_names.API_SERVER_ISSUER, base64.b64decode(key[cdi_names.SIGNING_KEY_PRIVATE]), 60)
        for key in keys
    ]
    good = [each.sign(tokens.Payload(tokens.Operation.UPLOAD, "disk", "ns")) for each in signed]
    secret = {"metadata": {"name": cdi_names.SIGNING_KEY, "namespace": "cdi"}}
    async with api.client() as client:
        cluster = ClusterAccess(client, "cdi", tmp_path)
        with pytest.raises(InvalidToken, match="no key"):
            await cluster.verified(good[0])
        api.put(SECRETS, {**secret, "data": keys[0]})
        api.requests.clear()
        assert (await cluster.verified(good[0])).name == "disk"
        for _ in range(100):
            with pytest.raises(InvalidToken):
                await cluster.verified("no.token.atall")
        assert len(api.requests) == 1
        api.put(SECRETS, {**secret, "data": keys[1]})
        await asyncio.sleep(2)
        assert (await cluster.verified(good[1])).name == "disk"
        with pytest.raises(InvalidToken):
            await cluster.verified(good[0])
        api.put(SECRETS, {**secret, "data": {cdi_names.SIGNING_KEY_PUBLIC: "bm8ga2V5"}})
        await asyncio.sleep(2)
        for _ in range(2):
            with pytest.raises(InvalidToken, match="cannot be read"):
                await cluster.verified(good[1])
        api.remove(SECRETS, cdi_names.SIGNING_KEY, "cdi")
        await asyncio.sleep(2)
        for _ in range(2):
            with pytest.raises(InvalidToken, match="no key"):
                await cluster.verified(good[1])


async def test_uploads_that_stand_still_keep_no_other_from_its_server(tmp_path: Path) -> None:
    authority, api = trustme.CA(), MemoryApi()
    pair = authority.issue_cert("client.upload-server.cdi.kubevirt.io")
    pair.private_key_pem.write_to_path(tmp_path / "tls.key")
    for part in pair.cert_chain_pems:
        part.write_to_path(tmp_path / "tls.crt", append=True)
    bundle = {"metadata": {"name": cdi_names.UPLOAD_SERVER_BUNDLE, "namespace": "cdi"}}
    api.put(CONFIG_MAPS, {**bundle, "data": {"ca-bundle.crt": authority.cert_pem.bytes().decode()}})
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    held, end = asyncio.Semaphore(0), asyncio.Event()

    async def hold(_: web.Request) -> web.Response:
        held.release()
        await end.wait()
        return web.Response()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ready")

    application = web.Application()
    application.router.add_get("/held", hold)
    application.router.add_get("/", answer)
    async with api.client() as client, serve_app(application, context) as port:
        cluster = ClusterAccess(client, "cdi", tmp_path)
        session, url = await cluster.session(), f"https://127.0.0.1:{port}/"
        still = [asyncio.create_task(session.get(f"{url}held")) for _ in range(100)]
        for _ in still:
            await held.acquire()
        try:
            async with asyncio.timeout(20), session.get(url) as found:
                assert await found.text() == "ready"
        finally:
            end.set()
            await asyncio.gather(*still)
            await cluster.close()
