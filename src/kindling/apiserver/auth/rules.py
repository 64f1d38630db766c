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
MOST_COMPARED = 3_000_000
"""Words that are looked at when rules are compared. Everybody waits meanwhile, and a rule of 16 KiB may stand
for a million million permissions.
"""


_SPLITTING = 100
"""What a single permission costs beside the words that it is compared with."""


class TooManyCombinations(ValueError):
    """Rules stand for more single permissions than can be compared."""


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

    @property
    def weight(self) -> int:
        """How many words the rule has, and one: what it costs to look at it."""
        parts = (self.verbs, self.groups, self.resources, self.names, self.paths)
        return 1 + sum(map(len, parts))

    def includes(self, other: Rule) -> bool:
        """Whether the rule grants all of `other`, part by part; several rules may do so together as well."""
        if not _all_listed(other.verbs, self.verbs):
            return False
        paths = all(any(_path_matches(pattern, path) for pattern in self.paths) for path in other.paths)
        if not other.resources:
            return paths
        if self.names and not (other.names and _all_listed(other.names, self.names, wild=False)):
            return False
        resources = _all_listed(other.resources, self.resources)
        return paths and resources and _all_listed(other.groups, self.groups)

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


def _all_listed(values: Sequence[str], allowed: Sequence[str], *, wild: bool = True) -> bool:
    return (wild and ALL in allowed) or set(values) <= set(allowed)


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


def uncovered(held: Sequence[Rule], wanted: Sequence[Rule], most: int = MOST_COMPARED) -> list[Rule]:
    """The rules of `wanted` that `held` does not cover, compacted (all verbs of a resource together), in
    order. Raises TooManyCombinations where that would be `most` words to look at.
    """
    missing: list[Rule] = []
    each, left = sum(rule.weight for rule in held), most
    for rule in wanted:
        left -= each + len(held) * rule.weight
        if left < 0:
            raise TooManyCombinations
        if any(owner.includes(rule) for owner in held):
            continue
        for atom in _atoms(rule):
            left -= each + _SPLITTING
            if left < 0:
                raise TooManyCombinations
            if not any(owner.covers(atom) for owner in held):
                missing.append(atom)
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
