"""Answers of virt-handler that are passed on while they come: nobody's picture is in virt-api's memory."""

from __future__ import annotations

import aiohttp
from aiohttp import web

_CHUNK = 65536
_WORDS = 16384
"""Bytes of a refusal that are told."""


async def words(answer: aiohttp.ClientResponse) -> bytes:
    """What virt-handler says to a request that has no other answer: no more than somebody reads.

    The node may have been taken over, and virt-api is everybody's. Raises aiohttp.ClientError, TimeoutError.
    """
    found = b""
    while len(found) < _WORDS and (part := await answer.content.read(_WORDS - len(found))):
        found += part
    return found


async def pass_on(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Answer `request` with what virt-handler answers; what that refuses is told with 500, in its words.

    Raises aiohttp.ClientError or TimeoutError where the answer ends early, by which the client's does, too.
    """
    if not 200 <= answer.status < 300:
        return web.Response(status=500, text=(await words(answer)).decode(errors="replace"))
    response = web.StreamResponse()
    response.content_type = answer.content_type
    response.content_length = answer.content_length
    await response.prepare(request)
    async for chunk in answer.content.iter_chunked(_CHUNK):
        await response.write(chunk)
    await response.write_eof()
    return response
