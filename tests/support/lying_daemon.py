"""Somebody between a libvirt daemon and its client, who says other things than the daemon."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kubecore.directions import until_one_ends

_LENGTH = struct.Struct(">I")
_PROCEDURE = struct.Struct(">I")
_PROCEDURE_AT = 8
HEADER = 24

Lie = Callable[[int, bytes], bytes]
"""Gets the number of a procedure and what follows the length of its answer; returns what follows instead."""


@asynccontextmanager
async def lying(daemon: Path, lie: Lie) -> AsyncIterator[Path]:
    """The socket of one whose answers are `lie` of those of the daemon behind the socket `daemon`."""

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while length := await reader.read(1):
            length += await reader.readexactly(_LENGTH.size - 1)
            said = await reader.readexactly(_LENGTH.unpack(length)[0] - _LENGTH.size)
            (procedure,) = _PROCEDURE.unpack_from(said, _PROCEDURE_AT)
            said = lie(procedure, said)
            writer.write(_LENGTH.pack(len(said) + _LENGTH.size) + said)
            await writer.drain()

    async def calls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_unix_connection(daemon)
        try:
            await until_one_ends(answers(theirs, writer), calls(reader, ours))
        finally:
            ours.close()
            writer.close()

    path = daemon.with_name("liar")
    async with await asyncio.start_unix_server(serve, path):
        yield path
