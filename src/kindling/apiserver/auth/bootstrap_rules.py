"""The rules of the role system:node, which the node authorizer applies without a binding."""

from __future__ import annotations

from ..bootstrap.roles import cluster_roles
from .rules import Rule, from_json


def _node_rules() -> tuple[Rule, ...]:
    role = next(role for role in cluster_roles() if role["metadata"]["name"] == "system:node")
    return from_json(role["rules"])


NODE_RULES = _node_rules()
