"""Turning refusals of the server into StatusError."""

from __future__ import annotations

import orjson

from kubecore.client.transport import Request, Response
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
    """The error in an answer of 400 or more, whether or not its body is a ``Status``."""
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


def _status_document(body: bytes) -> JsonObject | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if isinstance(document, dict) and document.get("kind") == "Status":
        return document
    return None
