"""Imports through the proxies that a pod's environment names, and what is reached without."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from tests.support.forward_proxy import Asked, proxying
from tests.support.image_server import ServedFile, serving
from tests.unit.virtplane.storage.cdi.importer.conftest import Volume
from yarl import URL

from virtplane.storage.cdi.importer.outcome import ImportFailed
from virtplane.storage.cdi.importer.proxies import is_direct, proxy_for

_USER_AGENT = "cdi-golang-importer"
_KNOWN = "Basic Zm9vOmJhcg=="


@pytest.fixture(autouse=True)
def no_proxies_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("proxy_tls", [False, True], ids=["http", "https"])
async def test_disk_from_a_tls_server_comes_through_a_tunnel_that_the_importer_asks_for(
    volume: Volume,
    tmp_path: Path,
    raw_disk: bytes,
    monkeypatch: pytest.MonkeyPatch,
    proxy_tls: bool,
    known: bool,
) -> None:
    """The server's name is one that only the proxy knows."""
    environment, server_tls = _authorities(tmp_path)
    asked = Asked()
    async with (
        serving(ServedFile(raw_disk), server_tls) as address,
        proxying(URL(address).port or 0, asked, server_tls if proxy_tls else None) as port,
    ):
        scheme, keys = "https" if proxy_tls else "http", "foo:bar@" if known else ""
        monkeypatch.setenv("https_proxy", f"{scheme}://{keys}localhost:{port}")
        ended = await volume.run("http", "https://disks.example/disk.img", **environment)
    assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
    assert ended.disk.read_bytes()[: len(raw_disk)] == raw_disk
    assert set(asked.lines) == {"CONNECT disks.example:443 HTTP/1.1"}
    assert {headers["User-Agent"] for headers in asked.headers} == {_USER_AGENT}
    assert {headers.get("Proxy-Authorization", "") for headers in asked.headers} == {_KNOWN if known else ""}


async def test_disk_from_a_plain_server_is_asked_of_the_proxy_with_its_credentials(
    volume: Volume, raw_disk: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, file = Asked(), ServedFile(raw_disk)
    async with serving(file) as address, proxying(URL(address).port or 0, asked) as port:
        monkeypatch.setenv("HTTP_PROXY", f"foo:bar@localhost:{port}")
        ended = await volume.run("http", "http://disks.example/disk.img")
    assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
    assert asked.lines and {line.split()[1] for line in asked.lines} == {"http://disks.example/disk.img"}
    assert {request.headers["Proxy-Authorization"] for request in file.requests} == {_KNOWN}
    assert {request.headers["User-Agent"] for request in file.requests} == {_USER_AGENT}


async def test_credentials_of_a_proxy_do_not_go_to_a_server_that_is_reached_directly(
    volume: Volume, raw_disk: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ServedFile(raw_disk)
    monkeypatch.setenv("HTTP_PROXY", "http://foo:bar@proxy.example:1")
    monkeypatch.setenv("NO_PROXY", "*")
    async with serving(file) as address:
        ended = await volume.run("http", f"{address}/disk.img")
    assert (ended.code, ended.message) == (0, "Import Complete"), ended.text
    assert not [request for request in file.requests if "Proxy-Authorization" in request.headers]


@pytest.mark.parametrize(
    ("address", "exceptions", "expected"),
    [
        ("http://disks.example", "", False),
        ("http://disks.example", "*", True),
        ("http://disks.example", "other.example, DISKS.example", True),
        ("http://a.disks.example", "disks.example", True),
        ("http://adisks.example", "disks.example", False),
        ("http://disks.example", ".disks.example", False),
        ("http://a.disks.example", ".disks.example", True),
        ("http://a.disks.example", "*.disks.example", True),
        ("http://disks.example:8080", "disks.example:8080", True),
        ("http://disks.example", "disks.example:8080", False),
        ("http://10.1.2.3", "10.0.0.0/8", True),
        ("http://11.1.2.3", "10.0.0.0/8", False),
        ("http://disks.example", "10.0.0.0/8", False),
        ("http://10.1.2.3", "10.1.2.3", True),
        ("http://10.1.2.3", "2.3", False),
        ("http://[fd00::1]", "fd00::/64", True),
        ("http://[fd00::1]:81", "[fd00::1]:81", True),
        ("http://10.1.2.3", "nonsense/8", False),
        ("http://localhost", "", True),
        ("http://127.0.0.1", "", True),
    ],
)
def test_what_is_reached_without_a_proxy(address: str, exceptions: str, expected: bool) -> None:
    assert is_direct(URL(address), exceptions) is expected


def test_a_proxy_is_that_of_the_address_s_scheme() -> None:
    environment = {"http_proxy": "proxy.example:3128", "HTTPS_PROXY": "https://tls.example"}
    plain = proxy_for(URL("http://disks.example"), environment)
    secure = proxy_for(URL("https://disks.example"), environment)
    assert plain is not None and str(plain.url) == "http://proxy.example:3128"
    assert secure is not None and str(secure.url) == "https://tls.example"
    assert proxy_for(URL("https://disks.example"), {"http_proxy": "proxy.example"}) is None


@pytest.mark.parametrize("text", ["socks5://foo:bar@proxy.example", "http://"])
def test_a_proxy_that_is_none_ends_the_import_without_telling_its_password(text: str) -> None:
    with pytest.raises(ImportFailed, match="proxy") as failed:
        proxy_for(URL("http://disks.example"), {"http_proxy": text})
    assert "bar" not in str(failed.value)


def _authorities(tmp_path: Path) -> tuple[dict[str, str], ssl.SSLContext]:
    """The environment of an importer that trusts the server and the proxy, and their context."""
    authority = trustme.CA()
    (tmp_path / "certs").mkdir()
    authority.cert_pem.write_to_path(tmp_path / "certs/ca.pem")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("disks.example", "localhost").configure_cert(tls)
    return {"IMPORTER_CERT_DIR": str(tmp_path / "certs")}, tls
