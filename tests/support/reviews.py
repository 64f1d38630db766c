"""virt-api's webhooks one after another, as an API server calls them."""

from __future__ import annotations

from kubecore.json import JsonObject, deep_copy, get_object
from kubecore.patch.jsonpatch import apply_json_patch
from kubecore.resources import ResourceType
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission import review
from virtplane.operators.kit.webhooks import Webhook
from virtplane.operators.kubevirt.strategy.webhooks import MUTATORS, VALIDATORS


class World:
    """Other objects for lookups, and the installation's settings."""

    def __init__(self) -> None:
        self.kubevirt: JsonObject = {
            "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
            "spec": {"configuration": {}},
            "status": {"phase": "Deployed", "defaultArchitecture": "amd64"},
        }
        self.objects: dict[tuple[str, str], JsonObject] = {}

    async def get(self, resource: ResourceType, name: str, namespace: str | None = None) -> JsonObject | None:
        return self.objects.get((resource.plural, name))

    async def list(self, resource: ResourceType, namespace: str | None = None) -> list[JsonObject]:
        return [document for (plural, _), document in self.objects.items() if plural == resource.plural]

    @property
    def config(self) -> ClusterConfig:
        return ClusterConfig(self.kubevirt)


def _webhooks_for(entries: tuple[Webhook, ...], plural: str, operation: str) -> list[Webhook]:
    return [
        webhook
        for webhook in entries
        if plural in webhook.resources and (operation in webhook.operations or "*" in webhook.operations)
    ]


async def admit(
    world: World, plural: str, operation: str, document: JsonObject, old: JsonObject
) -> JsonObject:
    """The answer of an API server: the admitted object, or a Status."""
    base = {
        "operation": operation,
        "resource": {"resource": plural},
        "namespace": "ns",
        "userInfo": {"username": "admin"},
        "oldObject": old,
    }
    warnings: list[str] = []
    document = deep_copy(document)
    document["metadata"] = {**get_object(document, "metadata"), "namespace": "ns"}
    for webhook in _webhooks_for(MUTATORS, plural, operation):
        answer = await review(webhook.path, {**base, "object": document}, world.config, world)
        if not answer.allowed:
            return _refusal(webhook, answer.status or {})
        document = apply_json_patch(document, list(answer.patches))
        warnings += answer.warnings
    for webhook in _webhooks_for(VALIDATORS, plural, operation):
        answer = await review(webhook.path, {**base, "object": document}, world.config, world)
        if not answer.allowed:
            return _refusal(webhook, answer.status or {})
        warnings += answer.warnings
    return document


def _refusal(webhook: Webhook, status: JsonObject) -> JsonObject:
    message = f'admission webhook "{webhook.name}" denied the request: {status["message"]}'
    document = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "code": status["code"],
    }
    for key in ("reason", "details"):
        if key in status:
            document[key] = status[key]
    return document
