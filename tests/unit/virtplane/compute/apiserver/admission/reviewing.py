"""The webhooks on requests of anybody, in a cluster with a few objects."""

from __future__ import annotations

from typing import Any

from kubecore.json import JsonObject
from kubecore.resources import ResourceType
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission import Response, review

COMPONENT = "system:serviceaccount:kubevirt:kubevirt-controller"


class Objects:
    """Lookups over a few objects."""

    def __init__(self, *entries: tuple[str, JsonObject]) -> None:
        self._entries = entries

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> JsonObject | None:
        found = [
            d for plural, d in self._entries if plural == resource.plural and d["metadata"]["name"] == name
        ]
        return found[0] if found else None

    async def list(self, resource: ResourceType, namespace: str | None = None) -> list[JsonObject]:
        return [document for plural, document in self._entries if plural == resource.plural]


def config(*gates: str, **configuration: object) -> ClusterConfig:
    configuration.setdefault("developerConfiguration", {"featureGates": list(gates)})
    return ClusterConfig({"status": {"phase": "Deployed"}, "spec": {"configuration": configuration}})


async def ask(
    path: str,
    new: JsonObject,
    old: JsonObject | None = None,
    *,
    user: str = "somebody",
    lookups: Objects | None = None,
    settings: ClusterConfig | None = None,
    extra: dict[str, Any] | None = None,
) -> Response:
    request = {
        "operation": "UPDATE" if old else "CREATE",
        "namespace": "ns",
        "object": new,
        "oldObject": old or {},
        "userInfo": {"username": user, "extra": extra or {}},
    }
    return await review(path, request, settings or config(), lookups or Objects())


def instance(**spec: Any) -> JsonObject:
    domain = {"devices": {}, "memory": {"guest": "128Mi"}, **spec.pop("domain", {})}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "v"},
        "spec": {"domain": domain, **spec},
    }


def machine(**spec: Any) -> JsonObject:
    template = {"spec": instance()["spec"]}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "v"},
        "spec": {"runStrategy": "Halted", "template": template, **spec},
    }
