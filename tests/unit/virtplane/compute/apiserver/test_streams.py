"""Byte streams between clients and guests through virt-api."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from tests.support.web import serve_app

from kubecore.destinations import Destinations
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.objects.structs import decode
from virtplane.api import resources as kinds
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.api.streams import MAX_MESSAGE_BYTES
from virtplane.compute.apiserver.subresources import streams
from virtplane.compute.apiserver.subresources.nodeagent import NodeAgentError, NodeAgents
from virtplane.compute.apiserver.subresources.portforward import PortForwards, guest_address, port_number

from .conftest import VirtApi

_LOOPBACK_TOO = Destinations(allowed=(ipaddress.ip_network("127.0.0.0/8"),))
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_VMI: JsonObject = {
    "metadata": {"name": "vm", "uid": "u"},
    "status": {"nodeName": "n", "interfaces": [{"ipAddress": "127.0.0.1"}]},
}


_INSTANCE = decode(VirtualMachineInstance, _VMI)


def _launcher(address: str = "127.0.0.1", **changes: JsonObject) -> JsonObject:
    owner = {"kind": "VirtualMachineInstance", "name": "vm", "uid": "u", "controller": True}
    pod: JsonObject = {
        "metadata": {"name": "virt-launcher-vm", "ownerReferences": [owner]},
        "spec": {"nodeName": "n"},
        "status": {"podIP": address, "hostIP": "192.0.2.9"},
    }
    return {key: {**value, **changes.get(key, {})} for key, value in pod.items()}


def _forwards(pod: JsonObject | None = None, destinations: Destinations = _LOOPBACK_TOO) -> PortForwards:
    async def launchers(_: VirtualMachineInstance) -> list[JsonObject]:
        return [pod or _launcher()]

    return PortForwards(launchers, destinations)


@asynccontextmanager
async def _serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/{port}", handler)
    async with serve_app(app) as port:
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def _spliced(upstream: Handler) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A client's websocket that is joined with one to `upstream`."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        agent = await stack.enter_async_context(_serving(upstream))

        async def join(request: web.Request) -> web.StreamResponse:
            async with session.ws_connect(f"{agent}/0") as inner:
                client = await streams.accept(request)
                await streams.splice(request, client, inner)
                return client

        api = await stack.enter_async_context(_serving(join))
        yield await stack.enter_async_context(session.ws_connect(f"{api}/0", protocols=["plain.kubevirt.io"]))


async def test_what_the_guest_writes_last_arrives_and_no_closing_handshake_follows() -> None:
    async def upstream(request: web.Request) -> web.StreamResponse:
        own = web.WebSocketResponse()
        await own.prepare(request)
        await own.send_bytes(b"off")
        assert request.transport is not None
        request.transport.close()
        return own

    async with _spliced(upstream) as client:
        assert client.protocol == "plain.kubevirt.io"
        assert await client.receive_bytes(timeout=5) == b"off"
        assert (await client.receive(5)).type == WSMsgType.CLOSED


async def test_a_message_that_is_too_long_is_not_kept_in_memory() -> None:
    received: list[WSMsgType] = []

    async def upstream(request: web.Request) -> web.StreamResponse:
        own = web.WebSocketResponse(max_msg_size=0)
        await own.prepare(request)
        received.append((await own.receive()).type)
        return own

    async with _spliced(upstream) as client:
        with contextlib.suppress(ConnectionError):  # it may be hung up while this is sent
            await client.send_bytes(bytes(MAX_MESSAGE_BYTES + 1))
        await client.receive(5)
    assert WSMsgType.BINARY not in received


async def test_a_client_that_takes_leave_gets_an_answer() -> None:
    async def upstream(request: web.Request) -> web.StreamResponse:
        own = web.WebSocketResponse()
        await own.prepare(request)
        await own.receive()
        return own

    async with _spliced(upstream) as client:
        await client.close()
        assert client.close_code == 1000


async def test_a_port_where_nobody_listens_is_named() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    refused: list[StatusError] = []

    async def forward(request: web.Request) -> web.StreamResponse:
        try:
            return await _forwards().serve(request, _INSTANCE)
        except StatusError as error:
            refused.append(error)
            return web.Response(status=error.code)

    async with _serving(forward) as url, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(f"{url}/{port}")
    text = f"dialing VM: dial tcp 127.0.0.1:{port}: connect: connection refused"
    assert refused[0].message == f"Internal error occurred: {text}"


@pytest.mark.parametrize(
    ("claimed", "pod", "expected"),
    [
        ("10.0.0.5", _launcher("10.0.0.5"), "10.0.0.5"),
        ("127.0.0.1", _launcher("10.0.0.5"), "10.0.0.5"),
        ("169.254.169.254", _launcher("10.0.0.5"), "10.0.0.5"),
        ("fd00::5", _launcher("10.0.0.5", status={"podIPs": [{"ip": "fd00::5"}]}), "fd00::5"),
        ("10.0.0.5", _launcher("10.0.0.5", spec={"hostNetwork": True}), ""),
        ("10.0.0.5", _launcher("10.0.0.5", spec={"nodeName": "other"}), ""),
        ("10.0.0.5", _launcher("10.0.0.5", metadata={"ownerReferences": []}), ""),
        ("192.0.2.9", _launcher("192.0.2.9"), ""),
        ("10.0.0.5", _launcher(""), ""),
    ],
)
def test_ports_are_forwarded_to_the_guests_pod_whatever_its_agent_says(
    claimed: str, pod: JsonObject, expected: str
) -> None:
    assert guest_address(_INSTANCE, [pod], claimed) == expected


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "169.254.169.254", "::1"])
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
async def test_no_port_of_virt_apis_own_is_forwarded(address: str, protocol: str) -> None:
    refused: list[StatusError] = []

    async def forward(request: web.Request) -> web.StreamResponse:
        request.match_info["protocol"] = protocol
        try:
            return await _forwards(_launcher(address), Destinations()).serve(request, _INSTANCE)
        except StatusError as error:
            refused.append(error)
            return web.Response(status=error.code)

    async with _serving(forward) as url, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(f"{url}/22")
    assert (refused[0].code, refused[0].message) == (400, "address not allowed")


async def test_an_instance_that_claims_virt_apis_address_is_not_connected_to(virt_api: VirtApi) -> None:
    reached: list[object] = []
    listening = await asyncio.start_server(lambda *streams: reached.append(streams), "127.0.0.1", 0)
    vmi = {**_VMI, "metadata": {**_VMI["metadata"], "namespace": "ns"}}
    virt_api.cluster.put(kinds.VIRTUAL_MACHINE_INSTANCES, vmi)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        answer = await virt_api.ask("GET", f"/namespaces/ns/virtualmachineinstances/vm/portforward/{port}")
    assert (answer.status, reached) == (400, [])


@pytest.mark.parametrize("text", ["", "x", "\u00b2", "-1", "0", "65536", "9" * 5000])
def test_ports_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(StatusError) as caught:
        port_number(text)
    assert caught.value.code == 400


async def test_datagrams_go_to_the_guest_and_back_one_to_a_message() -> None:
    class Guest(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast("asyncio.DatagramTransport", transport)

        def datagram_received(self, data: bytes, addr: tuple[str | int, int]) -> None:
            self.transport.sendto(b"<" + data + b">", addr)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Guest, local_addr=("127.0.0.1", 0))

    async def forward(request: web.Request) -> web.StreamResponse:
        request.match_info["protocol"] = "udp"
        return await _forwards().serve(request, _INSTANCE)

    async with _serving(forward) as url, aiohttp.ClientSession() as session:
        port = transport.get_extra_info("sockname")[1]
        async with session.ws_connect(f"{url}/{port}", protocols=["plain.kubevirt.io"]) as client:
            for question in (b"one", b"two"):
                await client.send_bytes(question)
                assert await client.receive_bytes(timeout=5) == b"<" + question + b">"
    transport.close()


class _Agents(NodeAgents):
    """Reaches the agent at a given URL, without TLS."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._server_name = ""

    async def base_url(self, vmi: VirtualMachineInstance) -> str:
        return self._url

    async def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()


