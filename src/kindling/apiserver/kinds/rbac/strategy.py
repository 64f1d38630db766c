"""Roles and their bindings. Privilege escalation is checked in ``auth.escalation``."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.printing import AGE, CREATED_AT, NAME, Table, plain, wide
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_str
from kubecore.objects.names import is_path_segment_name
from kubecore.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES

from .validation import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, GROUP, ROLE, ROLE_BINDING, validate_role_kept


class _RbacStrategy(BuiltinStrategy):
    """Names may be any path segment, and a PUT creates the object."""

    has_status = False
    tracks_generation = False
    allow_create_on_update = True

    def validate_name(self, name: str, *, prefix: bool) -> list[str]:
        """A path segment (colons are customary)."""
        return is_path_segment_name(name)


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


_ROLE_TABLE = Table(NAME, CREATED_AT)
_BINDING_TABLE = Table(
    NAME,
    plain("Role", _role),
    AGE,
    wide("Users", lambda obj: _subjects(obj, "User")),
    wide("Groups", lambda obj: _subjects(obj, "Group")),
    wide("ServiceAccounts", lambda obj: _subjects(obj, "ServiceAccount")),
)


def definitions() -> list[ResourceDefinition]:
    """Roles and bindings of both scopes."""
    return [
        builtin(ROLES, RoleStrategy(cluster=False), table=_ROLE_TABLE),
        builtin(ROLE_BINDINGS, BindingStrategy(cluster=False), table=_BINDING_TABLE),
        builtin(CLUSTER_ROLES, RoleStrategy(cluster=True), table=_ROLE_TABLE),
        builtin(CLUSTER_ROLE_BINDINGS, BindingStrategy(cluster=True), table=_BINDING_TABLE),
    ]
