"""Authentication: client certificates, bearer tokens, front-proxy headers, and the anonymous user."""

from __future__ import annotations

import csv
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from kubecore import errors

from ..http.connection import Connection
from ..registry.context import UserInfo

ANONYMOUS = UserInfo("system:anonymous", groups=("system:unauthenticated",))
AUTHENTICATED = "system:authenticated"
_REMOTE_EXTRA = "x-remote-extra-"


def with_authenticated(user: UserInfo) -> UserInfo:
    """The user with the group system:authenticated, unless it is anonymous."""
    if AUTHENTICATED in user.groups or user.name == ANONYMOUS.name:
        return user
    return UserInfo(user.name, user.uid, (*user.groups, AUTHENTICATED), user.extra)


def load_token_file(path: Path) -> dict[str, UserInfo]:
    """Static tokens: lines of ``token,user,uid,"group1,group2"``."""
    users: dict[str, UserInfo] = {}
    with path.open(newline="") as file:
        for row in csv.reader(file):
            if not row or row[0].startswith("#"):
                continue
            token, name, uid, *rest = (cell.strip() for cell in row)
            groups = tuple(group.strip() for group in rest[0].split(",") if group.strip()) if rest else ()
            users[token] = UserInfo(name, uid, groups)
    return users


TokenCheck = Callable[[str], Awaitable[UserInfo | None]]
"""A bearer token's user; None when the token is not of this kind. Raises StatusError (401) when invalid."""


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """The certificates that may name another user in X-Remote-* headers."""

    issuer_names: frozenset[str] = frozenset()
    """Common names of the CA that signs front-proxy clients."""
    allowed_names: frozenset[str] = frozenset({"front-proxy-client"})


@dataclass(slots=True)
class Authenticator:
    """Authenticates requests."""

    static_tokens: Mapping[str, UserInfo] = field(default_factory=dict)
    token_checks: list[TokenCheck] = field(default_factory=list)
    front_proxy: FrontProxy = field(default_factory=FrontProxy)
    anonymous: bool = True

    async def authenticate(self, request: web.BaseRequest) -> UserInfo:
        """The user. Raises StatusError (401) for credentials that are not valid."""
        certificate = _certificate_user(request)
        if certificate is not None:
            user, issuer = certificate
            if issuer in self.front_proxy.issuer_names:
                remote = _remote_user(request) if user.name in self.front_proxy.allowed_names else None
                if remote is not None:
                    return with_authenticated(remote)
            else:
                return with_authenticated(user)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() == "bearer" and token:
            return with_authenticated(await self.token_user(token))
        if not self.anonymous:
            raise errors.unauthorized()
        return ANONYMOUS

    async def token_user(self, token: str) -> UserInfo:
        """The user of a bearer token. Raises StatusError (401)."""
        user = self.static_tokens.get(token)
        if user is not None:
            return user
        for check in self.token_checks:
            user = await check(token)
            if user is not None:
                return user
        raise errors.unauthorized()


def _certificate_user(request: web.BaseRequest) -> tuple[UserInfo, str] | None:
    """(user, issuer's common name) of the verified client certificate, found once per connection."""
    connection = request.protocol
    if not isinstance(connection, Connection):
        return None
    if connection.certificate is None:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        connection.certificate = _user_of_certificate(certificate) if certificate else False
    return connection.certificate or None


def _user_of_certificate(certificate: Mapping[str, Any]) -> tuple[UserInfo, str]:
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    issuer = [pair for part in certificate.get("issuer", ()) for pair in part]
    name = next((value for key, value in subject if key == "commonName"), "")
    groups = tuple(value for key, value in subject if key == "organizationName")
    return UserInfo(name, groups=groups), next((value for key, value in issuer if key == "commonName"), "")


def _remote_user(request: web.BaseRequest) -> UserInfo | None:
    name = request.headers.get("X-Remote-User", "")
    if not name:
        return None
    extra: dict[str, tuple[str, ...]] = {}
    for key, value in request.headers.items():
        if key.lower().startswith(_REMOTE_EXTRA):
            header = unquote(key[len(_REMOTE_EXTRA) :]).lower()
            extra[header] = (*extra.get(header, ()), value)
    groups = tuple(request.headers.getall("X-Remote-Group", []))
    return UserInfo(name, request.headers.get("X-Remote-Uid", ""), groups, extra)
