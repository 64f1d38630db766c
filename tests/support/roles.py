"""Clients of the API server in memory that may do what a user's default roles allow, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
from multidict import MultiDict

from kindling.apiserver.auth import rbac
from kindling.apiserver.bootstrap import roles
from kindling.apiserver.http.request_info import parse
from kindling.apiserver.registry.admission import AuthorizationQuery
from kindling.apiserver.registry.context import UserInfo
from kubecore import errors
from kubecore.client import Client, ClientConfig, Request, Response
from kubecore.testing import MemoryApi
from kubecore.testing.transport import MemoryTransport


def default_rights() -> rbac.RbacAuthorizer:
    """The authorizer of a new cluster."""
    found = rbac.RbacAuthorizer()
    for bucket, documents in (
        (rbac.CLUSTER_ROLES, roles.cluster_roles()),
        (rbac.CLUSTER_ROLE_BINDINGS, roles.cluster_role_bindings()),
        (rbac.ROLES, roles.roles()),
        (rbac.ROLE_BINDINGS, roles.role_bindings()),
    ):
        for document in documents:
            found.changed(bucket, "ADDED", document)
    return found


class RestrictedApi:
    """Makes clients of `api` that act as a user. What was refused is noted in `refused`."""

    def __init__(self, api: MemoryApi, user: str) -> None:
        self._api = api
        self._user = UserInfo(user, groups=("system:authenticated",))
        self._rights = default_rights()
        self.refused: list[str] = []

    def client(self) -> Client:
        """A new client."""
        return Client(ClientConfig(server="memory://"), MemoryTransport(self._handle, self._watch))

    def _check(self, request: Request) -> None:
        info = parse(request.method, request.path, MultiDict(request.query))
        query = AuthorizationQuery(self._user, info.verb, path=info.path)
        if info.is_resource:
            query = AuthorizationQuery(
                self._user,
                info.verb,
                info.group,
                info.version,
                info.resource,
                info.subresource,
                info.namespace,
                info.name,
            )
        if not self._rights.authorize(query)[0]:
            self.refused.append(f"{info.verb} {request.path}")
            raise errors.forbidden("", "", self.refused[-1])

    def _handle(self, request: Request) -> Response:
        try:
            self._check(request)
        except errors.StatusError as error:
            return Response(error.code, error.headers, orjson.dumps(error.to_status()))
        return self._api.handle(request)

    def _watch(self, request: Request) -> AsyncIterator[bytes]:
        self._check(request)
        return self._api.watch(request)
