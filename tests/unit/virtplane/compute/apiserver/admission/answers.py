"""What the webhooks answer to short documents, in a cluster without anything else."""

from __future__ import annotations

from typing import Any

from kubecore.json import JsonObject
from kubecore.patch.jsonpatch import apply_json_patch
from kubecore.resources import ResourceType
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission import Response, review

CREATE = "/virtualmachineinstances-validate-create"
MUTATE = "/virtualmachineinstances-mutate"
INTERFACE = "spec.domain.devices.interfaces[0]"


class NoObjects:
    """A cluster without anything else."""

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> JsonObject | None:
        return None

    async def list(self, resource: ResourceType, namespace: str | None = None) -> list[JsonObject]:
        return []


async def ask(path: str, document: JsonObject, config: JsonObject | None = None) -> Response:
    settings = ClusterConfig({"status": {"phase": "Deployed"}, "spec": {"configuration": config or {}}})
    request = {"operation": "CREATE", "namespace": "ns", "object": document, "oldObject": {}, "userInfo": {}}
    return await review(path, request, settings, NoObjects())


def instance(
    *, devices: JsonObject | None = None, domain: JsonObject | None = None, **spec: Any
) -> JsonObject:
    body = {"devices": devices or {}, "memory": {"guest": "128Mi"}, **(domain or {})}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm"},
        "spec": {"architecture": "amd64", "domain": body, **spec},
    }


def machine(**spec: Any) -> JsonObject:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "vm"},
        "spec": {"template": {"spec": instance()["spec"]}, **spec},
    }


async def causes(document: JsonObject, path: str = CREATE) -> list[tuple[str, str]]:
    """Fields and messages of a refusal, each once; empty when the object is accepted."""
    answer = await ask(path, document)
    if answer.allowed:
        return []
    assert answer.status is not None
    found = [(item["field"], item["message"]) for item in answer.status["details"]["causes"]]
    return list(dict.fromkeys(found))


async def defaulted(document: JsonObject, config: JsonObject | None = None) -> JsonObject:
    answer = await ask(MUTATE, document, config)
    assert answer.allowed
    result: JsonObject = apply_json_patch(document, list(answer.patches))["spec"]
    return result
