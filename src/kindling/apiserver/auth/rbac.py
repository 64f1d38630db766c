"""The RBAC authorizer: roles and bindings indexed by subject, kept up to date from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from kubecore.json import JsonObject
from kubecore.objects import meta

from ..registry.admission import AuthorizationQuery
from ..registry.context import UserInfo
from .rules import Rule, from_json

GROUP = "rbac.authorization.k8s.io"
ROLES = f"{GROUP}/roles"
CLUSTER_ROLES = f"{GROUP}/clusterroles"
ROLE_BINDINGS = f"{GROUP}/rolebindings"
CLUSTER_ROLE_BINDINGS = f"{GROUP}/clusterrolebindings"
MASTERS = "system:masters"
_MAX_REMEMBERED = 20_000
_MAX_REMEMBERED_CHARACTERS = 2048
"""Of one question. Everybody may ask about his own rights, with words as long as a request."""

_MAX_BINDINGS, _MAX_WEIGHT = 1000, 200_000
"""Of one subject in one namespace: bindings, and words of their rules, that count. A namespace's owner may
have as many as he likes of both, while each question about it is answered before everybody else's.
"""

Changed = Callable[[str, JsonObject], None]
Subject = tuple[str, str]
"""("User" or "Group", name); a service account is the user that stands for it."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A role binding; `namespace` is empty for a cluster role binding."""

    namespace: str
    name: str
    role_kind: str
    role_name: str
    subjects: tuple[Subject, ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """A rule granted to a user, and the binding and role that grant it."""

    rule: Rule
    binding: Binding
    subject: Subject


def parse_binding(obj: JsonObject) -> Binding:
    """The binding of a RoleBinding or ClusterRoleBinding document."""
    subjects: list[Subject] = []
    for subject in obj.get("subjects") or ():
        kind, name = str(subject.get("kind") or ""), str(subject.get("name") or "")
        if kind == "ServiceAccount":
            namespace = subject.get("namespace") or meta.namespace(obj)
            subjects.append(("User", f"system:serviceaccount:{namespace}:{name}"))
        else:
            subjects.append((kind, name))
    reference = obj.get("roleRef") or {}
    return Binding(
        meta.namespace(obj),
        meta.name(obj),
        str(reference.get("kind") or ""),
        str(reference.get("name") or ""),
        tuple(subjects),
    )


class RbacAuthorizer:
    """Decides by roles and bindings; feed it with ``changed``."""

    def __init__(self) -> None:
        self._roles: dict[tuple[str, str], tuple[Rule, ...]] = {}
        """By (namespace, name); cluster roles have no namespace."""
        self._bindings: dict[tuple[str, str], Binding] = {}
        self._by_subject: dict[str, dict[Subject, dict[str, Binding]]] = {}
        """namespace -> subject -> binding's name -> binding."""
        self._remembered: dict[tuple[str, ...], tuple[bool, str]] = {}

    def changed(self, bucket: str, event: str, obj: JsonObject) -> None:
        """A role or binding was added, changed or deleted."""
        self._remembered.clear()
        key = (meta.namespace(obj), meta.name(obj))
        if bucket in (ROLES, CLUSTER_ROLES):
            if event == "DELETED":
                self._roles.pop(key, None)
            else:
                self._roles[key] = from_json(obj.get("rules"))
            return
        old = self._bindings.pop(key, None)
        if old is not None:
            self._forget(old)
        if event != "DELETED":
            binding = self._bindings[key] = parse_binding(obj)
            here = self._by_subject.setdefault(binding.namespace, {})
            for subject in binding.subjects:
                here.setdefault(subject, {})[binding.name] = binding

    def _forget(self, old: Binding) -> None:
        here = self._by_subject.get(old.namespace, {})
        for subject in set(old.subjects):
            here[subject].pop(old.name, None)
            if not here[subject]:
                del here[subject]
        if not here:
            self._by_subject.pop(old.namespace, None)

    def _held(self, user: UserInfo, scope: str) -> list[tuple[str, Subject, Binding]]:
        """The bindings of a user in a namespace, or (empty) those of the cluster, by name."""
        here, most = self._by_subject.get(scope, {}), _MAX_BINDINGS if scope else None
        found = [
            (name, subject, binding)
            for subject in (("User", user.name), *(("Group", group) for group in user.groups))
            for name, binding in islice(here.get(subject, {}).items(), most)
        ]
        return sorted(found, key=lambda entry: entry[0])

    def rules_of(self, kind: str, namespace: str, name: str) -> tuple[Rule, ...] | None:
        """The rules of a Role or ClusterRole; None if there is no such role."""
        return self._roles.get((namespace if kind == "Role" else "", name))

    def grants(self, user: UserInfo, namespace: str) -> Iterator[Grant]:
        """All rules granted to the user in a namespace, including cluster-wide ones."""
        for scope in ("", namespace) if namespace else ("",):
            left = _MAX_WEIGHT
            for _, subject, binding in self._held(user, scope):
                for rule in self.rules_of(binding.role_kind, binding.namespace, binding.role_name) or ():
                    left -= rule.weight if scope else 0
                    if left < 0:
                        return
                    yield Grant(rule, binding, subject)

    def authorize(self, query: AuthorizationQuery) -> tuple[bool, str]:
        """(allowed, reason)."""
        user = query.user
        if MASTERS in user.groups:
            return True, ""
        key = (
            user.name,
            *user.groups,
            "\0",
            query.verb,
            query.group,
            query.resource,
            query.subresource,
            query.namespace,
            query.name,
            query.path,
        )
        found = self._remembered.get(key)
        if found is None:
            found = self._decide(query)
            if sum(map(len, key)) <= _MAX_REMEMBERED_CHARACTERS:
                if len(self._remembered) >= _MAX_REMEMBERED:
                    self._remembered.clear()
                self._remembered[key] = found
        return found

    def _decide(self, query: AuthorizationQuery) -> tuple[bool, str]:
        for grant in self.grants(query.user, query.namespace):
            if grant.rule.allows(query):
                return True, _reason(grant)
        missing = self._missing_roles(query)
        return False, f"RBAC: {missing}" if missing else ""

    def _missing_roles(self, query: AuthorizationQuery) -> str:
        """Bindings of the user whose role does not exist."""
        found: dict[str, None] = {}
        for scope in ("", query.namespace) if query.namespace else ("",):
            for _, _, binding in self._held(query.user, scope):
                if self.rules_of(binding.role_kind, binding.namespace, binding.role_name) is None:
                    plural = "role" if binding.role_kind == "Role" else "clusterrole"
                    found[f'{plural}.{GROUP} "{binding.role_name}" not found'] = None
        return next(iter(found)) if len(found) == 1 else f"[{', '.join(found)}]" if found else ""


def _reason(grant: Grant) -> str:
    binding = grant.binding
    kind = "RoleBinding" if binding.namespace else "ClusterRoleBinding"
    where = f"{binding.name}/{binding.namespace}" if binding.namespace else binding.name
    subject_kind, name = grant.subject
    subject = f'{subject_kind} "{name}"'
    if name.startswith("system:serviceaccount:") and subject_kind == "User":
        namespace, _, account = name.removeprefix("system:serviceaccount:").partition(":")
        subject = f'ServiceAccount "{account}/{namespace}"'
    return f'RBAC: allowed by {kind} "{where}" of {binding.role_kind} "{binding.role_name}" to {subject}'
