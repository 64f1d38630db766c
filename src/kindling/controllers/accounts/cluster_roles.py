"""Aggregated ClusterRoles: each gets the rules of all ClusterRoles that its selectors match."""

from __future__ import annotations

from collections.abc import Iterable

from kindling.controllers.environment import Environment
from kubecore.json import JsonObject, get_list
from kubecore.objects import meta
from kubecore.objects.selectors import from_label_selector_object
from kubecore.resources import CLUSTER_ROLES
from kubecore.runtime import DONE, Key, Result

NAME = "clusterrole-aggregation-controller"


def is_aggregated(role: JsonObject) -> bool:
    """Whether the role has an aggregation rule."""
    return role.get("aggregationRule") is not None


def rules(role: JsonObject, roles: Iterable[JsonObject]) -> list[JsonObject]:
    """The rules of all chosen roles, each rule once, in the order of the selectors and the roles' names."""
    result: list[JsonObject] = []
    ordered = sorted((other for other in roles if meta.name(other) != meta.name(role)), key=meta.name)
    for raw in get_list(role, "aggregationRule", "clusterRoleSelectors"):
        selector = from_label_selector_object(raw)
        for other in ordered:
            if selector.matches(meta.labels(other)):
                result += [rule for rule in get_list(other, "rules") if rule not in result]
    return result


class ClusterRoleAggregation:
    """Keyed by aggregated role."""

    def __init__(self, environment: Environment) -> None:
        self._client = environment.client
        self._roles = environment.manager.informer(CLUSTER_ROLES)
        controller = environment.controller(NAME, self.reconcile)
        controller.watch(self._roles, self._aggregated)

    def _aggregated(self, role: JsonObject) -> list[Key]:
        """A change of any role may affect any aggregated role, by labels that the role has or had."""
        keys = [meta.key(other) for other in self._roles.list() if is_aggregated(other)]
        return [*keys, meta.key(role)] if is_aggregated(role) else keys

    async def reconcile(self, key: Key) -> Result:
        """Compute and write the rules of one aggregated role."""
        role = self._roles.get(None, key[1])
        if role is None or not is_aggregated(role):
            return DONE
        wanted = rules(role, self._roles.list())
        if wanted != (role.get("rules") or []):
            patch = {
                "apiVersion": CLUSTER_ROLES.api_version,
                "kind": CLUSTER_ROLES.kind,
                "metadata": {"name": key[1]},
                "rules": wanted,
            }
            await self._client.patch(
                CLUSTER_ROLES, key[1], patch, type="apply", field_manager=NAME, force=True
            )
        return DONE
