"""``rbac.authorization.k8s.io``: roles and their bindings. Escalation is checked in ``auth.escalation``."""

from __future__ import annotations

from collections.abc import Iterable

from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin, path_segment
from kindling.apiserver.kinds.machinery.checks import one_of
from kindling.apiserver.kinds.machinery.internal import internal_form
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_str
from kubecore.objects.fields import FieldError, FieldPath, invalid, not_supported
from kubecore.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES

GROUP = "rbac.authorization.k8s.io"
_INTERNAL_REFERENCE = {"APIGroup": "", "Kind": "", "Name": ""}
_NO_SELECTORS = "at least one clusterRoleSelector required if aggregationRule is non-nil"
_BOTH = "rules cannot apply to both regular resources and non-resource URLs"


def _selects(path: FieldPath, value: JsonObject) -> list[FieldError]:
    problems = list(f.selector(path, value))
    return [*problems, invalid(path, None, "invalid label selector.")] if problems else []


def _resources_or_urls(path: FieldPath, rule: JsonObject) -> Iterable[FieldError]:
    urls = rule.get("nonResourceURLs")
    if not urls:
        return f.check_fields(rule, path, *_RESOURCES)
    mixed = any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames"))
    return [invalid(path.child("nonResourceURLs"), urls, _BOTH)] if mixed else []


def _no_urls(path: FieldPath, urls: list[str]) -> list[FieldError]:
    return [invalid(path, urls, "namespaced rules cannot apply to non-resource URLs")]


_RESOURCES = (
    f.must("apiGroups", detail="resource rules must supply at least one api group"),
    f.must("resources", detail="resource rules must supply at least one resource"),
)
_VERBS = f.must("verbs", detail="verbs must contain at least one value")
_AGGREGATION = f.given(
    "aggregationRule", f.must("clusterRoleSelectors", f.items(_selects), detail=_NO_SELECTORS)
)
CLUSTER_ROLE = f.document(f.may("rules", f.items(_VERBS, _resources_or_urls)), _AGGREGATION)
ROLE = f.document(f.may("rules", f.items(_VERBS, f.may("nonResourceURLs", _no_urls), _resources_or_urls)))
"""Every rule names verbs and either resources or URLs."""


def _subject(path: FieldPath, subject: JsonObject) -> Iterable[FieldError]:
    kind = subject.get("kind", "")
    if kind == "ServiceAccount":
        return f.check_fields(subject, path, f.may("name", f.SUBDOMAIN), f.may("apiGroup", f.choice("")))
    if kind in ("User", "Group"):
        return f.check_fields(subject, path, f.always("apiGroup", "", f.choice(GROUP)))
    return [not_supported(path.child("kind"), kind, ["ServiceAccount", "User", "Group"])]


def _group(path: FieldPath, role: JsonObject) -> list[FieldError]:
    return one_of(path.child("apiGroup"), role.get("apiGroup"), [GROUP])


def _binding(*kinds: str) -> f.Field:
    return f.part("roleRef", _group, f.always("kind", "", f.choice(*kinds)), f.must("name", f.PATH_SEGMENT))


_OF_ACCOUNT = f.when(f.equals("kind", "ServiceAccount"), f.must("namespace"))
CLUSTER_ROLE_BINDING = f.document(
    _binding("ClusterRole"), f.may("subjects", f.items(f.must("name"), _subject, _OF_ACCOUNT))
)
ROLE_BINDING = f.document(
    _binding("Role", "ClusterRole"), f.may("subjects", f.items(f.must("name"), _subject))
)
"""The reference and each subject."""


def validate_role_kept(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """The role reference is immutable."""
    if new["roleRef"] == old["roleRef"]:
        return []
    return [invalid("roleRef", internal_form(new["roleRef"], _INTERNAL_REFERENCE), "cannot change roleRef")]


class _RbacStrategy(BuiltinStrategy):
    """Names may be any path segment, and a PUT creates the object."""

    metadata_checks = (1, 1)
    has_status = False
    tracks_generation = False
    allow_create_on_update = True
    validate_name = path_segment


class RoleStrategy(_RbacStrategy):
    """Rules, in a namespace or (`cluster`) for the whole cluster."""

    def __init__(self, *, cluster: bool) -> None:
        self.rules = Rules(CLUSTER_ROLE if cluster else ROLE)


class BindingStrategy(_RbacStrategy):
    """A role given to subjects; the role is fixed."""

    def __init__(self, *, cluster: bool) -> None:
        check = CLUSTER_ROLE_BINDING if cluster else ROLE_BINDING
        self.rules = Rules(check, update=lambda new, old: [*check(new), *validate_role_kept(new, old)])

    def complete(self, obj: JsonObject) -> None:
        """Set the default API group of the role and of users and groups."""
        role = obj["roleRef"]
        if not role.get("apiGroup"):
            role["apiGroup"] = GROUP
        for subject in obj.get("subjects") or ():
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", GROUP)


def _role(obj: JsonObject) -> str:
    return f"{get_str(obj, 'roleRef', 'kind')}/{get_str(obj, 'roleRef', 'name')}"


def _subjects(obj: JsonObject, kind: str) -> str:
    names = []
    for subject in obj.get("subjects") or ():
        if subject.get("kind") == kind:
            prefix = f"{subject.get('namespace', '')}/" if kind == "ServiceAccount" else ""
            names.append(f"{prefix}{subject.get('name', '')}")
    return ", ".join(names)


_ROLE_TABLE = p.Table(p.NAME, p.CREATED_AT)
_BINDING_TABLE = p.Table(
    p.NAME,
    p.plain("Role", _role),
    p.AGE,
    p.wide("Users", lambda obj: _subjects(obj, "User")),
    p.wide("Groups", lambda obj: _subjects(obj, "Group")),
    p.wide("ServiceAccounts", lambda obj: _subjects(obj, "ServiceAccount")),
)


def definitions() -> list[ResourceDefinition]:
    """Roles and bindings of both scopes."""
    return [
        builtin(ROLES, RoleStrategy(cluster=False), table=_ROLE_TABLE),
        builtin(ROLE_BINDINGS, BindingStrategy(cluster=False), table=_BINDING_TABLE),
        builtin(CLUSTER_ROLES, RoleStrategy(cluster=True), table=_ROLE_TABLE),
        builtin(CLUSTER_ROLE_BINDINGS, BindingStrategy(cluster=True), table=_BINDING_TABLE),
    ]
