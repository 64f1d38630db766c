"""The response to an upgrade request (101 or an error)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass

_MAX_BODY_BYTES = 1024 * 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: [^\r\n]*)?\r\n")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[^\r\n]*)?\r\n")


@dataclass(frozen=True, slots=True)
class Response:
    """The head of a response. Header names are in lower case; the last of repeated headers counts."""

    status: int
    headers: Mapping[str, str]
    head: bytes
    """As it came, with the empty line."""


async def read(reader: asyncio.StreamReader) -> Response:
    """Read the head. Raises ValueError if it is malformed or too long, IncompleteReadError, OSError."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise ValueError("the head of the response is too long") from error
    status = _STATUS_LINE.match(head)
    if status is None:
        raise ValueError("the response is not HTTP/1")
    headers: dict[str, str] = {}
    for line in head[status.end() :].decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Response(int(status[1]), headers, head)


async def read_body(reader: asyncio.StreamReader, response: Response) -> bytes:
    """The body, cut off at 1 MiB. Raises ValueError, LimitOverrunError, IncompleteReadError, OSError."""
    if response.headers.get("transfer-encoding", "").lower() == "chunked":
        return await _read_chunks(reader)
    length = response.headers.get("content-length", "")
    if length.isdecimal() and len(length) < 10:
        return await reader.readexactly(min(int(length), _MAX_BODY_BYTES))
    found = bytearray()
    while len(found) < _MAX_BODY_BYTES and (data := await reader.read(_MAX_BODY_BYTES - len(found))):
        found += data
    return bytes(found)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while True:
        size = _CHUNK.fullmatch(await reader.readuntil(b"\r\n"))
        if size is None:
            raise ValueError("the response's body is not in chunks")
        wanted = int(size[1], 16)
        if wanted == 0 or len(found) + wanted > _MAX_BODY_BYTES:
            return bytes(found)
        found += (await reader.readexactly(wanted + 2))[:-2]
