"""Clients of the API server in memory that may do what a user's roles allow, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import orjson
from multidict import MultiDict

from kindling.apiserver.auth import rbac
from kindling.apiserver.bootstrap import roles
from kindling.apiserver.http.request_info import parse
from kindling.apiserver.registry.admission import AuthorizationQuery
from kindling.apiserver.registry.context import UserInfo
from kubecore import errors
from kubecore.client import Client, ClientConfig, Request, Response
from kubecore.json import JsonObject
from kubecore.testing import MemoryApi
from kubecore.testing.transport import MemoryTransport

_BUCKETS = {
    "ClusterRole": rbac.CLUSTER_ROLES,
    "ClusterRoleBinding": rbac.CLUSTER_ROLE_BINDINGS,
    "Role": rbac.ROLES,
    "RoleBinding": rbac.ROLE_BINDINGS,
}


def rights(installed: Iterable[JsonObject] = ()) -> rbac.RbacAuthorizer:
    """The authorizer of a new cluster with more roles and bindings, which may be among other objects."""
    found = rbac.RbacAuthorizer()
    for document in installed:
        if document["kind"] in _BUCKETS:
            found.changed(_BUCKETS[document["kind"]], "ADDED", document)
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
    """`api` as a user has it, with the rights of a new cluster or others. Refusals are in `refused`."""

    def __init__(self, api: MemoryApi, user: str, authorizer: rbac.RbacAuthorizer | None = None) -> None:
        self._api = api
        self._user = UserInfo(user, groups=("system:authenticated",))
        self._rights = authorizer or rights()
        self.refused: list[str] = []

    def client(self) -> Client:
        """A new client."""
        return Client(ClientConfig(server="memory://"), MemoryTransport(self.handle, self.watch))

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

    def handle(self, request: Request) -> Response:
        """See kubecore.testing.MemoryApi."""
        try:
            self._check(request)
        except errors.StatusError as error:
            return Response(error.code, error.headers, orjson.dumps(error.to_status()))
        return self._api.handle(request)

    def watch(self, request: Request) -> AsyncIterator[bytes]:
        """See kubecore.testing.MemoryApi."""
        self._check(request)
        return self._api.watch(request)
