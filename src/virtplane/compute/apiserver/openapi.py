"""OpenAPI of virt-api: the subresources that it serves, as its routes have them.

The cluster's API server merges this into its own documents. The group has no kinds of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kubecore.json import JsonObject
from virtplane.api.resources import SUBRESOURCES_GROUP, SUBRESOURCES_VERSIONS

Route = tuple[str, str]
"""A method and a path with its variables in braces."""

_INFO = {"title": "KubeVirt API", "version": "1.0.0"}
_VARIABLE = re.compile(r"\{([a-z]+)\}")
_METHODS = ("GET", "PUT")


def document_v2(routes: Iterable[Route]) -> JsonObject:
    """The Swagger document of all versions."""
    return {"swagger": "2.0", "info": _INFO, "paths": _paths(routes, openapi=2), "definitions": {}}


def document_v3(routes: Iterable[Route], version: str) -> JsonObject:
    """The OpenAPI 3 document of one version."""
    base = f"/apis/{SUBRESOURCES_GROUP}/{version}"
    own = [(method, path) for method, path in routes if path == base or path.startswith(f"{base}/")]
    paths = _paths(own, openapi=3)
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": {}}}


def index_v3() -> JsonObject:
    """Where the OpenAPI 3 documents are found."""
    names = [f"apis/{SUBRESOURCES_GROUP}/{version}" for version in SUBRESOURCES_VERSIONS]
    return {"paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash=1"} for name in names}}


def _paths(routes: Iterable[Route], *, openapi: int) -> JsonObject:
    found: JsonObject = {}
    for method, path in sorted(routes):
        if method in _METHODS and path.startswith(f"/apis/{SUBRESOURCES_GROUP}"):
            found.setdefault(path, {})[method.lower()] = _operation(method, path, openapi)
    return found


def _operation(method: str, path: str, openapi: int) -> JsonObject:
    words = [word.strip("{}") for word in path.split("/") if word and word != "apis"]
    return {
        "operationId": "-".join([method.lower(), *words]),
        "tags": [SUBRESOURCES_GROUP],
        "parameters": [_parameter(name, openapi) for name in _VARIABLE.findall(path)],
        "responses": {"200": {"description": "OK"}, "401": {"description": "Unauthorized"}},
    }


def _parameter(name: str, openapi: int) -> JsonObject:
    kind: JsonObject = {"type": "string"}
    shape = kind if openapi == 2 else {"schema": kind}
    return {"name": name, "in": "path", "required": True, **shape}
