"""Impersonation by ``Impersonate-*`` headers, with authorization of each header."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from aiohttp import web

from kubecore import errors
from kubecore.objects.fields import go_quote

from ..http.request_info import RequestInfo
from ..http.server import forbidden
from ..registry.admission import AuthorizationQuery, Authorize
from ..registry.context import UserInfo
from .authentication import ANONYMOUS, with_authenticated

_EXTRA = "impersonate-extra-"
_ACCOUNT = "system:serviceaccount:"
_UNAUTHENTICATED = "system:unauthenticated"
_AUTHENTICATION = "authentication.k8s.io"


class Impersonator:
    """Resolves the impersonated user, if that is authorized. There are two ways: the verb ``impersonate``
    for each header, and constrained impersonation, limited to certain verbs (``impersonate-on:MODE:VERB``).
    The error message is that of the way that last succeeded for the user.
    """

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize
        self._plain_users: set[str] = set()
        """Users who got through by the plain verb."""

    def impersonate(self, request: web.BaseRequest, user: UserInfo, info: RequestInfo) -> UserInfo:
        """The effective user. Raises StatusError (400, 403)."""
        if not any(key[:12].lower() == b"impersonate-" for key, _ in request.raw_headers):
            return user
        headers = request.headers
        name = headers.get("Impersonate-User", "")
        groups = tuple(headers.getall("Impersonate-Group", []))
        uid = headers.get("Impersonate-Uid", "")
        extra: dict[str, tuple[str, ...]] = {}
        for key, value in headers.items():
            if key.lower().startswith(_EXTRA):
                part = unquote(key[len(_EXTRA) :]).lower()
                extra[part] = (*extra.get(part, ()), value)
        if not (name or groups or uid or extra):
            return user
        if not name:
            raise errors.bad_request(
                f"requested {_go_user(uid, groups, extra)} without impersonating a user name"
            )
        wanted = UserInfo(name, uid, groups, extra)
        refused = self._refusal(user, wanted)
        if refused is None:
            self._plain_users.add(user.name)
        else:
            constrained = self._constrained_refusal(user, wanted, info)
            if constrained is not None:
                raise refused if user.name in self._plain_users else constrained
        return _complete(wanted)

    def _refusal(self, user: UserInfo, wanted: UserInfo) -> errors.StatusError | None:
        for query in _queries(user, wanted, "impersonate"):
            allowed, reason = self._authorize(query)
            if not allowed:
                return forbidden(query, reason)
        return None

    def _constrained_refusal(
        self, user: UserInfo, wanted: UserInfo, info: RequestInfo
    ) -> errors.StatusError | None:
        mode = "user-info"
        if wanted.name.startswith(_ACCOUNT):
            mode = "serviceaccount"
        elif wanted.name.startswith("system:node:"):
            mode = "arbitrary-node"
        verb = f"impersonate-on:{mode}:{info.verb}"
        for query in (info.authorization(user, verb), *_queries(user, wanted, f"impersonate:{mode}")):
            allowed, reason = self._authorize(query)
            if not allowed:
                return forbidden(query, reason)
        return None


def _queries(user: UserInfo, wanted: UserInfo, verb: str) -> list[AuthorizationQuery]:
    queries: list[AuthorizationQuery] = []
    if wanted.name.startswith(_ACCOUNT) and wanted.name.count(":") == 3:
        namespace, _, name = wanted.name.removeprefix(_ACCOUNT).partition(":")
        queries.append(
            AuthorizationQuery(user, verb, "", "v1", "serviceaccounts", namespace=namespace, name=name)
        )
    else:
        queries.append(AuthorizationQuery(user, verb, "", "v1", "users", name=wanted.name))
    queries += [AuthorizationQuery(user, verb, "", "v1", "groups", name=group) for group in wanted.groups]
    for key, values in wanted.extra.items():
        queries += [
            AuthorizationQuery(user, verb, _AUTHENTICATION, "v1", "userextras", key, name=value)
            for value in values
        ]
    if wanted.uid:
        queries.append(AuthorizationQuery(user, verb, _AUTHENTICATION, "v1", "uids", name=wanted.uid))
    return queries


def _complete(wanted: UserInfo) -> UserInfo:
    """The user with the groups that authentication would add for its name."""
    groups = wanted.groups
    if wanted.name.startswith(_ACCOUNT) and wanted.name.count(":") == 3 and not groups:
        namespace = wanted.name.removeprefix(_ACCOUNT).partition(":")[0]
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    if wanted.name == ANONYMOUS.name:
        if _UNAUTHENTICATED not in groups:
            groups = (*groups, _UNAUTHENTICATED)
        return UserInfo(wanted.name, wanted.uid, groups, wanted.extra)
    return with_authenticated(UserInfo(wanted.name, wanted.uid, groups, wanted.extra))


def _go_user(uid: str, groups: tuple[str, ...], extra: Mapping[str, tuple[str, ...]]) -> str:
    def strings(values: tuple[str, ...]) -> str:
        return "[]string{" + ", ".join(go_quote(value) for value in values) + "}"

    shown_groups = strings(groups) if groups else "[]string(nil)"
    shown_extra = "map[string][]string(nil)"
    if extra:
        pairs = ", ".join(f"{go_quote(key)}:{strings(values)}" for key, values in sorted(extra.items()))
        shown_extra = "map[string][]string{" + pairs + "}"
    return f'&user.DefaultInfo{{Name:"", UID:{go_quote(uid)}, Groups:{shown_groups}, Extra:{shown_extra}}}'
