"""RBAC rules: matching requests, covering other rules, and printing them as Kubernetes does (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from kubecore.json import JsonObject
from kubecore.objects.fields import go_quote

from ..registry.admission import AuthorizationQuery

ALL = "*"


@dataclass(frozen=True, slots=True)
class Rule:
    """A PolicyRule."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """nonResourceURLs."""

    def allows(self, query: AuthorizationQuery) -> bool:
        """Whether the rule allows the request."""
        if not query.resource:
            return self._allows_path(query.verb, query.path)
        resource = f"{query.resource}/{query.subresource}" if query.subresource else query.resource
        return self._allows_resource(query.verb, query.group, resource, query.name)

    def _allows_path(self, verb: str, path: str) -> bool:
        return _listed(verb, self.verbs) and any(_path_matches(pattern, path) for pattern in self.paths)

    def _allows_resource(self, verb: str, group: str, resource: str, name: str) -> bool:
        """`resource` names its subresource, too."""
        if not (_listed(verb, self.verbs) and _listed(group, self.groups)):
            return False
        subresource = resource.partition("/")[2]
        if not _listed(resource, self.resources) and (
            not subresource or f"*/{subresource}" not in self.resources
        ):
            return False
        return not self.names or name in self.names

    def covers(self, atom: Rule) -> bool:
        """Whether the rule grants what `atom`, of one verb and one resource or path, grants."""
        verb = atom.verbs[0]
        if atom.paths:
            return self._allows_path(verb, atom.paths[0])
        name = atom.names[0] if atom.names else ""
        return self._allows_resource(verb, atom.groups[0], atom.resources[0], name)

    def to_json(self) -> JsonObject:
        """The wire form."""
        return _compact(
            {
                "verbs": list(self.verbs),
                "apiGroups": list(self.groups),
                "resources": list(self.resources),
                "resourceNames": list(self.names),
                "nonResourceURLs": list(self.paths),
            }
        )

    def show(self) -> str:
        """The rule as escalation messages list it."""
        parts = (
            ("APIGroups", self.groups),
            ("Resources", self.resources),
            ("NonResourceURLs", self.paths),
            ("ResourceNames", self.names),
            ("Verbs", self.verbs),
        )
        shown = [
            f"{label}:[{', '.join(go_quote(value) for value in values)}]" for label, values in parts if values
        ]
        return "{" + ", ".join(shown) + "}"


def _listed(value: str, allowed: Sequence[str]) -> bool:
    return ALL in allowed or value in allowed


def _compact(document: JsonObject) -> JsonObject:
    return {key: value for key, value in document.items() if value or key == "verbs"}


def _path_matches(pattern: str, path: str) -> bool:
    if pattern in (ALL, path):
        return True
    return pattern.endswith("*") and path.startswith(pattern.rstrip("*"))


def from_json(rules: Any) -> tuple[Rule, ...]:
    """The rules of a role document."""
    found: list[Rule] = []
    for rule in rules if isinstance(rules, list) else ():
        found.append(
            Rule(
                tuple(rule.get("verbs") or ()),
                tuple(rule.get("apiGroups") or ()),
                tuple(rule.get("resources") or ()),
                tuple(rule.get("resourceNames") or ()),
                tuple(rule.get("nonResourceURLs") or ()),
            )
        )
    return tuple(found)


def _atoms(rule: Rule) -> Iterable[Rule]:
    """The rule split into rules with a single verb, group, resource, name or path."""
    names: Sequence[tuple[str, ...]] = [(name,) for name in rule.names] or [()]
    for group, resource, name, verb in product(rule.groups, rule.resources, names, rule.verbs):
        yield Rule((verb,), (group,), (resource,), name)
    for path, verb in product(rule.paths, rule.verbs):
        yield Rule((verb,), paths=(path,))


def uncovered(held: Sequence[Rule], wanted: Sequence[Rule]) -> list[Rule]:
    """The rules of `wanted` that `held` does not cover, compacted (all verbs of a resource together), in
    order.
    """
    missing = [
        atom for rule in wanted for atom in _atoms(rule) if not any(owner.covers(atom) for owner in held)
    ]
    return compact(missing)


def compact(rules: Sequence[Rule]) -> list[Rule]:
    """Join the verbs of rules that are otherwise the same; sorted as Kubernetes lists them."""
    joined: dict[tuple[Any, ...], list[str]] = {}
    for rule in rules:
        key = (rule.groups, rule.resources, rule.paths, rule.names)
        verbs = joined.setdefault(key, [])
        verbs.extend(verb for verb in rule.verbs if verb not in verbs)
    merged = [
        Rule(tuple(verbs), groups, resources, names, paths)
        for (groups, resources, paths, names), verbs in joined.items()
    ]
    return sorted(merged, key=lambda rule: rule.show())
