"""Who may clone what: the API server is asked about the user who wants the clone."""

from __future__ import annotations

from enum import StrEnum

from kubecore.json import JsonObject
from virtplane.api import resources
from virtplane.serving.frontproxy import User
from virtplane.serving.rights import Authorizer


class SourceKind(StrEnum):
    """Kinds of sources of clones."""

    CLAIM = "pvc"
    SNAPSHOT = "snapshot"


def service_account(namespace: str, name: str) -> User:
    """A service account as a user, with the groups that it has."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


async def clone_refusal(
    authorizer: Authorizer, user: User, kind: SourceKind, namespace: str, name: str
) -> str:
    """Why `user` may not clone a source in `namespace` to another namespace; empty if he may.

    Allowed is who may create ``datavolumes/source`` there, or else what a clone comes down to: pods that
    read the claim, and for snapshots claims besides. Raises StatusError.
    """
    source: JsonObject = {
        "group": resources.DATA_VOLUMES.group,
        "resource": resources.DATA_VOLUMES.plural,
        "subresource": "source",
        "name": name,
    }
    if not await authorizer.refusal(user, _in(namespace, source)):
        return ""
    # CDI asks about "pvcs", which is no resource of Kubernetes: only wildcards match.
    needed = ("pods",) if kind is SourceKind.CLAIM else ("pods", "pvcs")
    for resource in needed:
        if await authorizer.refusal(user, _in(namespace, {"group": "", "resource": resource})):
            return f"User {user.name} has insufficient permissions in clone source namespace {namespace}"
    return ""


def _in(namespace: str, attributes: JsonObject) -> JsonObject:
    return {"namespace": namespace, "verb": "create", **attributes}
