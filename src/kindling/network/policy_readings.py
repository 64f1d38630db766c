"""NetworkPolicies as they are read: each once, and what cannot be used isolates.

A policy that does not decode, and policies of a namespace that has too many rules, allow nothing: the pods
that they select are isolated, instead of open to everybody.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from kindling.network import policies
from kindling.network.policies import Policy
from kindling.network.policy_objects import EgressRule, IngressRule, NetworkPolicy
from kubecore.json import get_str
from kubecore.objects.selectors import EVERYTHING

_log = logging.getLogger(__name__)

MAX_PARTS = 2_000
"""So many rules, peers and ports may the policies of one namespace have together: they cost every node time
whenever a pod changes, during which everybody's new rules and pods wait."""
_RULES = {"Ingress": "ingress", "Egress": "egress"}


def parts(policy: NetworkPolicy) -> int:
    """How many rules, peers and ports a policy has (pure)."""
    rules: tuple[IngressRule | EgressRule, ...] = (*policy.spec.ingress, *policy.spec.egress)
    return sum(1 + len(rule.peers) + len(rule.ports) for rule in rules)


def isolating(document: Mapping[str, Any]) -> Policy:
    """A policy that allows nothing, of a document that does not decode.

    Without a readable selector it selects every pod of its namespace; without readable types it isolates in
    both directions.
    """
    namespace, name = get_str(document, "metadata", "namespace"), get_str(document, "metadata", "name")
    spec = document.get("spec")
    written: Mapping[str, Any] = spec if isinstance(spec, Mapping) else {}
    types = written.get("policyTypes")
    is_known = isinstance(types, list) and types and all(item in ("Ingress", "Egress") for item in types)
    chosen = types if is_known else list(_RULES)
    pods = policies.selector(written.get("podSelector") or {}, f"{namespace}/{name}", unread=EVERYTHING)
    return Policy(namespace, name, pods, {_RULES[item]: () for item in chosen or ()})


class Readings:
    """The policies of a cluster. A policy that stays the same object is not read again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[NetworkPolicy, Policy]] = {}
        self._refused: set[tuple[str, str]] = set()

    def of(self, written: Iterable[NetworkPolicy], unfit: Iterable[Mapping[str, Any]]) -> list[Policy]:
        """The policies `written`, and those of documents that do not decode, ordered by name."""
        before, self._known = self._known, {}
        refused: set[tuple[str, str]] = set()
        spent: dict[str, int] = {}
        found = [isolating(document) for document in unfit]
        for policy in sorted(written, key=_key):
            key = _key(policy)
            spent[key[0]] = spent.get(key[0], 0) + parts(policy)
            if spent[key[0]] > MAX_PARTS:
                refused.add(key)
                found.append(self._without_rules(policy))
                continue
            known = before.get(key)
            read = known[1] if known is not None and known[0] is policy else policies.read(policy)
            self._known[key] = (policy, read)
            found.append(read)
        self._refused = refused
        return sorted(found, key=lambda item: (item.namespace, item.name))

    def _without_rules(self, policy: NetworkPolicy) -> Policy:
        namespace, name = key = _key(policy)
        if key not in self._refused:
            _log.error(
                "network policy %s/%s allows nothing: with it, the policies of its namespace have more than "
                "%d rules, peers and ports; remove some",
                namespace,
                name,
                MAX_PARTS,
            )
        pods = policies.selector(policy.spec.pod_selector, f"{namespace}/{name}", unread=EVERYTHING)
        return Policy(namespace, name, pods, {_RULES[item]: () for item in policies.directions(policy)})


def _key(policy: NetworkPolicy) -> tuple[str, str]:
    return policy.metadata.namespace, policy.metadata.name
