"""Keeps an instance's launcher pod as the instance says: labels, annotations, the condition unpaused."""

from __future__ import annotations

from kubecore import resources
from kubecore.json import JsonObject, deep_copy
from kubecore.objects import meta
from kubecore.patch.guarded import guarded_patch
from virtplane.api import labels
from virtplane.api.conditions import is_true
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster import conditions
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import described
from virtplane.compute.controller import pods
from virtplane.compute.controller.vmi import networks, phases
from virtplane.compute.controller.vmi.errors import SyncError
from virtplane.compute.launcherpod import containerpaths, metadata
from virtplane.compute.launcherpod.containers import share_server_name

_SYNCED_LABELS = (phases.NODE_LABEL, phases.OUTDATED_LABEL)
_EVICTION_ANNOTATION = "descheduler.alpha.kubernetes.io/eviction-in-progress"


async def sync(cluster: Cluster, vmi: VirtualMachineInstance, pod: JsonObject) -> None:
    """Update labels, annotations and the unpaused condition of the launcher pod from the instance.

    Raises StatusError.
    """
    if meta.is_being_deleted(pod) or pods.is_finished(pod):
        return
    new = deep_copy(pod)
    for label in _SYNCED_LABELS:
        if label == phases.OUTDATED_LABEL or label in vmi.metadata.labels:
            meta.set_label(new, label, vmi.metadata.labels.get(label))
    inputs = cluster.render_inputs(vmi)
    networks.set_network_info(new, inputs)
    if vmi.status.phase == "Running":
        networks.set_attachments(new, inputs)
    for annotation, value in metadata.followed_annotations(inputs).items():
        meta.set_annotation(new, annotation, value)
    evicting = "kubevirt" if vmi.status.evacuation_node_name else None
    meta.set_annotation(new, _EVICTION_ANNOTATION, evicting)
    patch = guarded_patch(pod, new, ("metadata", "labels"), ("metadata", "annotations"))
    name, namespace = meta.name(pod), meta.namespace(pod)
    if patch:
        await cluster.client.patch(resources.PODS, name, patch, namespace, type="json")
    await _sync_unpaused(cluster, vmi, pod)


def unshared_paths(cluster: Cluster, vmi: VirtualMachineInstance, pod: JsonObject) -> SyncError | None:
    """Folders that nothing shares: the gate was off when the pod was made, or the pod does not have them."""
    missing = [share_server_name(name) for name in containerpaths.missing_servers(vmi, pod)]
    if not missing:
        return None
    text = f"pod is missing virtiofs containers for ContainerPath volumes: [{' '.join(missing)}]"
    reason = "MissingVirtiofsContainers"
    cluster.recorder.event(described(vmi), "Warning", reason, f"Pod sync error: {text}")
    return SyncError(reason, text)


async def _sync_unpaused(cluster: Cluster, vmi: VirtualMachineInstance, pod: JsonObject) -> None:
    status, reason, text = ("False", "Paused", "the virtual machine is paused")
    if not is_true(vmi.status.conditions, "Paused"):
        status, reason, text = ("True", "NotPaused", "the virtual machine is not paused")
    present = meta.get_condition(pod, labels.CONDITION_UNPAUSED)
    if present is not None and present.get("status") == status:
        return
    wanted = conditions.new_condition(labels.CONDITION_UNPAUSED, status, reason, text, probed=True)
    await cluster.client.patch(
        resources.PODS,
        meta.name(pod),
        {"status": {"conditions": [wanted]}},
        meta.namespace(pod),
        type="strategic",
        subresource="status",
    )
