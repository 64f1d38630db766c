"""The webhook that prevents the eviction of launcher and attachment pods of running guests.

In the compact layout it protects the control plane's pod as well: as the only pod that serves this webhook,
it must be evicted last from a drained node.

Every refusal has status 429, so that `kubectl drain` retries. A guest to migrate is marked with the node that
it must leave; the controllers then migrate it (for strategy External, an external controller does).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_bool, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.structs import UnfitDocument, decode
from kubecore.resources import ResourceType
from virtplane.api import labels
from virtplane.api import resources as kinds
from virtplane.api.conditions import is_true
from virtplane.api.config import ClusterConfig
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance

PATH = "/pod-eviction-validate"
_DESCHEDULER = "sigs.k8s.io/descheduler"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on an eviction: allowed if `refusal` is empty; `mark` sets status.evacuationNodeName."""

    refusal: str = ""
    mark: bool = False


ALLOWED = Verdict()


def evaluate(vmi: VirtualMachineInstance, pod: JsonObject, default_strategy: str) -> Verdict:
    """Whether the launcher `pod` of `vmi` may be evicted."""
    strategy = vmi.spec.eviction_strategy or default_strategy
    is_migratable = is_true(vmi.status.conditions, "LiveMigratable")
    if strategy == "LiveMigrate" and not is_migratable:
        return Verdict(
            f"VMI {vmi.metadata.name} is configured with an eviction strategy but is not live-migratable"
        )
    if strategy == "LiveMigrateIfPossible" and not is_migratable:
        return ALLOWED
    if strategy not in ("LiveMigrate", "LiveMigrateIfPossible", "External"):
        return ALLOWED
    text = f'Eviction triggered evacuation of VMI "{vmi.metadata.namespace}/{vmi.metadata.name}"'
    if (vmi.status.node_name or "") != get_str(pod, "spec", "nodeName"):
        return Verdict("Eviction request for target Pod")
    if vmi.status.evacuation_node_name:
        return Verdict(f"Evacuation in progress: {text}")
    return Verdict(text, mark=True)


def control_plane_refusal(pod: JsonObject, instances: Iterable[JsonObject]) -> str:
    """Why the control plane's `pod` may not be evicted yet; empty when no guest is left on its node."""
    node = get_str(pod, "spec", "nodeName")
    left = [
        f"{meta.namespace(vmi)}/{meta.name(vmi)}"
        for vmi in instances
        if node
        and get_str(vmi, "status", "nodeName") == node
        and get_str(vmi, "status", "phase") not in ("Succeeded", "Failed")
    ]
    if not left:
        return ""
    return f"{meta.name(pod)} leaves node {node} after its guests ({len(left)} left, {min(left)} among them)"


def mark_operations(vmi: VirtualMachineInstance, node: str, requested_by: str) -> list[JsonObject]:
    """Operations that mark an instance to leave `node`."""
    operations: list[JsonObject] = [{"op": "add", "path": "/status/evacuationNodeName", "value": node}]
    if requested_by == _DESCHEDULER:
        if vmi.metadata.annotations:
            path = "/metadata/annotations/kubevirt.io~1eviction-source"
            operations.append({"op": "add", "path": path, "value": "descheduler"})
        else:
            value = {labels.EVICTION_SOURCE: "descheduler"}
            operations.append({"op": "add", "path": "/metadata/annotations", "value": value})
    return operations


class EvictionWebhook:
    """Answers reviews of pod evictions."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def review(self, review: JsonObject, config: ClusterConfig) -> JsonObject:
        """The AdmissionReview that answers `review`."""
        request = get_object(review, "request")
        refusal = await self._refusal(request, config)
        response: JsonObject = {"uid": get_str(request, "uid"), "allowed": not refusal}
        if refusal:
            response["status"] = {"message": refusal, "code": 429}
        version = get_str(review, "apiVersion", default="admission.k8s.io/v1")
        return {"apiVersion": version, "kind": "AdmissionReview", "response": response}

    async def _refusal(self, request: JsonObject, config: ClusterConfig) -> str:
        namespace, name = get_str(request, "namespace"), get_str(request, "name")
        pod = await self._get(resources.PODS, name, namespace)
        if pod is None or get_str(pod, "status", "phase") in ("Succeeded", "Failed"):
            return ""
        kind = meta.labels(pod).get("kubevirt.io")
        if kind == "hotplug-disk":
            return await self._attachment_refusal(pod)
        owner = meta.annotations(pod).get(labels.DOMAIN, "")
        if kind == "virt-operator" and namespace == config.namespace:
            return await self._control_plane_refusal(pod)
        if kind != "virt-launcher" or not owner:
            return ""
        vmi = await self._get(kinds.VIRTUAL_MACHINE_INSTANCES, owner, namespace)
        if vmi is None:
            return ""
        try:
            instance = decode(VirtualMachineInstance, vmi)
        except UnfitDocument as error:
            # The eviction could end the guest; the refusal shows the administrator what blocks the drain.
            return f"the instance has to be corrected first: {error}"
        verdict = evaluate(instance, pod, config.eviction_strategy)
        if verdict.mark:
            await self._mark(instance, pod, request)
        return verdict.refusal

    async def _control_plane_refusal(self, pod: JsonObject) -> str:
        # Check the instances, not the pods: every user may label a pod as a launcher.
        instances = await self._client.list(kinds.VIRTUAL_MACHINE_INSTANCES)
        return control_plane_refusal(pod, get_list(instances, "items"))

    async def _attachment_refusal(self, pod: JsonObject) -> str:
        owner = meta.controller_of(pod)
        launcher = (
            await self._get(resources.PODS, get_str(owner, "name"), meta.namespace(pod)) if owner else None
        )
        if launcher is None or get_str(launcher, "status", "phase") in ("Succeeded", "Failed"):
            return ""
        vmi = meta.annotations(launcher).get(labels.DOMAIN, "")
        text = f"cannot evict hotplug pod: {meta.name(pod)} associated with running vmi: {vmi}"
        return f"{text} in namespace {meta.namespace(pod)}"

    async def _mark(self, vmi: VirtualMachineInstance, pod: JsonObject, request: JsonObject) -> None:
        requested_by = meta.annotations(get_object(request, "object")).get("requested-by", "")
        await self._client.patch(
            kinds.VIRTUAL_MACHINE_INSTANCES,
            vmi.metadata.name,
            mark_operations(vmi, get_str(pod, "spec", "nodeName"), requested_by),
            vmi.metadata.namespace,
            type="json",
            dry_run=get_bool(request, "dryRun"),
        )

    async def _get(self, kind: ResourceType, name: str, namespace: str) -> JsonObject | None:
        try:
            return await self._client.get(kind, name, namespace)
        except StatusError as error:
            if is_not_found(error):
                return None
            raise
