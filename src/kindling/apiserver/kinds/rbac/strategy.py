"""Roles and their bindings. Whether somebody may grant what they say is the server's question."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, NAME, Table, age, plain, wide
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition, TableColumn
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import FieldError, FieldPath, invalid, not_supported, required
from kubecore.objects.names import is_dns1123_subdomain, is_path_segment_name
from kubecore.objects.selectors import validate_label_selector_object
from kubecore.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES

GROUP = "rbac.authorization.k8s.io"


class _RbacStrategy(BuiltinStrategy):
    """Names are free as far as URLs allow; PUT creates."""

    has_status = False
    tracks_generation = False
    allow_create_on_update = True

    def validate_name(self, name: str, *, prefix: bool) -> list[str]:
        """A path segment (colons are customary)."""
        return is_path_segment_name(name)


class RoleStrategy(_RbacStrategy):
    """Rules, in a namespace or (`cluster`) for the whole cluster."""

    def __init__(self, *, cluster: bool) -> None:
        self.cluster = cluster

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """Every rule names verbs and either resources or URLs."""
        found: list[FieldError] = []
        for position, rule in enumerate(obj.get("rules") or ()):
            found += validate_rule(rule, FieldPath("rules").index(position), namespaced=not self.cluster)
        aggregation = obj.get("aggregationRule")
        if isinstance(aggregation, dict):
            path = FieldPath("aggregationRule", "clusterRoleSelectors")
            selectors = get_list(aggregation, "clusterRoleSelectors")
            if not selectors:
                found.append(
                    required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
                )
            for position, selector in enumerate(selectors):
                found += validate_label_selector_object(selector, path.index(position))
        return found


def validate_rule(rule: JsonObject, path: FieldPath, *, namespaced: bool) -> list[FieldError]:
    """One policy rule."""
    found: list[FieldError] = []
    if not rule.get("verbs"):
        found.append(required(path.child("verbs"), "verbs must contain at least one value"))
    urls, groups, resources = rule.get("nonResourceURLs"), rule.get("apiGroups"), rule.get("resources")
    if urls:
        if namespaced:
            found.append(
                invalid(
                    path.child("nonResourceURLs"), urls, "namespaced rules cannot apply to non-resource URLs"
                )
            )
        if groups or resources or rule.get("resourceNames"):
            found.append(
                invalid(
                    path.child("nonResourceURLs"),
                    urls,
                    "rules cannot apply to both regular resources and non-resource URLs",
                )
            )
        return found
    if not groups:
        found.append(required(path.child("apiGroups"), "resource rules must supply at least one api group"))
    if not resources:
        found.append(required(path.child("resources"), "resource rules must supply at least one resource"))
    return found


class BindingStrategy(_RbacStrategy):
    """A role given to subjects; the role is fixed."""

    def __init__(self, *, cluster: bool) -> None:
        self.cluster = cluster

    def complete(self, obj: JsonObject) -> None:
        """API groups of the role and of users and groups."""
        role = obj["roleRef"]
        if not role.get("apiGroup"):
            role["apiGroup"] = GROUP
        for subject in obj.get("subjects") or ():
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", GROUP)

    def validate(self, ctx: RequestContext, obj: JsonObject) -> list[FieldError]:
        """The reference and each subject."""
        role = get_object(obj, "roleRef")
        path = FieldPath("roleRef")
        found: list[FieldError] = []
        if role.get("apiGroup") != GROUP:
            found.append(not_supported(path.child("apiGroup"), role.get("apiGroup"), [GROUP]))
        kinds = ["ClusterRole"] if self.cluster else ["Role", "ClusterRole"]
        if role.get("kind") not in kinds:
            found.append(not_supported(path.child("kind"), role.get("kind", ""), kinds))
        if not role.get("name"):
            found.append(required(path.child("name")))
        else:
            found += [
                invalid(path.child("name"), role["name"], text) for text in is_path_segment_name(role["name"])
            ]
        for position, subject in enumerate(obj.get("subjects") or ()):
            found += self._validate_subject(subject, FieldPath("subjects").index(position))
        return found

    def _validate_subject(self, subject: JsonObject, path: FieldPath) -> list[FieldError]:
        found: list[FieldError] = []
        name, group, kind = subject.get("name", ""), subject.get("apiGroup", ""), subject.get("kind", "")
        if not name:
            found.append(required(path.child("name")))
        if kind == "ServiceAccount":
            if name:
                found += [invalid(path.child("name"), name, text) for text in is_dns1123_subdomain(name)]
            if group:
                found.append(not_supported(path.child("apiGroup"), group, [""]))
            if self.cluster and not subject.get("namespace"):
                found.append(required(path.child("namespace")))
        elif kind in ("User", "Group"):
            if group != GROUP:
                found.append(not_supported(path.child("apiGroup"), group, [GROUP]))
        else:
            found.append(not_supported(path.child("kind"), kind, ["ServiceAccount", "User", "Group"]))
        return found

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """The role stays."""
        found = self.validate(ctx, new)
        if new["roleRef"] != old["roleRef"]:
            found.append(invalid("roleRef", _reference_dump(new["roleRef"]), "cannot change roleRef"))
        return found


def _reference_dump(reference: JsonObject) -> JsonObject:
    return {
        "APIGroup": reference.get("apiGroup", ""),
        "Kind": reference.get("kind", ""),
        "Name": reference.get("name", ""),
    }


def _role_cells(obj: JsonObject) -> list[Any]:
    return [get_str(obj, "metadata", "name"), get_str(obj, "metadata", "creationTimestamp")]


def _subjects(obj: JsonObject, kind: str) -> str:
    names = []
    for subject in obj.get("subjects") or ():
        if subject.get("kind") == kind:
            prefix = f"{subject.get('namespace', '')}/" if kind == "ServiceAccount" else ""
            names.append(f"{prefix}{subject.get('name', '')}")
    return ", ".join(names)


def _binding_cells(obj: JsonObject) -> list[Any]:
    role = get_object(obj, "roleRef")
    return [
        get_str(obj, "metadata", "name"),
        f"{role.get('kind', '')}/{role.get('name', '')}",
        age(obj),
        *(_subjects(obj, kind) for kind in ("User", "Group", "ServiceAccount")),
    ]


_ROLE_TABLE = Table((NAME, TableColumn("Created At", "date")), _role_cells)
_BINDING_TABLE = Table(
    (NAME, plain("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")), _binding_cells
)


def definitions() -> list[ResourceDefinition]:
    """Roles and bindings of both scopes."""
    return [
        builtin(ROLES, RoleStrategy(cluster=False), table=_ROLE_TABLE),
        builtin(ROLE_BINDINGS, BindingStrategy(cluster=False), table=_BINDING_TABLE),
        builtin(CLUSTER_ROLES, RoleStrategy(cluster=True), table=_ROLE_TABLE),
        builtin(CLUSTER_ROLE_BINDINGS, BindingStrategy(cluster=True), table=_BINDING_TABLE),
    ]
