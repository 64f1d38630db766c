"""Whom the importer trusts."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from tests.support.hostile_server import answering
from tests.support.web import serve_app
from yarl import URL

from virtplane.storage.cdi.importer.http import Web, WebObject
from virtplane.storage.cdi.importer.outcome import ImportFailed


@asynccontextmanager
async def _secured(authority: trustme.CA) -> AsyncIterator[URL]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="a disk")

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(tls)
    application = web.Application()
    application.router.add_get("/disk", answer)
    async with serve_app(application, tls, "localhost") as port:
        yield URL(f"https://localhost:{port}/disk")


async def _fetched(url: URL, folders: tuple[Path, ...] = (), *, insecure: bool = False) -> bytes:
    async with Web(insecure=insecure, cert_folders=folders) as client:
        download = await client.open(WebObject(url))
        try:
            return await download.read()
        finally:
            await download.close()


async def test_servers_of_the_systems_authorities_are_trusted_beside_those_that_users_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, named, other = trustme.CA(), trustme.CA(), trustme.CA()
    system.cert_pem.write_to_path(tmp_path / "system.pem")
    (tmp_path / "named").mkdir()
    named.cert_pem.write_to_path(tmp_path / "named/ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    for authority in (system, named):
        async with _secured(authority) as url:
            assert await _fetched(url, (tmp_path / "named",)) == b"a disk"
    async with _secured(other) as url:
        with pytest.raises(ImportFailed, match="certificate"):
            await _fetched(url, (tmp_path / "named",))
        assert await _fetched(url, insecure=True) == b"a disk"


async def test_a_certificate_for_another_name_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = trustme.CA()
    system.cert_pem.write_to_path(tmp_path / "system.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    async with _secured(system) as url:
        with pytest.raises(ImportFailed, match="certificate"):
            await _fetched(url.with_host("127.0.0.1"))


async def test_authorities_are_read_when_something_is_to_be_secured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which authorities count is settled by the first secured request: before, none was read."""
    first, later = trustme.CA(), trustme.CA()
    (tmp_path / "system.pem").write_bytes(first.cert_pem.bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    async with Web(insecure=False, cert_folders=()) as client:
        async with answering(_nothing_there) as address:
            with pytest.raises(ImportFailed, match="404"):
                await client.open(WebObject(URL(address)))
        (tmp_path / "system.pem").write_bytes(later.cert_pem.bytes())
        async with _secured(later) as url:
            download = await client.open(WebObject(url))
            assert await download.read() == b"a disk"
            await download.close()
        async with _secured(first) as url:
            with pytest.raises(ImportFailed, match="certificate"):
                await client.open(WebObject(url))


async def _nothing_there(_: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
