"""Profiles of TLS."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, cast

import pytest
import trustme

from kubecore.testing import MemoryApi
from virtplane.api.cdi_v1beta1.cdi_config import CustomTLSProfile, TLSProfileChoice, TLSSecurityProfile
from virtplane.api.resources import CDI_CONFIGS
from virtplane.serving.https import restrict
from virtplane.serving.tls import TLSSettings
from virtplane.storage.cdi.tls import chosen, wanted
from virtplane.storage.cdi.uploadproxy.component import serve
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


async def test_servers_ask_cdi_config_what_they_accept() -> None:
    api = MemoryApi([CDI_CONFIGS], whole=[CDI_CONFIGS])
    async with api.client() as client:
        assert await wanted(client) == TLSSettings()
        spec = {"tlsSecurityProfile": {"type": "Modern", "modern": {}}}
        api.put(CDI_CONFIGS, {"metadata": {"name": "config"}, "spec": spec})
        assert (await wanted(client)).min_version == "VersionTLS13"


@pytest.mark.parametrize(("profile", "accepted"), [("Modern", False), ("Intermediate", True)])
async def test_upload_proxy_refuses_clients_older_than_its_profile(
    tmp_path: Path, unused_tcp_port: int, profile: str, accepted: bool
) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1")
    (tmp_path / "tls.crt").write_bytes(b"".join(each.bytes() for each in pair.cert_chain_pems))
    (tmp_path / "tls.key").write_bytes(pair.private_key_pem.bytes())

    async def settings() -> TLSSettings:
        return chosen(TLSSecurityProfile(type=profile))

    serving, proxy = asyncio.Event(), UploadProxy(cast(Any, None))
    task = asyncio.create_task(serve(proxy, tmp_path, unused_tcp_port, serving, settings))
    try:
        await serving.wait()
        client = ssl.create_default_context()
        authority.configure_trust(client)
        client.maximum_version = ssl.TLSVersion.TLSv1_2
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", unused_tcp_port, ssl=client)
            writer.close()
        except (ssl.SSLError, ConnectionResetError):
            assert not accepted
        else:
            assert accepted
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_profile_without_meaning_leaves_a_server_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    before = context.get_ciphers()
    restrict(context, TLSSettings(("none",), ""), "cdi-apiserver")
    assert context.get_ciphers() == before
    assert "correct its TLS profile" in caplog.text
