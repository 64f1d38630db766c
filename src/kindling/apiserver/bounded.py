"""Reading what other servers answer, who may be hostile, within bounds."""

from __future__ import annotations

import aiohttp


class TooLong(ValueError):
    """An answer is longer than its reader takes."""


async def read_whole(content: aiohttp.StreamReader, limit: int) -> bytes:
    """A body to its end, however many pieces it comes in. Raises TooLong, aiohttp.ClientError."""
    parts: list[bytes] = []
    size = 0
    while part := await content.readany():
        size += len(part)
        if size > limit:
            raise TooLong(f"the answer is longer than {limit} bytes")
        parts.append(part)
    return b"".join(parts)
