"""HTTP/2 at the API server: many requests on one connection, and what a hostile client gets."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, Event, ResponseReceived, StreamReset
from tests.support.apiserver import ADMIN_TOKEN, RunningServer, running_server, sample_definitions

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
TOKEN = [("authorization", f"Bearer {ADMIN_TOKEN}")]
BIG = "x" * 900_000
"""More than the windows of a stream and of a connection by default."""


def trust(running: RunningServer, *protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=running.ca_data.decode())
    context.set_alpn_protocols(protocols)
    return context


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[RunningServer]:
    async with running_server(directory, sample_definitions()) as running:
        yield running


@asynccontextmanager
async def one_connection(running: RunningServer, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=running.url,
        verify=ssl.create_default_context(cadata=running.ca_data.decode()),
        http2=True,
        headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
        limits=httpx.Limits(max_connections=1),
        timeout=20,
        **options,
    ) as client:
        yield client


def config_map(name: str, value: str = "v") -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"k": value}}


async def test_an_object_is_created_changed_and_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, one_connection(running) as client:
        created = await client.post(CONFIG_MAPS, json=config_map("a"))
        assert (created.http_version, created.status_code) == ("HTTP/2", 201)
        assert "connection" not in created.headers
        patch = {"Content-Type": "application/merge-patch+json"}
        changed = await client.patch(f"{CONFIG_MAPS}/a", content=b'{"data":{"k":"w"}}', headers=patch)
        assert changed.json()["data"] == {"k": "w"}
        assert (await client.head(f"{CONFIG_MAPS}/a")).content == b""
        assert (await client.delete(f"{CONFIG_MAPS}/a")).status_code == 200
        missing = await client.get(f"{CONFIG_MAPS}/a")
        assert (missing.status_code, missing.json()["reason"]) == (404, "NotFound")


async def test_dozens_of_watches_share_a_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, one_connection(running) as client:
        began = asyncio.Barrier(41)

        async def first_event() -> str:
            async with client.stream("GET", CONFIG_MAPS, params={"watch": "1"}) as response:
                await began.wait()
                async for line in response.aiter_lines():
                    return str(json.loads(line)["object"]["metadata"]["name"])
            return ""

        watches = [asyncio.create_task(first_event()) for _ in range(40)]
        await began.wait()
        await client.post(CONFIG_MAPS, json=config_map("seen"))
        assert await asyncio.gather(*watches) == ["seen"] * 40


async def test_large_bodies_pass_both_ways(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, one_connection(running) as client:
        for name in "abc":
            assert (await client.post(CONFIG_MAPS, json=config_map(name, BIG))).status_code == 201

        async def pieces() -> AsyncIterator[bytes]:
            text = json.dumps(config_map("d", BIG)).encode()
            for start in range(0, len(text), 50_000):
                yield text[start : start + 50_000]

        headers = {"Content-Type": "application/json"}
        assert (await client.post(CONFIG_MAPS, content=pieces(), headers=headers)).status_code == 201
        lists = await asyncio.gather(*(client.get(CONFIG_MAPS) for _ in range(3)))
        assert [[len(item["data"]["k"]) for item in each.json()["items"]] for each in lists] == [
            [len(BIG)] * 4
        ] * 3


async def test_a_client_that_does_not_read_a_response_holds_up_nobody_else(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, one_connection(running) as client:
        await client.post(CONFIG_MAPS, json=config_map("big", BIG))
        async with client.stream("GET", f"{CONFIG_MAPS}/big") as unread:
            assert unread.status_code == 200
            assert (await client.get("/healthz")).text == "ok"
            assert len(await unread.aread()) > len(BIG)


def test_the_loop_of_the_daemons_serves_it_too(tmp_path: Path) -> None:
    async def ask() -> None:
        async with serving(tmp_path) as running, one_connection(running) as client:
            for name in "ab":
                assert (await client.post(CONFIG_MAPS, json=config_map(name, BIG))).status_code == 201
            answer = await client.get(CONFIG_MAPS)
            assert (answer.http_version, len(answer.json()["items"])) == ("HTTP/2", 2)

    uvloop.run(ask())


@pytest.mark.parametrize("protocols", [(), ("http/1.1",)])
async def test_others_go_on_with_http_1(tmp_path: Path, protocols: tuple[str, ...]) -> None:
    async with serving(tmp_path) as running:
        context = ssl.create_default_context(cadata=running.ca_data.decode())
        if protocols:
            context.set_alpn_protocols(protocols)
        reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port, ssl=context)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 ")
        writer.close()


class RawClient:
    """A client that may send what no library would."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        settings = H2Configuration(
            validate_outbound_headers=False, normalize_outbound_headers=False, header_encoding="utf-8"
        )
        self.h2 = H2Connection(settings)
        self._seen: list[Event] = []
        self.h2.initiate_connection()

    def ask(
        self, *extra: tuple[str, str], end: bool = True, method: str = "GET", path: str = "/healthz"
    ) -> int:
        """Send the head of a request; the number of its stream."""
        number = self.h2.get_next_available_stream_id()
        pseudo = [(":method", method), (":path", path), (":scheme", "https"), (":authority", "x")]
        self.h2.send_headers(number, [*pseudo, *extra], end_stream=end)
        return number

    async def until(self, *wanted: type[Event]) -> Any:
        """The next event of one of these types; None when the server closes the connection."""
        async with asyncio.timeout(10):
            while True:
                while self._seen:
                    event = self._seen.pop(0)
                    if isinstance(event, wanted):
                        return event
                self._writer.write(self.h2.data_to_send())
                data = await self._reader.read(65536)
                if not data:
                    return None
                self._seen += self.h2.receive_data(data)


