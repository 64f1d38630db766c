"""Profiles of TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
import uvloop
from tests.support.managers import working
from tests.support.waiting import until

from kubecore.runtime import Manager
from kubecore.testing import MemoryApi
from virtplane.api.cdi_v1beta1.cdi_config import CustomTLSProfile, TLSProfileChoice, TLSSecurityProfile
from virtplane.api.resources import CDI_CONFIGS
from virtplane.serving.https import Endpoint, serve_runner
from virtplane.serving.tls import ServersTLS, TLSSettings
from virtplane.storage.cdi.tls import chosen, servers_tls
from virtplane.storage.cdi.uploadproxy.component import runner_of
from virtplane.storage.cdi.uploadproxy.proxy import UploadProxy


def _context(settings: TLSSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    settings.apply(context)
    return context


@pytest.mark.parametrize(
    ("profile", "oldest"),
    [
        (TLSSecurityProfile(type="Old", old=TLSProfileChoice()), ssl.TLSVersion.TLSv1),
        (TLSSecurityProfile(type="Intermediate"), ssl.TLSVersion.TLSv1_2),
        (TLSSecurityProfile(type="Modern"), ssl.TLSVersion.TLSv1_3),
    ],
)
def test_profile_sets_the_oldest_version(profile: TLSSecurityProfile, oldest: ssl.TLSVersion) -> None:
    assert _context(chosen(profile)).minimum_version == oldest


def test_custom_profile_names_its_ciphers() -> None:
    cipher = "ECDHE-RSA-AES256-GCM-SHA384"
    custom = CustomTLSProfile(ciphers=(cipher, "no-such-cipher"), min_tls_version="VersionTLS12")
    context = _context(chosen(TLSSecurityProfile(type="Custom", custom=custom)))
    older = [each["name"] for each in context.get_ciphers() if not each["name"].startswith("TLS_")]
    assert older == [cipher]


def test_without_a_profile_nothing_is_restricted() -> None:
    default = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    assert _context(chosen(None)).get_ciphers() == default.get_ciphers()


@pytest.mark.parametrize("settings", [TLSSettings(("none",), ""), TLSSettings((), "VersionTLS9")])
def test_settings_without_meaning_are_refused(settings: TLSSettings) -> None:
    with pytest.raises(ValueError, match=r"none|VersionTLS9"):
        _context(settings)


async def _serve() -> None:
    await asyncio.Event().wait()


async def test_change_of_cdi_config_restricts_servers_at_once() -> None:
    api, server = MemoryApi([CDI_CONFIGS], whole=[CDI_CONFIGS]), _context(TLSSettings())
    async with api.client() as client:
        manager = Manager(client)
        servers_tls(manager).restrict(server)
        manager.add_runnable("https", _serve)
        async with working(manager):
            usual = server.minimum_version
            spec = {"tlsSecurityProfile": {"type": "Modern", "modern": {}}}
            api.put(CDI_CONFIGS, {"metadata": {"name": "another"}, "spec": spec})
            api.put(CDI_CONFIGS, {"metadata": {"name": "config"}, "spec": spec})
            await until(lambda: server.minimum_version == ssl.TLSVersion.TLSv1_3)
            api.put(CDI_CONFIGS, {"metadata": {"name": "config"}, "spec": {"tlsSecurityProfile": 7}})
            api.put(CDI_CONFIGS, {"metadata": {"name": "config"}, "spec": {}})
            await until(lambda: server.minimum_version == usual)


async def _refusal(port: int, client: ssl.SSLContext) -> str:
    """What the client is told; empty where it is let in."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    except ssl.SSLError as error:
        return str(error)
    except ConnectionError:
        return "the connection ended without a word"
    writer.close()
    return ""


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_upload_proxy_tells_older_clients_of_a_changed_profile_at_once_and_then_serves_them_again(
    tmp_path: Path, unused_tcp_port: int, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1")
    (tmp_path / "tls.crt").write_bytes(b"".join(each.bytes() for each in pair.cert_chain_pems))
    (tmp_path / "tls.key").write_bytes(pair.private_key_pem.bytes())
    client = ssl.create_default_context()
    authority.configure_trust(client)
    client.maximum_version = ssl.TLSVersion.TLSv1_2

    async def change_profiles() -> None:
        servers, serving = ServersTLS(), asyncio.Event()
        servers.set(chosen(TLSSecurityProfile(type="Intermediate")))
        endpoint = Endpoint("cdi-uploadproxy", tmp_path, unused_tcp_port, servers)
        runner = runner_of(UploadProxy(cast(Any, None)))
        task = asyncio.create_task(serve_runner(runner, endpoint, serving))
        try:
            async with asyncio.timeout(10):
                await serving.wait()
                assert not await _refusal(unused_tcp_port, client)
                servers.set(chosen(TLSSecurityProfile(type="Modern")))
                assert "alert protocol version" in await _refusal(unused_tcp_port, client)
                servers.set(chosen(TLSSecurityProfile(type="Intermediate")))
                assert not await _refusal(unused_tcp_port, client)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(change_profiles())