@pytest.mark.parametrize("size", [0, 1200, 65507])
async def test_datagrams_that_no_client_takes_do_not_fill_the_memory(size: int) -> None:
    held = streams.DatagramForwarder()
    for _ in range(10_000):
        held.datagram_received(bytes(size), ("192.0.2.1", 1))
    assert 0 < held.held <= streams.MOST_HELD_BYTES
    while held.held:
        assert await held.take() == bytes(size)
    held.datagram_received(b"later", ("192.0.2.1", 1))
    assert await held.take() == b"later"


async def test_what_a_node_agent_says_when_it_refuses_is_passed_on() -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.Response(status=503, text="Active VNC connection. Request denied.")

    async with _serving(refuse) as url:
        with pytest.raises(NodeAgentError) as refused:
            async with _Agents(url).stream(VirtualMachineInstance(), "vnc"):
                raise AssertionError("the stream was opened")
    assert str(refused.value) == (
        "Can't connect to websocket (503): websocket: bad handshake: "
        "application info: Active VNC connection. Request denied."
    )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_node_that_is_taken_over_sends_virt_api_to_no_other(status: int) -> None:
    """virt-api would show its certificate there, which opens the consoles of all guests."""
    victims: list[str] = []

    async def victim(request: web.Request) -> web.StreamResponse:
        victims.append(request.method)
        socket = web.WebSocketResponse(protocols=("plain.kubevirt.io",))
        if not socket.can_prepare(request).ok:
            return web.Response(text="of another")
        await socket.prepare(request)
        return socket

    async with _serving(victim) as other:

        async def redirect(request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": f"{other}/console"})

        async with _serving(redirect) as url:
            agents = _Agents(url)
            assert (await agents.request(VirtualMachineInstance(), "GET", "pause")).status == status
            async with agents.answering(VirtualMachineInstance(), "userlist") as answer:
                assert answer.status == status
            with pytest.raises(NodeAgentError, match="sends elsewhere"):
                async with agents.stream(VirtualMachineInstance(), "console"):
                    raise AssertionError("the stream of another guest was opened")
    assert not victims


@pytest.mark.parametrize("status", [202, 500])
async def test_a_node_that_is_taken_over_does_not_fill_the_memory(status: int) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        response.content_type = "text/plain"
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                await response.write(b"x" * (1 << 20))
        return response

    async with _serving(endless) as url:
        reply = await _Agents(url).request(VirtualMachineInstance(), "GET", "pause")
        assert (reply.status, len(reply.body)) == (status, 16384)
        with pytest.raises(NodeAgentError) as refused:
            async with _Agents(url).stream(VirtualMachineInstance(), "vnc"):
                raise AssertionError("the stream was opened")
    assert len(str(refused.value)) < 32768


async def test_an_instance_that_cannot_be_read_is_told_with_its_field(virt_api: VirtApi) -> None:
    metadata = {"name": "vm", "namespace": "ns"}
    virt_api.cluster.put(kinds.VIRTUAL_MACHINE_INSTANCES, {"metadata": metadata, "spec": {"hostname": 7}})
    answer = await virt_api.ask("PUT", "/namespaces/ns/virtualmachineinstances/vm/pause")
    assert answer.status == 500
    assert "spec.hostname" in answer.body["message"]
