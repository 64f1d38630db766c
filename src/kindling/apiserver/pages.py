"""Everything outside resources and discovery: version, issuer documents, metrics, the index of paths."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from kubecore import errors

from .auth.service_accounts import TokenAuthority
from .discovery.health import Health
from .discovery.pages import Discovery, Page
from .discovery.version import version_document
from .http import media, responses
from .http.call import Call, check_route
from .http.responses import Response

_JWKS = "application/jwk-set+json"
_ISSUER_PATH = "/.well-known/openid-configuration"
_JWKS_PATH = "/openid/v1/jwks"


class Pages:
    """Finds the page at a path. Further pages are added by ``add``."""

    def __init__(
        self, health: Health, discovery: Discovery, authority: TokenAuthority, address: Callable[[], str]
    ) -> None:
        self._health = health
        self._discovery = discovery
        self._authority = authority
        self._address = address
        self._exact: dict[str, Page] = {
            "/": self._index,
            "/index.html": self._index,
            "/version": self._version,
            "/version/": self._version,
            _ISSUER_PATH: self._issuer,
            _JWKS_PATH: self._jwks,
        }
        self._finders: list[Callable[[str], Page | None]] = [health.page, discovery.page]

    def add(self, path: str, page: Page) -> None:
        """Serve one more path."""
        self._exact[path] = page

    def add_finder(self, finder: Callable[[str], Page | None]) -> None:
        """Add a source of pages."""
        self._finders.append(finder)

    def find(self, path: str) -> Page | None:
        """The page at a path, if there is one."""
        page = self._exact.get(path)
        if page is not None:
            return page
        for finder in self._finders:
            page = finder(path)
            if page is not None:
                return page
        return None

    async def _index(self, call: Call) -> Response:
        groups = self._discovery.groups()
        paths = ["/.well-known/openid-configuration", "/api", "/api/v1", "/apis", "/apis/"]
        for group, versions in groups.items():
            paths.append(f"/apis/{group}")
            paths += [f"/apis/{group}/{version}" for version in versions]
        paths += [
            "/healthz",
            "/livez",
            "/metrics",
            "/openapi/v2",
            "/openapi/v3",
            "/openid/v1/jwks",
            "/readyz",
            "/version",
        ]
        return responses.document_response(200, {"paths": sorted(paths)}, pretty=True)

    async def _version(self, call: Call) -> Response:
        if call.request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        check_route(media.parse_accept(call.request.headers.get("Accept") or "*/*"), (media.JSON,))
        return responses.document_response(200, version_document(), pretty=True)

    async def _issuer(self, call: Call) -> Response:
        document = {
            "issuer": self._authority.issuer,
            "jwks_uri": f"https://{self._address()}{_JWKS_PATH}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }
        return responses.document_response(200, document)

    async def _jwks(self, call: Call) -> Response:
        header = call.request.headers.get("Accept")
        check_route(media.parse_accept(header or "*/*"), (_JWKS,))
        return Response(200, orjson.dumps(self._authority.jwks()), _JWKS)
