"""Discovery over HTTP: negotiation of the two forms, ETags, and caching until the catalog changes."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import orjson
from aiohttp import web

from kubecore import errors
from kubecore.json import JsonObject

from ..http import media, responses
from ..http.call import Call, negotiate, wants_pretty
from ..http.responses import Response
from ..registry.catalog import Catalog
from . import documents

Page = Callable[[Call], Awaitable[Response | web.StreamResponse]]
_AGGREGATED = "APIGroupDiscoveryList"
_AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_GROUP_ORDER = (
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
)


@dataclass(slots=True)
class RemoteGroups:
    """Groups of aggregated API servers: versions by group, and their aggregated discovery items."""

    versions: Mapping[str, Sequence[str]]
    items: Mapping[str, JsonObject]
    generation: int


class Discovery:
    """Serves /api, /apis and below. `remote` provides the aggregated groups."""

    def __init__(
        self, catalog: Catalog, address: Callable[[], str], remote: Callable[[], RemoteGroups]
    ) -> None:
        self._catalog = catalog
        self._address = address
        self._remote = remote
        self._cache: dict[str, tuple[tuple[int, int], JsonObject]] = {}

    def page(self, path: str) -> Page | None:
        """The page at a path, if discovery has one."""
        parts = path.strip("/").split("/")
        if path.startswith("//") or "" in parts:
            return None
        match parts:
            case ["api"]:
                return self._api
            case ["apis"]:
                return self._apis
            case ["api", "v1"]:
                return self._of(lambda: self._resources("", "v1"))
            case ["apis", group] if group in self.groups():
                return self._of(lambda: self._group(group), routed=False)
            case ["apis", group, version] if version in self._catalog.versions(group):
                return self._of(lambda: self._resources(group, version))
        return None

    def groups(self) -> dict[str, list[str]]:
        """All named groups with their versions, both in the order clients see."""
        found = {group: list(self._catalog.versions(group)) for group in self._catalog.groups() if group}
        for group, versions in self._remote().versions.items():
            found.setdefault(group, []).extend(
                version for version in versions if version not in found.get(group, ())
            )
        position = {group: index for index, group in enumerate(_GROUP_ORDER)}
        names = sorted(found, key=lambda group: (position.get(group, len(position)), group))
        return {group: documents.ordered_versions(found[group]) for group in names}

    def _cached(self, key: str, make: Callable[[], JsonObject]) -> JsonObject:
        stamp = (self._catalog.generation, self._remote().generation)
        found = self._cache.get(key)
        if found is None or found[0] != stamp:
            found = self._cache[key] = (stamp, make())
        return found[1]

    def _group(self, group: str) -> JsonObject:
        return {"kind": "APIGroup", "apiVersion": "v1", **documents.api_group(group, self.groups()[group])}

    def _resources(self, group: str, version: str) -> JsonObject:
        return self._cached(
            f"{group}/{version}",
            lambda: documents.resource_list(group, version, self._catalog.in_group_version(group, version)),
        )

    def _of(self, make: Callable[[], JsonObject], *, routed: bool = True) -> Page:
        async def page(call: Call) -> Response:
            if not call.info.path.endswith("/"):  # with a slash, groups answer to all methods
                _need_get(call)
            chosen = negotiate(call.request, transforms=False, routed=routed)
            return responses.document_response(200, make(), chosen.type, pretty=chosen.pretty)

        return page

    async def _api(self, call: Call) -> Response:
        address = {"clientCIDR": "0.0.0.0/0", "serverAddress": self._address()}
        return self._root(
            call,
            lambda: documents.legacy_root([address]),
            lambda: documents.aggregated_list([documents.aggregated_group(self._catalog, "", ["v1"])]),
        )

    async def _apis(self, call: Call) -> Response:
        return self._root(call, lambda: documents.group_list(self.groups()), self._aggregated)

    def _aggregated(self) -> JsonObject:
        remote = self._remote()
        items: list[JsonObject] = []
        for group, versions in self.groups().items():
            if group in remote.items:
                items.append(remote.items[group])
            else:
                items.append(documents.aggregated_group(self._catalog, group, versions))
        return documents.aggregated_list(items)

    def _root(
        self, call: Call, plain: Callable[[], JsonObject], aggregated: Callable[[], JsonObject]
    ) -> Response:
        _need_get(call)
        accepted = media.parse_accept(call.request.headers.get("Accept") or "*/*")
        for clause in accepted:
            wanted = clause.parameters.get("as", "")
            if wanted == _AGGREGATED and clause.type == media.JSON:
                if clause.parameters.get("g") == "apidiscovery.k8s.io" and clause.parameters.get("v") == "v2":
                    return self._aggregated_response(
                        call, self._cached(f"aggregated {call.info.path}", aggregated)
                    )
            elif (
                not wanted
                and clause.type in ("*/*", media.JSON, media.YAML)
                and not _prefers_aggregated(accepted)
            ):
                chosen = media.JSON if clause.type == "*/*" else clause.type
                response = responses.document_response(
                    200, plain(), chosen, pretty=wants_pretty(call.request)
                )
                response.headers.append(("Vary", "Accept"))
                return response
        negotiate(call.request, transforms=False)
        raise errors.not_acceptable(media.OFFERED)

    @staticmethod
    def _aggregated_response(call: Call, document: JsonObject) -> Response:
        body = orjson.dumps(document)
        tag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
        headers = [("ETag", tag), ("Vary", "Accept"), ("Cache-Control", "public")]
        if call.request.headers.get("If-None-Match") == tag:
            return Response(304, b"", _AGGREGATED_TYPE, headers)
        return Response(200, body, _AGGREGATED_TYPE, headers)


def _prefers_aggregated(accepted: Sequence[media.Accepted]) -> bool:
    """Aggregated discovery wins over plain JSON of the same quality, in any order."""
    return any(
        clause.parameters.get("as") == _AGGREGATED
        and clause.parameters.get("g") == "apidiscovery.k8s.io"
        and clause.parameters.get("v") == "v2"
        for clause in accepted
    )


def _need_get(call: Call) -> None:
    if call.request.method not in ("GET", "HEAD"):
        raise errors.method_not_allowed()
