"""Shorthand for roles, bindings and service accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubecore.json import JsonObject

READ = ("get", "list", "watch")
WRITE = ("get", "delete", "create", "update", "patch", "list", "watch")
ALL = (*WRITE, "deletecollection")

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
    """One rule on paths that are no objects, separated by spaces; for cluster roles only."""
    return {"nonResourceURLs": paths.split(), "verbs": list(verbs)}


def cluster_role(
    name: str, rules: Sequence[JsonObject], labels: Mapping[str, str] | None = None
) -> JsonObject:
    """A ClusterRole that the operator owns."""
    return _object("ClusterRole", name, labels) | {"rules": list(rules)}


def role(name: str, namespace: str, rules: Sequence[JsonObject]) -> JsonObject:
    """A Role that the operator owns."""
    document = _object("Role", name) | {"rules": list(rules)}
    document["metadata"]["namespace"] = namespace
    return document


def bind_cluster_role(
    name: str, subjects: Sequence[JsonObject], role_name: str = "", labels: Mapping[str, str] | None = None
) -> JsonObject:
    """A ClusterRoleBinding; it has the role's name unless that is given."""
    return _object("ClusterRoleBinding", name, labels) | {
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role_name or name},
        "subjects": list(subjects),
    }


def bind_role(name: str, namespace: str, subjects: Sequence[JsonObject], role_name: str = "") -> JsonObject:
    """A RoleBinding; it has the role's name unless that is given."""
    document = _object("RoleBinding", name) | {
        "roleRef": {"apiGroup": _GROUP, "kind": "Role", "name": role_name or name},
        "subjects": list(subjects),
    }
    document["metadata"]["namespace"] = namespace
    return document


def account_subject(name: str, namespace: str) -> JsonObject:
    """A service account as the subject of a binding."""
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def group_subject(name: str) -> JsonObject:
    """A group of users as the subject of a binding."""
    return {"apiGroup": _GROUP, "kind": "Group", "name": name}


def service_account(name: str, namespace: str) -> JsonObject:
    """A ServiceAccount that the operator owns."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubevirt.io": ""}},
    }


def _object(kind: str, name: str, labels: Mapping[str, str] | None = None) -> JsonObject:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {"kubevirt.io": "", **(labels or {})}},
    }
