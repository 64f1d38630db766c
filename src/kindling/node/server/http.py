"""HTTP/1.1, as much of it as the node's endpoint needs: one request per connection, streaming answers."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

import orjson

_log = logging.getLogger(__name__)

_MAX_HEADER_BYTES = 64 * 1024
_REASONS = {
    101: "Switching Protocols",
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
}


class HttpProblem(Exception):
    """An answer with an error status and a plain text."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Request:
    """A request whose body, if any, is still unread. Header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]

    def first(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else default

    def flag(self, *names: str) -> bool:
        """Whether any of these query parameters is true or 1."""
        return any(self.first(name) in ("true", "1") for name in names)


class Connection:
    """One client's connection: its streams and how to answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.has_answered = False

    async def answer(self, code: int, body: bytes, content_type: str = "text/plain") -> None:
        """A complete answer; the connection ends with it."""
        await self.start(code, {"Content-Type": content_type, "Content-Length": str(len(body))})
        self.writer.write(body)
        await self.writer.drain()

    async def answer_json(self, document: object) -> None:
        """A complete answer in JSON."""
        await self.answer(200, orjson.dumps(document), "application/json")

    async def start(self, code: int, headers: Mapping[str, str]) -> None:
        """The head of an answer."""
        self.has_answered = True
        lines = [f"HTTP/1.1 {code} {_REASONS.get(code, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if code != 101:
            lines.append("Connection: close")
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await self.writer.drain()

    async def start_chunks(self, content_type: str = "text/plain") -> None:
        """The head of an answer that is sent in chunks."""
        await self.start(200, {"Content-Type": content_type, "Transfer-Encoding": "chunked"})

    async def chunk(self, data: bytes) -> None:
        """One chunk."""
        if data:
            self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await self.writer.drain()

    async def end_chunks(self) -> None:
        """The last chunk."""
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def is_closed(self) -> None:
        """Returns when the client hangs up."""
        while await self.reader.read(1024):
            continue


@dataclass(frozen=True, slots=True)
class Peer:
    """Who a client's certificate names: the user, and the groups."""

    name: str
    organisations: frozenset[str]


Handler = Callable[[Request, Connection], Awaitable[None]]
Check = Callable[[Peer, Request], Awaitable[None]]
"""Raises HttpProblem where the client may not."""


async def serve(
    handler: Handler,
    host: str,
    port: int,
    context: ssl.SSLContext,
    check: Check,
) -> asyncio.Server:
    """Serve until closed. `context` insists on certificates of clients; `check` is asked for each request."""

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        try:
            request = await read_request(reader)
            await check(_peer(writer), request)
            await handler(request, connection)
        except HttpProblem as problem:
            if not connection.has_answered:
                await connection.answer(problem.code, str(problem).encode())
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, TimeoutError) as error:
            _log.debug("connection ended: %s", error)
        finally:
            writer.close()

    return await asyncio.start_server(on_connection, host, port, ssl=context, limit=_MAX_HEADER_BYTES)


async def read_request(reader: asyncio.StreamReader) -> Request:
    """Read a request's head. Raises HttpProblem."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    except asyncio.LimitOverrunError as error:
        raise HttpProblem(400, "request header too large") from error
    return parse_request(head)


def parse_request(head: bytes) -> Request:
    """A request from the bytes of its head. Raises HttpProblem."""
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3:
        raise HttpProblem(400, "malformed request line")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            key = name.strip().lower()
            headers[key] = f"{headers[key]}, {value.strip()}" if key in headers else value.strip()
    try:
        target = urlsplit(parts[1])
    except ValueError as error:
        raise HttpProblem(400, "malformed address") from error
    return Request(parts[0], unquote(target.path), parse_qs(target.query, keep_blank_values=True), headers)


def _peer(writer: asyncio.StreamWriter) -> Peer:
    certificate = writer.get_extra_info("peercert") or {}
    pairs = [pair for part in certificate.get("subject", ()) for pair in part]
    name = next((value for key, value in pairs if key == "commonName"), "")
    return Peer(name, frozenset(value for key, value in pairs if key == "organizationName"))
