"""OpenAPI of virt-api: the subresources that it serves, as its routes have them.

The cluster's API server merges this into its own documents. The groups have no kinds of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kubecore.json import JsonObject
from virtplane.api.resources import SUBRESOURCES_GROUP, SUBRESOURCES_VERSIONS
from virtplane.api.vnc_access import TOKEN_GROUP, TOKEN_VERSIONS

Route = tuple[str, str]
"""A method and a path with its variables in braces."""

GROUP_VERSIONS = (
    *((SUBRESOURCES_GROUP, version) for version in SUBRESOURCES_VERSIONS),
    *((TOKEN_GROUP, version) for version in TOKEN_VERSIONS),
)
_INFO = {"title": "KubeVirt API", "version": "1.0.0"}
_VARIABLE = re.compile(r"\{([a-z]+)\}")
_METHODS = ("GET", "PUT")
_QUERY = {TOKEN_GROUP: ("duration",)}
"""What operations of a group may be given beside their path."""


def document_v2(routes: Iterable[Route]) -> JsonObject:
    """The Swagger document of all versions."""
    return {"swagger": "2.0", "info": _INFO, "paths": _paths(routes, openapi=2), "definitions": {}}


def document_v3(routes: Iterable[Route], group: str, version: str) -> JsonObject:
    """The OpenAPI 3 document of one version."""
    base = f"/apis/{group}/{version}"
    own = [(method, path) for method, path in routes if path == base or path.startswith(f"{base}/")]
    paths = _paths(own, openapi=3)
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": {}}}


def index_v3() -> JsonObject:
    """Where the OpenAPI 3 documents are found."""
    names = [f"apis/{group}/{version}" for group, version in GROUP_VERSIONS]
    return {"paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash=1"} for name in names}}


def _paths(routes: Iterable[Route], *, openapi: int) -> JsonObject:
    found: JsonObject = {}
    for method, path in sorted(routes):
        group = path.split("/")[2] if path.startswith("/apis/") else ""
        if method in _METHODS and group in (SUBRESOURCES_GROUP, TOKEN_GROUP):
            found.setdefault(path, {})[method.lower()] = _operation(method, path, group, openapi)
    return found


def _operation(method: str, path: str, group: str, openapi: int) -> JsonObject:
    words = [word.strip("{}") for word in path.split("/") if word and word != "apis"]
    parameters = [_parameter(name, "path", openapi) for name in _VARIABLE.findall(path)]
    if "{" in path:
        parameters += [_parameter(name, "query", openapi) for name in _QUERY.get(group, ())]
    return {
        "operationId": "-".join([method.lower(), *words]),
        "tags": [group],
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}, "401": {"description": "Unauthorized"}},
    }


def _parameter(name: str, place: str, openapi: int) -> JsonObject:
    kind: JsonObject = {"type": "string"}
    shape = kind if openapi == 2 else {"schema": kind}
    return {"name": name, "in": place, "required": place == "path", **shape}
