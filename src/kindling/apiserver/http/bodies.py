"""Request bodies: size limits, JSON and YAML decoding, and the errors of strict decoding."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import yaml
from aiohttp import web

from kubecore import errors, yaml_text
from kubecore.json import JsonObject, TooDeep
from kubecore.json import decode as decode_json
from kubecore.large_requests import LARGE_BYTES
from kubecore.objects import fields
from kubecore.objects.goformat import json_type
from kubecore.repeated_fields import duplicate_fields, may_repeat_fields

from ..kinds.encoding import protobuf
from ..registry import decoding
from ..registry.go_json import read_leniently, syntax_error
from .connection import Connection
from .media import JSON, OFFERED, PROTOBUF, YAML

MAX_BODY_BYTES = 3 * 1024 * 1024
_SUMMARY_BYTES = 30
_TYPE_META = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)


@dataclass(slots=True)
class Body:
    """A decoded body: the document and the errors of strict decoding."""

    document: Any
    duplicates: list[str] = field(default_factory=list)
    """Paths of repeated fields in JSON."""
    repeated_keys: list[str] = field(default_factory=list)
    """Errors about repeated keys in YAML, by line instead of path."""


async def read(request: web.BaseRequest, limit: int = MAX_BODY_BYTES) -> bytes:
    """The raw body. Raises StatusError (413, 429, 504).

    A large request waits here for a slot of the `LargeRequestPool`.
    """
    if not request.body_exists:
        return b""
    length = request.content_length
    if length is not None and length > limit:
        raise errors.too_large(f"limit is {limit}")
    if length is not None and request.content.is_eof() and length <= LARGE_BYTES:
        return await request.content.readexactly(length) if length else b""
    connection = request.protocol if isinstance(request.protocol, Connection) else None
    try:
        async with asyncio.timeout(connection.patience if connection is not None else None):
            raw = await _read_slowly(request, limit)
    except TimeoutError as error:
        raise errors.timeout(
            "request did not complete within requested timeout - context deadline exceeded"
        ) from error
    if len(raw) > LARGE_BYTES and connection is not None:
        await connection.share.acquire_slot()
    return raw


async def _read_slowly(request: web.BaseRequest, limit: int) -> bytes:
    """Read a chunked body; each chunk is accounted for, because many clients may never send the last one."""
    share = request.protocol.share if isinstance(request.protocol, Connection) else None
    chunks: list[bytes] = []
    total = 0
    async for chunk in request.content.iter_any():
        total += len(chunk)
        if total > limit:
            raise errors.too_large(f"limit is {limit}")
        if share is not None and total > LARGE_BYTES:
            share.hold(len(chunk))
        chunks.append(chunk)
    if request.content_length is not None and total != request.content_length:
        raise asyncio.IncompleteReadError(b"".join(chunks), request.content_length)
    return b"".join(chunks)


async def decoded(request: web.BaseRequest, raw: bytes, content_type: str, kind: str = "") -> Body:
    """See ``decode``; a large body is decoded in a thread."""
    if len(raw) > LARGE_BYTES and isinstance(request.protocol, Connection):
        return await request.protocol.large_requests.run(decode, raw, content_type, kind)
    return decode(raw, content_type, kind)


def media_type(request: web.BaseRequest) -> str:
    """The body's media type, JSON when none is named. Raises StatusError (415)."""
    header = request.headers.get("Content-Type")
    if not header:
        return JSON
    found = header.partition(";")[0].strip().lower()
    if found in (JSON, YAML, PROTOBUF):
        return found
    raise errors.unsupported_media_type(OFFERED)


