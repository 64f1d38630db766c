"""When virt-handler calls itself ready: once it serves consoles, and not while it still probes its node."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import aiohttp
import pytest
import trustme
from tests.support.waiting import until

from kubecore.objects import meta
from kubecore.resources import CONFIG_MAPS, NODES
from kubecore.runtime import Context, Manager
from kubecore.testing import MemoryApi
from virtplane.api.resources import KUBEVIRTS, PLUGINS, VIRTUAL_MACHINE_INSTANCES
from virtplane.compute.handler import component
from virtplane.compute.handler.consoles import certificates
from virtplane.compute.handler.consoles.server import ConsoleServer
from virtplane.compute.handler.libvirtd import calls
from virtplane.compute.handler.node import kubeletroot, kvm
from virtplane.compute.handler.node.kvm import KvmVerdict
from virtplane.compute.handler.settings import HandlerSettings
from virtplane.compute.handler.storage import heldimages


@pytest.fixture
def nothing_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without libvirt and guests."""
    monkeypatch.setattr(kubeletroot, "require", Mock())
    monkeypatch.setattr(calls, "start_events", Mock())
    monkeypatch.setattr(heldimages, "unmount_orphans", Mock(return_value=[]))


async def test_virt_handler_is_not_ready_while_it_probes_the_node(
    nothing_below: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    probing = asyncio.Event()

    async def probe() -> KvmVerdict:
        probing.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody ends this")

    monkeypatch.setattr(kvm, "probe", probe)
    api = MemoryApi()
    context = Context(lambda _: api.client(), "kubevirt", node_name="n")
    task = asyncio.create_task(component.VirtHandler().run(context))
    await probing.wait()
    is_ready, told = context.health.ready()
    assert not is_ready
    assert "consoles failed: not serving yet" in told
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await context.close()


async def test_virt_handler_keeps_its_node_once_it_has_probed_it(
    nothing_below: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(component, "_prepare_node", AsyncMock(return_value=KvmVerdict(False)))
    settings = partial(HandlerSettings, kubelet_root=tmp_path, certificate_directory=tmp_path)
    monkeypatch.setattr(component, "HandlerSettings", settings)
    api = MemoryApi([KUBEVIRTS, PLUGINS, VIRTUAL_MACHINE_INSTANCES])
    api.put(NODES, {"metadata": {"name": "n"}})
    # This machine's own mediated devices are none of the test's.
    configuration = {"mediatedDevicesConfiguration": {"enabled": False}}
    kubevirt = {"metadata": {"name": "k", "namespace": "kubevirt"}, "spec": {"configuration": configuration}}
    api.put(KUBEVIRTS, kubevirt)
    context = Context(lambda _: api.client(), "kubevirt", node_name="n")
    task = asyncio.create_task(component.VirtHandler().run(context))

    def heartbeat() -> str:
        return str(meta.annotations(api.list(NODES)[0]).get("kubevirt.io/heartbeat", ""))

    await until(lambda: heartbeat() or task.done())
    assert not task.done()
    assert meta.labels(api.list(NODES)[0])["kubevirt.io/schedulable"] == "false"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await context.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def write_certificate(tmp_path: Path) -> Callable[[trustme.CA], None]:
    """Puts a serving certificate where the kubelet does."""
    folder = tmp_path / "servercertificates"
    folder.mkdir()

    def write(authority: trustme.CA) -> None:
        leaf = authority.issue_cert("node.test")
        (folder / "tls.key").write_bytes(leaf.private_key_pem.bytes())
        (folder / "tls.crt").write_bytes(leaf.cert_chain_pems[0].bytes())

    return write


async def test_consoles_are_served_only_once_the_port_listens(
    tmp_path: Path, write_certificate: Callable[[trustme.CA], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "_RETRY_SECONDS", 0.01)
    api, authority, serving = MemoryApi(), trustme.CA(), asyncio.Event()
    metadata = {"name": "kubevirt-ca", "namespace": "kubevirt"}
    bundle = {"ca-bundle": authority.cert_pem.bytes().decode()}
    api.put(CONFIG_MAPS, {"metadata": metadata, "data": bundle})
    write_certificate(authority)
    settings = HandlerSettings("n", certificate_directory=tmp_path, console_port=free_port())
    context = Context(lambda _: api.client(), "kubevirt", node_name="n")
    manager = Manager(context.client("virt-handler"))
    authorities = certificates.Authorities(manager, "kubevirt")
    consoles = partial(
        certificates.serve, context, settings, ConsoleServer(Mock(), Mock()), authorities, serving
    )
    manager.add_runnable("consoles", consoles)
    with socket.create_server(("0.0.0.0", settings.console_port)) as somebody:
        task = asyncio.create_task(manager.run())
        refused = asyncio.Event()
        monkeypatch.setattr(certificates.logger, "error", lambda *_, **__: refused.set())
        await refused.wait()
        assert not serving.is_set()
        somebody.close()
    await serving.wait()
    _, writer = await asyncio.open_connection("127.0.0.1", settings.console_port)
    writer.close()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await context.close()


async def test_consoles_know_a_new_authority_at_once_and_keep_open_connections(
    tmp_path: Path, write_certificate: Callable[[trustme.CA], None]
) -> None:
    api, serving = MemoryApi(), asyncio.Event()
    first, second = trustme.CA(), trustme.CA()
    bundle = {"metadata": {"name": "kubevirt-ca", "namespace": "kubevirt"}}
    api.put(CONFIG_MAPS, bundle | {"data": {"ca-bundle": first.cert_pem.bytes().decode()}})
    write_certificate(first)
    settings = HandlerSettings("n", certificate_directory=tmp_path, console_port=free_port())
    context = Context(lambda _: api.client(), "kubevirt", node_name="n")
    manager = Manager(context.client("virt-handler"))
    authorities = certificates.Authorities(manager, "kubevirt")
    server = ConsoleServer(Mock(), Mock())
    manager.add_runnable("c", partial(certificates.serve, context, settings, server, authorities, serving))
    task = asyncio.create_task(manager.run())
    await serving.wait()
    tls = ssl.create_default_context(cadata=first.cert_pem.bytes().decode())
    second.issue_cert("client.test").configure_cert(tls)
    url = f"https://localhost:{settings.console_port}/v1/nothing"

    async def answered() -> bool:
        connector = aiohttp.TCPConnector(ssl=tls)
        async with aiohttp.ClientSession(connector=connector) as session:
            try:
                async with session.get(url, server_hostname="node.test"):
                    return True
            except (aiohttp.ClientError, OSError):
                return False

    assert not await answered()
    reader, writer = await asyncio.open_connection(
        "localhost", settings.console_port, ssl=_known_to(first), server_hostname="node.test"
    )
    both = first.cert_pem.bytes() + second.cert_pem.bytes()
    api.put(CONFIG_MAPS, bundle | {"data": {"ca-bundle": both.decode()}})
    await until(answered)
    writer.write(b"GET /v1/nothing HTTP/1.1\r\nHost: node.test\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 ")
    writer.close()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await context.close()


def _known_to(authority: trustme.CA) -> ssl.SSLContext:
    """The TLS of a client whose certificate is of `authority`, as the server's."""
    tls = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    authority.issue_cert("client.test").configure_cert(tls)
    return tls


async def test_mounts_that_cannot_be_looked_at_do_not_keep_virt_handler_from_starting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Path) -> list[str]:
        raise OSError("input/output error")

    monkeypatch.setattr(heldimages, "unmount_orphans", fail)
    await component._unmount_orphans(HandlerSettings("n"))
    (told,) = caplog.records
    assert told.__dict__["err"] == "input/output error"
