"""StatusError from error responses, and whether a request may be repeated."""

from __future__ import annotations

import asyncio

import orjson

from kubecore.client.transport import (
    REQUEST_SECONDS,
    ConnectionFailed,
    Request,
    Response,
    StreamedResponse,
)
from kubecore.errors import StatusError
from kubecore.json import JsonObject

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def status_error(request: Request, response: Response) -> StatusError:
    """The error of a response with status 400 or above, whether or not its body is a ``Status``."""
    document = _status_document(response.body)
    if document is None:
        text = response.body.decode("utf-8", "replace").strip()
        document = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": response.status,
            "reason": _REASONS.get(response.status, "Unknown"),
            "message": text
            or f"the server could not handle {request.method} {request.path} ({response.status})",
        }
    document.setdefault("code", response.status)
    error = StatusError.from_status(document)
    error.headers.update(response.headers)
    return error


async def streamed_error(request: Request, response: StreamedResponse) -> StatusError:
    """The error in a streamed answer of 400 or more. Raises ConnectionFailed where it does not end."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            content = b"".join([chunk async for chunk in response.chunks()])
    except TimeoutError as error:
        text = f"the server refused {request.method} {request.path} ({response.status}) without an end"
        raise ConnectionFailed(text) from error
    return status_error(request, Response(response.status, response.headers, content))


def retry_after_seconds(response: Response) -> float | None:
    """The seconds after which the server allows a retry; None if it does not suggest one."""
    if response.status != 429 and response.status < 500:
        return None
    value = response.headers.get("retry-after", "")
    return float(value) if value.isdigit() else None


def _status_document(body: bytes) -> JsonObject | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if isinstance(document, dict) and document.get("kind") == "Status":
        return document
    return None