@asynccontextmanager
async def raw_client(running: RunningServer) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port, ssl=trust(running, "h2"))
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("extra", "method", "path"),
    [
        pytest.param(
            [("x-a", "1\r\nX-Remote-Group: system:masters")], "GET", "/healthz", id="line in a value"
        ),
        pytest.param([("x-a\r\nx-b", "1")], "GET", "/healthz", id="line in a name"),
        pytest.param([("transfer-encoding", "chunked")], "GET", "/healthz", id="chunked"),
        pytest.param([("connection", "upgrade")], "GET", "/healthz", id="connection header"),
        pytest.param([("upgrade", "websocket")], "GET", "/healthz", id="upgrade"),
        pytest.param([("host", "another")], "GET", "/healthz", id="two hosts"),
        pytest.param([("content-length", "5")], "GET", "/healthz", id="length without a body"),
        pytest.param([], "GET", "/healthz HTTP/1.1\r\nX-Remote-User: admin\r\n\r\n", id="request in a path"),
        pytest.param([], "GET /api HTTP/1.1\r\n\r\nGET", "/healthz", id="request in a method"),
        pytest.param([], "GET", "", id="no path"),
    ],
)
async def test_a_head_that_could_smuggle_a_request_is_refused(
    tmp_path: Path, extra: list[tuple[str, str]], method: str, path: str
) -> None:
    async with serving(tmp_path) as running, raw_client(running) as client:
        client.ask(*extra, method=method, path=path)
        event = await client.until(ResponseReceived, StreamReset, ConnectionTerminated)
        assert not isinstance(event, ResponseReceived)


async def test_spaces_around_values_of_headers_are_taken_off(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, raw_client(running) as client:
        for extra in (("user-agent", "tests -- of logs "), ("accept", " application/json\t")):
            number = client.ask(extra)
            answer = await client.until(ResponseReceived, StreamReset, ConnectionTerminated)
            assert isinstance(answer, ResponseReceived)
            assert answer.stream_id == number


async def test_a_tunnel_is_sent_to_http_1(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, raw_client(running) as client:
        client.ask(method="CONNECT")
        reset = await client.until(StreamReset, ConnectionTerminated)
        if isinstance(reset, StreamReset):
            assert reset.error_code == ErrorCodes.HTTP_1_1_REQUIRED
        else:
            assert reset is not None


async def test_a_body_over_the_limit_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, raw_client(running) as client:
        length = ("content-length", "4000000")
        client.ask(*TOKEN, length, method="POST", path=CONFIG_MAPS, end=False)
        refused = await client.until(ResponseReceived)
        assert (":status", "413") in refused.headers
        assert (await client.until(StreamReset)).error_code == ErrorCodes.NO_ERROR
        client.ask()
        assert await client.until(ResponseReceived)


async def test_rapid_resets_end_the_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, raw_client(running) as client:
        for _ in range(250):
            client.h2.reset_stream(client.ask(), ErrorCodes.CANCEL)
        ended = await client.until(ConnectionTerminated)
        assert ended.error_code == ErrorCodes.ENHANCE_YOUR_CALM


async def test_more_requests_at_a_time_than_allowed_end_the_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, raw_client(running) as client:
        for _ in range(101):
            client.ask(*TOKEN, path=f"{CONFIG_MAPS}?watch=1")
        assert isinstance(await client.until(ConnectionTerminated), ConnectionTerminated)


async def test_a_reset_ends_the_watch_it_belongs_to(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, raw_client(running) as client:
        watch = client.ask(*TOKEN, path=f"{CONFIG_MAPS}?watch=1")
        assert await client.until(ResponseReceived)
        (worker,) = (task for task in asyncio.all_tasks() if task.get_name() == "watch-late-events")
        client.h2.reset_stream(watch, ErrorCodes.CANCEL)
        client.ask()
        assert await client.until(ResponseReceived)
        await asyncio.wait([worker], timeout=10)
        assert worker.cancelled()


async def test_a_stop_ends_watches_and_connections(tmp_path: Path) -> None:
    async with serving(tmp_path) as running, raw_client(running) as client:
        client.ask(*TOKEN, path=f"{CONFIG_MAPS}?watch=1")
        assert await client.until(ResponseReceived)
        stopping = asyncio.create_task(running.server.stop())
        assert await client.until(ConnectionTerminated)
        assert await client.until() is None
        await stopping
