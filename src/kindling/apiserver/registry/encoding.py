"""Objects as bytes: kind and apiVersion come first, so that either can be recognized and cut off."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import orjson

from kubecore.json import JsonObject

from .definition import ResourceDefinition


def header(definition: ResourceDefinition) -> bytes:
    """The beginning of the encoding of every object of this kind and version."""
    return _header(definition.resource.kind, definition.resource.api_version)


@cache
def _header(kind: str, api_version: str) -> bytes:
    return b'{"kind":%b,"apiVersion":%b,' % (orjson.dumps(kind), orjson.dumps(api_version))


def encode(obj: JsonObject) -> bytes:
    """The object as it is stored and sent."""
    ordered = {
        "kind": obj.get("kind"),
        "apiVersion": obj.get("apiVersion"),
        "metadata": obj.get("metadata", {}),
    }
    ordered.update(obj)
    return orjson.dumps(ordered)


def encode_list(
    kind: str, api_version: str, metadata: JsonObject, values: Sequence[bytes], cut: int
) -> bytes:
    """A list document of encoded objects; the first `cut` bytes of each (its header) are left out."""
    head = b'{"kind":%b,"apiVersion":%b,"metadata":%b,"items":[' % (
        orjson.dumps(kind),
        orjson.dumps(api_version),
        orjson.dumps(metadata),
    )
    if cut:
        return head + b",".join([b"{" + value[cut:] for value in values]) + b"]}"
    return head + b",".join(values) + b"]}"
