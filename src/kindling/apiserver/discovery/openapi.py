"""/openapi/v2 and /openapi/v3: built at their first request, and kept until definitions change."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web

from kubecore import errors
from kubecore.json import JsonObject

from ..http import media
from ..http.call import Call
from ..http.responses import Response
from ..registry.catalog import Catalog
from ..registry.definition import ResourceDefinition
from . import gnostic
from .custom_schemas import TypeMeta, list_schema, object_schema
from .openapi_paths import Style, paths_of
from .remote_openapi import RemoteApi, merge_v2
from .version import git_version

Page = Callable[[Call], Awaitable[Response | web.StreamResponse]]
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_V2_ONLY_UNKNOWN = frozenset({"nullable", "oneOf", "anyOf", "allOf", "not"})
_NAMESPACE = "io.k8s.api.core.v1.Namespace"
_COMMON = ("Status", "ObjectMeta", "ListMeta", "Patch", "DeleteOptions")
_PROTOBUF_V2 = (gnostic.MEDIA_TYPE, gnostic.OLD_MEDIA_TYPE)
_WHATEVER = ("*/*", "application/*")
_SCALE = "io.k8s.api.autoscaling.v1.Scale"

Remote = Callable[[], tuple[int, Mapping[tuple[str, str], RemoteApi]]]
"""What aggregated servers say of their group versions, and a number that changes with it."""

Published = Callable[..., Mapping[str, JsonObject]]
"""Definition names -> those definitions and all they refer to."""


class OpenApi:
    """Serves the documents. `published` gives definitions that no resource brings along."""

    def __init__(self, catalog: Catalog, published: Published, remote: Remote = lambda: (0, {})) -> None:
        self._catalog = catalog
        self._published = published
        self._remote = remote
        self._v3: dict[tuple[str, str], tuple[tuple[int, ...], bytes, str]] = {}
        self._v2: dict[str, tuple[tuple[int, int], bytes]] = {}
        self._common: TypeMeta | None = None
        self._lock = asyncio.Lock()

    def page(self, path: str) -> Page | None:
        """The page at a path, if it is one of these."""
        parts = path.strip("/").split("/")
        match parts:
            case ["openapi", "v2"]:
                return self._page_v2
            case ["openapi", "v3"]:
                return self._index
            case ["openapi", "v3", "api", version] if self._catalog.in_group_version("", version):
                return self._page_v3("", version)
            case ["openapi", "v3", "apis", group, version] if self._catalog.in_group_version(group, version):
                return self._page_v3(group, version)
            case ["openapi", "v3", "apis", group, version]:
                body = self._remote_v3().get((group, version))
                return _remote_page(body) if body is not None else None
        return None

    def _remote_v3(self) -> dict[tuple[str, str], bytes]:
        """The documents of aggregated servers, of group versions that are not served here."""
        found = {key: api.v3 for key, api in self._remote()[1].items() if api.v3 is not None}
        return {key: body for key, body in found.items() if not self._catalog.in_group_version(*key)}

    def _group_versions(self) -> list[tuple[str, str]]:
        return [
            (group, version) for group in self._catalog.groups() for version in self._catalog.versions(group)
        ]

    async def _index(self, call: Call) -> Response:
        paths: JsonObject = {}
        for group, version in self._group_versions():
            name = f"apis/{group}/{version}" if group else f"api/{version}"
            paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={self._stamp_hash(group, version)}"}
        for (group, version), body in self._remote_v3().items():
            name = f"apis/{group}/{version}"
            paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={_hash(body)}"}
        return Response(200, orjson.dumps({"paths": paths}))

    def _stamp(self, group: str, version: str) -> tuple[int, ...]:
        return tuple(id(definition) for definition in self._catalog.in_group_version(group, version))

    def _stamp_hash(self, group: str, version: str) -> str:
        """Changes whenever the document may have changed: for custom groups with their schemas, for built-in
        ones never.
        """
        digest = hashlib.sha512(git_version().encode())
        for definition in self._catalog.in_group_version(group, version):
            digest.update(repr((definition.resource, sorted(definition.subresources))).encode())
            if definition.custom and definition.openapi_name:
                digest.update(orjson.dumps(definition.openapi[definition.openapi_name]))
        return digest.hexdigest().upper()

    def _page_v3(self, group: str, version: str) -> Page:
        async def page(call: Call) -> Response:
            stamp = self._stamp(group, version)
            found = self._v3.get((group, version))
            if found is None or found[0] != stamp:
                async with self._lock:
                    definitions = self._catalog.in_group_version(group, version)
                    body = await asyncio.to_thread(self._document_v3, definitions)
                    found = self._v3[group, version] = (stamp, body, self._stamp_hash(group, version))
            return _answer_v3(call, found[1], found[2])

        return page

    def _document_v3(self, definitions: Sequence[ResourceDefinition]) -> bytes:
        style = Style(3)
        paths: JsonObject = {}
        for definition in definitions:
            paths.update(paths_of(definition, style))
        schemas = {name: to_v3(raw) for name, raw in self._schemas(definitions, 3).items()}
        return orjson.dumps(
            {
                "openapi": "3.0.0",
                "info": {"title": "Kubernetes", "version": git_version()},
                "paths": paths,
                "components": {"schemas": schemas},
            }
        )

    def _type_meta(self) -> TypeMeta:
        """How the fields that all objects have are described."""
        if self._common is None:
            found = self._published(_NAMESPACE, f"{_NAMESPACE}List")
            self._common = TypeMeta.of(found[_NAMESPACE], found[f"{_NAMESPACE}List"])
        return self._common

    def _schemas(self, definitions: Sequence[ResourceDefinition], openapi: int) -> dict[str, JsonObject]:
        """Schemas by name: those of the resources, their lists, and the types that operations refer to."""
        found: dict[str, JsonObject] = {}
        for definition in definitions:
            name = definition.openapi_name
            for key in definition.openapi:
                if key not in found:
                    found[key] = definition.openapi[key]
            if definition.custom and name:
                found[name] = object_schema(definition, found[name], self._type_meta(), openapi=openapi)
                found[name + "List"] = list_schema(definition, self._type_meta())
            for sub in definition.subresources.values():
                if sub.schema is not None and sub.schema.definition:
                    found.update(self._published(sub.schema.definition))
        found.update(self._published(*(_META + name for name in _COMMON), _SCALE))
        return found

    async def _page_v2(self, call: Call) -> Response:
        form = _negotiate_v2(call.request.headers.get("Accept") or "*/*")
        generation = (self._catalog.generation, self._remote()[0])
        if form not in self._v2 or self._v2[form][0] != generation:
            async with self._lock:
                if form not in self._v2 or self._v2[form][0] != generation:
                    body = await asyncio.to_thread(
                        self._document_v2, list(self._catalog.all()), self._remote()[1], form
                    )
                    self._v2[form] = (generation, body)
        body = self._v2[form][1]
        tag = f'"{hashlib.sha1(body, usedforsecurity=False).hexdigest().upper()}"'
        headers = [("ETag", tag), ("Vary", "Accept")]
        if call.request.headers.get("If-None-Match") == tag:
            return Response(304, b"", form, headers)
        return Response(200, body, form, headers)

    def _document_v2(
        self,
        definitions: Sequence[ResourceDefinition],
        remote: Mapping[tuple[str, str], RemoteApi],
        form: str,
    ) -> bytes:
        style = Style(2)
        paths: JsonObject = {}
        for definition in definitions:
            paths.update(paths_of(definition, style))
        schemas = {name: to_v2(raw) for name, raw in self._schemas(definitions, 2).items()}
        bearer = {"type": "apiKey", "description": "Bearer Token authentication", "name": "authorization"}
        document = {
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": git_version()},
            "paths": paths,
            "definitions": schemas,
            "securityDefinitions": {"BearerToken": {**bearer, "in": "header"}},
            "security": [{"BearerToken": []}],
        }
        for api in remote.values():
            if api.v2 is not None:
                merge_v2(document, api.v2)
        return gnostic.encode(document) if form == gnostic.MEDIA_TYPE else orjson.dumps(document)


def _hash(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest().upper()


def _answer_v3(call: Call, body: bytes, digest: str) -> Response:
    tag = f'"{digest}"'
    headers = [("ETag", tag), ("Vary", "Accept")]
    if call.query.get("hash") == digest:
        headers.append(("Cache-Control", "public, immutable"))
    if call.request.headers.get("If-None-Match") == tag:
        return Response(304, b"", media.JSON, headers)
    return Response(200, body, media.JSON, headers)


def _remote_page(body: bytes) -> Page:
    async def page(call: Call) -> Response:
        return _answer_v3(call, body, _hash(body))

    return page


def _negotiate_v2(accept: str) -> str:
    """JSON or protobuf, whichever comes first. Raises StatusError 406 where it is neither."""
    for clause in media.parse_accept(accept):
        if clause.type == media.JSON or clause.type in _WHATEVER:
            return media.JSON
        if clause.type in _PROTOBUF_V2:
            return gnostic.MEDIA_TYPE
    raise errors.not_acceptable([media.JSON, *_PROTOBUF_V2])


def to_v3(node: Any) -> Any:
    """A published schema as OpenAPI 3 writes it: references elsewhere, and alone in their node."""
    if isinstance(node, list):
        return [to_v3(child) for child in node]
    if not isinstance(node, dict):
        return node
    target = node.get("$ref")
    if isinstance(target, str):
        reference = {"$ref": "#/components/schemas/" + target.rpartition("/")[2]}
        rest = {key: to_v3(value) for key, value in node.items() if key != "$ref"}
        return {**rest, "allOf": [reference]} if rest else reference
    return {key: to_v3(value) for key, value in node.items()}


def to_v2(node: Any) -> Any:
    """A published schema in Swagger 2: without keywords that it does not have."""
    if isinstance(node, list):
        return [to_v2(child) for child in node]
    if not isinstance(node, dict):
        return node
    target = node.get("$ref")
    if isinstance(target, str):
        return {**node, "$ref": "#/definitions/" + target.rpartition("/")[2]}
    if "properties" in node and isinstance(node["properties"], dict):
        properties = {key: to_v2(value) for key, value in node["properties"].items()}
        rest = {
            key: to_v2(value)
            for key, value in node.items()
            if key != "properties" and key not in _V2_ONLY_UNKNOWN
        }
        return {**rest, "properties": properties}
    return {key: to_v2(value) for key, value in node.items() if key not in _V2_ONLY_UNKNOWN}
