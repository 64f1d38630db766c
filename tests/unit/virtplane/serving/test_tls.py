"""What all servers of a process accept."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme
from aiohttp import web

from virtplane.api.ciphers import CIPHERS
from virtplane.serving.tls import ServersTLS, TLSSettings

_CIPHER = "ECDHE-RSA-AES128-GCM-SHA256"
_OTHER = "ECDHE-RSA-AES256-GCM-SHA384"
_V12, _V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def test_every_cipher_has_the_name_that_openssl_knows() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    known = {each["name"] for each in context.get_ciphers()}
    unknown = {name for name in CIPHERS.values() if name not in known}
    assert all("RC4" in name or "DES-CBC3" in name for name in unknown)


@pytest.mark.parametrize(
    "settings", [TLSSettings((_CIPHER,), "VersionTLS10"), TLSSettings((), "VersionTLS11")]
)
def test_without_restrictions_a_server_is_as_it_was(settings: TLSSettings) -> None:
    servers, server = ServersTLS(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def state() -> tuple[object, ...]:
        return server.minimum_version, server.security_level, [each["name"] for each in server.get_ciphers()]

    before = state()
    servers.restrict(server)
    servers.set(settings)
    assert state()[1] == 0
    servers.set(TLSSettings())
    assert state() == before


def test_ciphers_that_nobody_has_leave_the_oldest_version(caplog: pytest.LogCaptureFixture) -> None:
    servers, server = ServersTLS(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    servers.set(TLSSettings(("none",), "VersionTLS13"))
    servers.restrict(server)
    assert server.minimum_version == _V13
    assert "correct it: none of the ciphers is known: none" in caplog.text


async def test_a_server_that_listens_takes_over_changes() -> None:
    authority, servers = trustme.CA(), ServersTLS()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA).configure_cert(server)
    servers.restrict(server)
    runner = web.AppRunner(web.Application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server).start()
    port = runner.addresses[0][1]

    async def accepts(version: ssl.TLSVersion, ciphers: str = "DEFAULT") -> bool:
        client = ssl.create_default_context()
        client.set_ciphers(f"{ciphers}:@SECLEVEL=0")
        authority.configure_trust(client)
        client.minimum_version = client.maximum_version = version
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        except (ssl.SSLError, ConnectionResetError):
            return False
        writer.close()
        return True

    try:
        assert await accepts(_V12, _OTHER)
        for settings, wanted in (
            (TLSSettings((_CIPHER,), "VersionTLS12"), [True, False, True]),
            (TLSSettings((), "VersionTLS13"), [False, False, True]),
            (TLSSettings(), [True, True, True]),
        ):
            servers.set(settings)
            assert [
                await accepts(_V12, _CIPHER),
                await accepts(_V12, _OTHER),
                await accepts(_V13),
            ] == wanted, settings
    finally:
        await runner.cleanup()
