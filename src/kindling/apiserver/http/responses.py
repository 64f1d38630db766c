"""Responses: bodies with their headers, errors as Status documents, compression."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import yaml
from aiohttp import web
from multidict import CIMultiDict

from kubecore import errors, yaml_text
from kubecore.json import JsonObject
from kubecore.objects import fields

from .media import JSON, YAML

_GZIP_THRESHOLD_BYTES = 128 * 1024
_GZIP_LEVEL = 1
_MAX_WARNING_CHARS = 4096
_SHORT_WARNING_CHARS = 256


class _Dumper(yaml.CSafeDumper):
    """YAML without anchors: repeated values are written out."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always."""
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    """Quoted twice where it would be read as something else without quotes, by lines where it has some."""
    style = None
    if "\n" in value:
        style = "|"
    elif not yaml_text.is_text(value):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


@dataclass(slots=True)
class Response:
    """A complete response."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: list[tuple[str, str]] = field(default_factory=list)


def to_yaml(document: object) -> bytes:
    """YAML bytes of a JSON value."""
    text: str = yaml.dump(document, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, width=80)
    return text.encode()


def document_response(
    status: int,
    document: object,
    media_type: str = JSON,
    *,
    pretty: bool = False,
) -> Response:
    """A JSON value in the negotiated type."""
    if media_type == YAML:
        return Response(status, to_yaml(document), YAML)
    if pretty:
        return Response(status, orjson.dumps(document, option=orjson.OPT_INDENT_2))
    return Response(status, orjson.dumps(document) + b"\n")


def error_response(error: errors.StatusError, media_type: str = JSON, *, pretty: bool = False) -> Response:
    """A Status document."""
    response = document_response(error.code, error.to_status(), media_type, pretty=pretty)
    response.headers.extend(error.headers.items())
    return response


def text_response(status: int, text: str) -> Response:
    """Plain text."""
    return Response(
        status,
        text.encode(),
        "text/plain; charset=utf-8",
        [("X-Content-Type-Options", "nosniff")],
    )


def success_status(details: JsonObject) -> JsonObject:
    """The Status document of a deletion."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def warning_headers(texts: Sequence[str]) -> list[tuple[str, str]]:
    """``Warning: 299 - "text"`` for each; shortened, and then cut off, where they take more than 4 KiB."""
    shown, length, is_shortened = list(texts), 0, False
    if sum(map(len, texts)) > _MAX_WARNING_CHARS:
        shown, is_shortened = [text[:_SHORT_WARNING_CHARS] for text in texts], True
    headers = []
    for text in shown:
        if is_shortened and length >= _MAX_WARNING_CHARS:
            break
        length += len(text)
        headers.append(("Warning", f"299 - {fields.go_quote(text)}"))
    return headers


def is_worth_compressing(response: Response) -> bool:
    """Whether a response is big enough to be sent compressed."""
    return len(response.body) >= _GZIP_THRESHOLD_BYTES


def compress(response: Response) -> None:
    """Compress the body. Slow; releases the GIL."""
    response.body = gzip.compress(response.body, _GZIP_LEVEL, mtime=0)
    response.headers += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]


def to_aiohttp(response: Response, *, extra: list[tuple[str, str]]) -> web.Response:
    """The response as aiohttp sends it."""
    headers: CIMultiDict[str] = CIMultiDict(extra)
    for name, value in response.headers:
        headers.add(name, value)
    headers["Content-Type"] = response.content_type
    return web.Response(status=response.status, body=response.body, headers=headers)
