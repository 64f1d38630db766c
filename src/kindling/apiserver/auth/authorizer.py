"""Authorization: the node authorizer for nodes, RBAC for everybody."""

from __future__ import annotations

from kubecore.resources import NODES

from ..registry.admission import AuthorizationQuery
from ..registry.context import ObjectReader
from .bootstrap_rules import NODE_RULES
from .rbac import RbacAuthorizer

_NODES_GROUP = "system:nodes"
_NODE_USER = "system:node:"


class Authorizer:
    """First the thin node authorizer, then RBAC."""

    def __init__(self, rbac: RbacAuthorizer, objects: ObjectReader) -> None:
        self._rbac = rbac
        self._objects = objects

    def authorize(self, query: AuthorizationQuery) -> tuple[bool, str]:
        """(allowed, reason)."""
        is_node = query.user.name.startswith(_NODE_USER) and _NODES_GROUP in query.user.groups
        if is_node and self._node_may(query):
            return True, ""
        return self._rbac.authorize(query)

    def _node_may(self, query: AuthorizationQuery) -> bool:
        """What the role system:node grants; of leases and CSINodes only the node's own."""
        if not any(rule.allows(query) for rule in NODE_RULES):
            return False
        name = query.user.name.removeprefix(_NODE_USER)
        own_only = (query.group, query.resource) in (
            ("storage.k8s.io", "csinodes"),
            ("coordination.k8s.io", "leases"),
        ) or (query.resource == NODES.plural and query.verb in ("update", "patch", "delete"))
        return not own_only or query.verb in ("list", "watch", "create") or query.name == name
