"""Service accounts, roles and bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubecore.json import JsonObject
from virtplane.operators.kit.product import Product

READ = ("get", "list", "watch")
WRITE = ("get", "delete", "create", "update", "patch", "list", "watch")
ALL = (*WRITE, "deletecollection")

AGGREGATE_TO = "rbac.authorization.k8s.io/aggregate-to-"
"""With the name of one of Kubernetes' user roles: a label of cluster roles that become part of it."""
_GROUP = "rbac.authorization.k8s.io"


def rule(groups: str, resources: str, verbs: Sequence[str], names: Sequence[str] = ()) -> JsonObject:
    """One rule. Groups and resources are separated by spaces; ``core`` stands for the core group."""
    document: JsonObject = {
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": resources.split(),
        "verbs": list(verbs),
    }
    if names:
        document["resourceNames"] = list(names)
    return document


def path_rule(paths: str, verbs: Sequence[str]) -> JsonObject:
    """One rule on non-resource paths, separated by spaces; for ClusterRoles only."""
    return {"nonResourceURLs": paths.split(), "verbs": list(verbs)}


def account_subject(name: str, namespace: str) -> JsonObject:
    """A service account as the subject of a binding."""
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def group_subject(name: str) -> JsonObject:
    """A group of users as the subject of a binding."""
    return {"apiGroup": _GROUP, "kind": "Group", "name": name}


@dataclass(frozen=True, slots=True)
class Access:
    """Creates the accounts, roles and bindings of one product."""

    product: Product

    def cluster_role(
        self, name: str, rules: Sequence[JsonObject], labels: Mapping[str, str] | None = None
    ) -> JsonObject:
        """A ClusterRole that the operator owns."""
        return self._object("ClusterRole", name, labels) | {"rules": list(rules)}

    def role(self, name: str, namespace: str, rules: Sequence[JsonObject]) -> JsonObject:
        """A Role that the operator owns."""
        document = self._object("Role", name) | {"rules": list(rules)}
        document["metadata"]["namespace"] = namespace
        return document

    def bind_cluster_role(
        self,
        name: str,
        subjects: Sequence[JsonObject],
        role_name: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """A ClusterRoleBinding; it has the role's name unless that is given."""
        return self._object("ClusterRoleBinding", name, labels) | {
            "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role_name or name},
            "subjects": list(subjects),
        }

    def bind_role(
        self, name: str, namespace: str, subjects: Sequence[JsonObject], role_name: str = ""
    ) -> JsonObject:
        """A RoleBinding; it has the role's name unless that is given."""
        document = self._object("RoleBinding", name) | {
            "roleRef": {"apiGroup": _GROUP, "kind": "Role", "name": role_name or name},
            "subjects": list(subjects),
        }
        document["metadata"]["namespace"] = namespace
        return document

    def service_account(self, name: str, namespace: str) -> JsonObject:
        """A ServiceAccount that the operator owns."""
        return {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace, "labels": self.product.labels()},
        }

    def component(
        self, name: str, namespace: str, cluster_rules: Sequence[JsonObject], rules: Sequence[JsonObject]
    ) -> list[JsonObject]:
        """A component's account, and its rights in the cluster and in its namespace."""
        subjects = [account_subject(name, namespace)]
        return [
            self.service_account(name, namespace),
            self.cluster_role(name, cluster_rules),
            self.bind_cluster_role(name, subjects),
            self.role(name, namespace, rules),
            self.bind_role(name, namespace, subjects),
        ]

    def _object(self, kind: str, name: str, labels: Mapping[str, str] | None = None) -> JsonObject:
        return {
            "apiVersion": f"{_GROUP}/v1",
            "kind": kind,
            "metadata": {"name": name, "labels": {**self.product.labels(), **(labels or {})}},
        }
