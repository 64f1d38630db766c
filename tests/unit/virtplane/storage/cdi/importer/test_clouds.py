"""Sources that are web servers with credentials of their own: S3, Google's storage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jwt
from joserfc.jwk import RSAKey
from tests.support.hostile_server import answering
from tests.support.image_server import ServedFile, serving
from tests.support.s3 import SignatureCheck
from tests.support.web import serve_app
from tests.unit.virtplane.storage.cdi.importer.conftest import Volume
from yarl import URL

from virtplane.storage.cdi.importer import http
from virtplane.storage.cdi.importer.sources.s3 import Keys, region_of, signature


def test_signature_is_that_of_the_published_example() -> None:
    url = URL("https://examplebucket.s3.amazonaws.com/test.txt")
    keys = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1")
    now = datetime(2013, 5, 24, tzinfo=UTC)
    signed = signature("GET", url, {"Range": "bytes=0-9"}, keys, now)
    expected = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    assert signed["Authorization"].endswith(f"Signature={expected}")


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("s3.eu-central-1.amazonaws.com", "eu-central-1"),
        ("s3-us-west-2.amazonaws.com", "us-west-2"),
        ("minio.example.com", "minio"),
    ],
)
def test_region_is_read_from_the_host(host: str, region: str) -> None:
    assert region_of(host) == region


@pytest.mark.feature("VMC-52")
async def test_object_of_s3_is_asked_for_with_a_signature_and_without_keys_plainly(
    volume: Volume, raw_disk: bytes
) -> None:
    file = ServedFile(raw_disk)
    async with serving(file) as address:
        keys = {"IMPORTER_ACCESS_KEY_ID": "me", "IMPORTER_SECRET_KEY": "secret"}
        signed = await volume.run("s3", f"{address}/bucket/a disk+1.img", **keys)
        plain = await volume.run("s3", f"{address}/bucket/disk.img")
    assert (signed.code, plain.code) == (0, 0), signed.text
    first, second = file.requests
    assert first.path == "/bucket/a disk+1.img"
    assert first.headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=me/")
    assert "secret" not in first.headers["Authorization"]
    assert not first.query
    assert "Authorization" not in second.headers


@pytest.mark.feature("VMC-52")
@pytest.mark.parametrize(
    ("name", "disk_format"),
    [("a disk+1.img", "raw"), ("~me/=&%C3%A4/d,i;s:k@(1).img", "raw"), ("disk.img", "qcow2")],
)
async def test_object_is_whole_from_a_server_that_checks_each_signature(
    volume: Volume,
    raw_disk: bytes,
    converted: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    disk_format: str,
) -> None:
    """A raw disk comes in one answer and the rest of it, a qcow2 one by ranges."""
    monkeypatch.setattr(http, "_PAUSE_SECONDS", 0.001)
    content = raw_disk if disk_format == "raw" else converted("qcow2")
    check = SignatureCheck("me", "secret/+key", "127")
    file = ServedFile(content, breaks=[len(content) // 2], lets_in=check)
    keys = {"IMPORTER_ACCESS_KEY_ID": "me", "IMPORTER_SECRET_KEY": "secret/+key"}
    async with serving(file) as address:
        ended = await volume.run("s3", f"{address}/bucket/{name}", **keys)
    assert (ended.code, check.refusals) == (0, []), ended.text
    assert ended.disk.read_bytes()[: len(raw_disk)] == raw_disk
    assert any("Range" in request.headers for request in file.requests)


@pytest.mark.parametrize(
    ("key", "secret", "problem"),
    [
        ("me", "another", "SignatureDoesNotMatch"),
        ("you", "secret", "InvalidAccessKeyId"),
        ("", "", "AccessDenied"),
    ],
)
async def test_wrong_keys_are_told_and_nothing_is_written(
    volume: Volume, raw_disk: bytes, key: str, secret: str, problem: str
) -> None:
    check = SignatureCheck("me", "secret", "127")
    keys = {"IMPORTER_ACCESS_KEY_ID": key, "IMPORTER_SECRET_KEY": secret}
    async with serving(ServedFile(raw_disk, lets_in=check)) as address:
        ended = await volume.run("s3", f"{address}/bucket/disk.img", **keys)
    refused = 'could not get s3 object: "bucket/disk.img": Forbidden: Forbidden'
    assert ended.code == 1
    assert ended.text.startswith(f"Unable to connect to s3 data source: {refused} status code: 403, ")
    assert set(check.refusals) == {problem}
    assert not ended.disk.exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<Error><Code>NoSuchKey</Code><Message>a &lt;b&gt;\n c</Message></Error>", "NoSuchKey: a <b> c"),
        ("<Error><Code>" + "x" * 50_000, "NotFound: Not Found"),
        ("<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/shadow'>]><Code>&b;</Code>", "&b;: "),
        ("", "NotFound: Not Found"),
    ],
)
async def test_refusal_of_a_bucket_is_told_in_its_words(volume: Volume, body: str, said: str) -> None:
    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        head = "HTTP/1.1 404 No\r\nConnection: close\r\nx-amz-request-id: 7\r\nx-amz-id-2: h\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()

    async with answering(answer) as address:
        ended = await volume.run("s3", f"{address}/bucket/folder/disk.img")
    assert ended.code == 1
    begins = f'Unable to connect to s3 data source: could not get s3 object: "bucket/folder/disk.img": {said}'
    assert ended.text.startswith(begins)
    assert ended.text.endswith(" status code: 404, request id: 7, host id: h")


async def test_archives_of_clouds_are_refused(volume: Volume) -> None:
    ended = await volume.run("s3", "http://127.0.0.1:1/bucket/a.tar", IMPORTER_CONTENTTYPE="archive")
    assert ended.code == 1
    assert ended.text == "Unable to process data: source s3 has no content of type archive"


async def test_token_server_whose_answer_is_nested_without_end_is_an_error() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text='{"a":' + "[" * 1_000_000)

    application = web.Application()
    application.router.add_post("/token", answer)
    async with serve_app(application) as port, http.Web(insecure=False, cert_folders=()) as client:
        with pytest.raises(ValueError, match="nested too deeply"):
            await client.post_form(URL(f"http://127.0.0.1:{port}/token"), {})


async def test_service_account_gets_a_token_for_the_object(volume: Volume, raw_disk: bytes) -> None:
    key = rsa.generate_private_key(65537, 2048)
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    asked: list[dict[str, object]] = []

    async def token(request: web.Request) -> web.Response:
        form = await request.post()
        claims = jwt.decode(str(form["assertion"]), RSAKey.import_key(text), algorithms=["RS256"]).claims
        asked.append(claims)
        return web.json_response({"access_token": "the-token"})

    application = web.Application()
    application.router.add_post("/token", token)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    account = {
        "client_email": "me@example",
        "private_key": text,
        "token_uri": f"http://127.0.0.1:{runner.addresses[0][1]}/token",
    }
    volume.paths.google.write_text(json.dumps(account))
    file = ServedFile(raw_disk)
    try:
        async with serving(file) as address:
            ended = await volume.run("gcs", f"{address}/bucket/disk.img")
    finally:
        await runner.cleanup()
    assert ended.code == 0, ended.text
    assert file.requests[0].headers["Authorization"] == "Bearer the-token"
    assert asked[0]["iss"] == "me@example"


async def test_damaged_key_of_a_service_account_is_told(volume: Volume) -> None:
    volume.paths.google.write_text('{"private_key": "x"}')
    ended = await volume.run("gcs", "gs://bucket/disk.img")
    assert ended.code == 1
    assert "credentials.json is no key of a service account" in ended.text


async def test_blank_disk_fills_the_volume_and_takes_no_space(volume: Volume) -> None:
    ended = await volume.run("none", "")
    assert (ended.code, ended.message) == (0, "Import Complete")
    assert ended.disk.stat().st_size == 20 << 20
    assert ended.disk.stat().st_blocks < 64
    refused = await volume.run("none", "", IMPORTER_CONTENTTYPE="archive")
    assert (refused.code, refused.text) == (1, "Cannot create empty disk with content type archive")
