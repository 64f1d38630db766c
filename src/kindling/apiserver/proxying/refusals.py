"""What a node says when it refuses a request, as an error of the API."""

from __future__ import annotations

import aiohttp

from kubecore import errors
from kubecore.errors import StatusError

_READ_BYTES = 50_000
"""How much of a refusal becomes the message."""


async def refusal(upstream: aiohttp.ClientResponse, resource: str, name: str) -> StatusError:
    """The error for an answer that is none: `resource` is as in ``pods/log``, `name` the object's.

    Clients show the message of a Status, and nothing of a plain text. Raises aiohttp.ClientError.
    """
    text = (await _beginning(upstream.content)).decode(errors="replace")
    if upstream.status == 400:
        return errors.bad_request(text)
    if upstream.status == 500:
        return errors.internal(text)
    return _other(upstream.status, resource, name)


def _other(code: int, resource: str, name: str) -> StatusError:
    reason, message = (
        "",
        f"the server responded with the status code {code} but did not return more information",
    )
    if code == 404:
        reason, message = "NotFound", "the server could not find the requested resource"
    return StatusError(code, reason, f"{message} ( {resource} {name})", {"name": name, "kind": resource})


async def _beginning(content: aiohttp.StreamReader) -> bytes:
    found = b""
    while len(found) < _READ_BYTES and (piece := await content.read(_READ_BYTES - len(found))):
        found += piece
    return found