def decode(raw: bytes, content_type: str, kind: str = "", *, check_duplicates: bool = True) -> Body:
    """The document of a body. Raises StatusError (400, 415); `kind` is what its message expects."""
    if content_type == YAML:
        return _decode_yaml(raw, kind)
    if content_type == PROTOBUF:
        if not raw.startswith(protobuf.MAGIC):
            problem = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
            raise _unrecognized(problem, raw, kind)
        return Body(protobuf.decode(raw))
    try:
        document = decode_json(raw)
    except (orjson.JSONDecodeError, TooDeep) as error:
        problem = syntax_error(raw) or (str(error) if isinstance(error, TooDeep) else "")
        if not problem:
            try:
                document = read_leniently(raw)
            except ValueError as unreadable:
                problem = str(unreadable)
        if problem:
            problem = f"couldn't get version/kind; json parse error: {problem}"
            raise _unrecognized(problem, raw, kind) from error
    body = Body(_object(document, raw, kind))
    if check_duplicates and may_repeat_fields(raw, orjson.dumps(body.document)):
        body.duplicates = duplicate_fields(raw)
    return body


def _decode_yaml(raw: bytes, kind: str) -> Body:
    try:
        document, repeated = yaml_text.read(raw)
    except yaml.YAMLError as error:
        raise _unrecognized(yaml_text.message(error), raw, kind) from error
    except TooDeep as error:
        raise _unrecognized(f"yaml: {error}", raw, kind) from error
    # Kubernetes makes JSON of it, in which keys are sorted, before it looks at types.
    document = orjson.loads(orjson.dumps(document, option=orjson.OPT_SORT_KEYS))
    return Body(_object(document, raw, kind), repeated_keys=repeated)


def _object(document: Any, raw: bytes, kind: str) -> JsonObject:
    """A decoded body as an object (null is an empty one). Raises StatusError (400)."""
    if document is None:
        return {}
    problem = ""
    if not isinstance(document, dict):
        problem = f"{json_type(document)} into Go value of type {_TYPE_META}"
    else:
        for key in ("kind", "apiVersion"):
            if not isinstance(document.get(key, ""), str | None):
                problem = f"{json_type(document[key])} into Go struct field .{key} of type string"
    if problem:
        problem = f"couldn't get version/kind; json parse error: json: cannot unmarshal {problem}"
        raise _unrecognized(problem, raw, kind)
    found: JsonObject = document
    return found


def _unrecognized(problem: str, raw: bytes, kind: str) -> errors.StatusError:
    if not kind:
        return errors.bad_request(problem)
    return errors.bad_request(
        f"the object provided is unrecognized (must be of type {kind}): {problem} ({_summary(raw)})"
    )


def _summary(raw: bytes) -> str:
    if not raw:
        return "<empty>"
    cut = raw[:_SUMMARY_BYTES]
    text = cut.decode(errors="replace") if raw[:1] == b"{" else cut.hex()
    return f"{text} ..." if len(raw) > _SUMMARY_BYTES else text


def check_custom_kind(document: JsonObject, api_version: str, raw: bytes, kind: str) -> None:
    """Refuse a custom resource that names no kind, or another apiVersion (400).

    One of another kind is refused by its validation, after admission.
    """
    if not document.get("kind"):
        raise _unrecognized(f"Object 'Kind' is missing in '{raw.decode(errors='replace')}'", raw, kind)
    sent = document.get("apiVersion") or ""
    if sent != api_version:
        raise _other_version(sent, api_version)


def check_kind(document: JsonObject, api_version: str, kind: str, older: Sequence[str] = ()) -> None:
    """Refuse another apiVersion or kind (400); set them where absent. `older` versions are as good."""
    sent_version, sent_kind = document.get("apiVersion") or api_version, document.get("kind") or kind
    document["kind"], document["apiVersion"] = kind, api_version
    if (sent_version, sent_kind) == (api_version, kind) or sent_version in older:
        return
    problem = decoding.foreign_kind(sent_kind, sent_version, api_version, kind)
    if not problem:
        raise _other_version(sent_version, api_version)
    version = fields.go_quote(sent_version.rpartition("/")[2])
    raise errors.bad_request(f"{sent_kind} in version {version} cannot be handled as a {kind}: {problem}")


def _other_version(sent: str, expected: str) -> errors.StatusError:
    return errors.bad_request(
        f"the API version in the data ({sent}) does not match the expected API version ({expected})"
    )
