"""Authorization: the node authorizer for nodes, then RBAC for everybody."""

from __future__ import annotations

from ..registry.admission import AuthorizationQuery
from ..registry.context import ObjectReader
from .node_authorizer import NodeAuthorizer
from .rbac import RbacAuthorizer


class Authorizer:
    """A union authorizer: allows what one of the two allows."""

    def __init__(self, rbac: RbacAuthorizer, objects: ObjectReader) -> None:
        self._rbac = rbac
        self._nodes = NodeAuthorizer(objects)

    def authorize(self, query: AuthorizationQuery) -> tuple[bool, str]:
        """(allowed, reason). The reasons of a refusal stand on a line each."""
        allowed, reason = self._nodes.authorize(query)
        if allowed:
            return True, ""
        allowed, more = self._rbac.authorize(query)
        return allowed, more if allowed else "\n".join(text for text in (reason, more) if text)
