"""What worker pods share: security, resources, placement, the volume that they fill."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from virtplane.api import cdi_labels as names
from virtplane.api import labels, storage_labels
from virtplane.api.core_v1 import LocalObjectReference, NodePlacement, ResourceRequirements
from virtplane.api.meta_v1 import ObjectMeta
from virtplane.api.pod_security import restricted_container
from virtplane.api.storage_kinds import PersistentVolumeClaim

DATA_VOLUME = "cdi-data-vol"
SCRATCH_VOLUME = "cdi-scratch-vol"
DATA_PATH = "/data"
SCRATCH_PATH = "/scratch"
DEVICE_PATH = "/dev/cdi-block-volume"
PORT = 8443
BLOCK = "Block"

WORKER_USER = 107
"""The user that QEMU has in its images."""
_ISTIO_OFF = {labels.ISTIO_INJECT: "false", names.LINKERD_INJECT: "disabled"}
_PASSED_ON = (labels.NETWORKS, labels.DEFAULT_NETWORK, labels.ISTIO_INJECT, names.LINKERD_INJECT)
"""Annotations of a claim that its pods get."""


@dataclass(frozen=True, slots=True)
class Workers:
    """How worker pods are made in this installation.

    `commands`, by the names of containers, are set where all programs are in one image: its entry point is
    none of them.
    """

    importer_image: str
    cloner_image: str
    upload_server_image: str
    pull_policy: str = "IfNotPresent"
    verbosity: str = "1"
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    pull_secrets: tuple[LocalObjectReference, ...] = ()
    placement: NodePlacement = field(default_factory=NodePlacement)
    recommended_labels: dict[str, str] = field(default_factory=dict)
    insecure_registries: frozenset[str] = frozenset()
    commands: dict[str, list[str]] = field(default_factory=dict)


def owner(claim: PersistentVolumeClaim) -> JsonObject:
    """The reference with which a pod goes when its claim is deleted."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_owner(pod: ObjectMeta) -> JsonObject:
    """The reference with which an object goes when its pod is deleted."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.name,
        "uid": pod.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_block(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim is a device, not a file system."""
    return claim.spec.volume_mode == BLOCK


def pod_annotations(claim: PersistentVolumeClaim, own: dict[str, str]) -> dict[str, str]:
    """The pod's annotations: its own, those of meshes and networks that the claim has, and meshes off
    else.
    """
    given = claim.metadata.annotations
    return {**_ISTIO_OFF, **{name: given[name] for name in _PASSED_ON if name in given}, **own}


def claim_volume(name: str, claim: str) -> JsonObject:
    """A volume of the pod that is a claim."""
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}


def data_access(claim: PersistentVolumeClaim) -> JsonObject:
    """How a container gets the claim that it fills: members of the container."""
    if is_block(claim):
        return {"volumeDevices": [{"name": DATA_VOLUME, "devicePath": DEVICE_PATH}]}
    return {"volumeMounts": [{"name": DATA_VOLUME, "mountPath": DATA_PATH}]}


def container(workers: Workers, name: str, image: str, **members: Any) -> JsonObject:
    """A container that needs no privilege."""
    made: JsonObject = {
        "name": name,
        "image": image,
        "imagePullPolicy": workers.pull_policy,
        "resources": encode(workers.resources),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": restricted_container(WORKER_USER),
    }
    if name in workers.commands:
        members["command"] = workers.commands[name]
    return made | members


def pod(
    workers: Workers, claim: PersistentVolumeClaim, name: str, metadata: JsonObject, spec: JsonObject
) -> JsonObject:
    """A worker pod in the claim's namespace: `metadata` and `spec` with what all of them have."""
    given = claim.metadata.annotations
    placement = encode(workers.placement)
    full: JsonObject = {
        "restartPolicy": "OnFailure",
        "enableServiceLinks": False,
        "securityContext": _pod_security(spec),
        **placement,
        **spec,
    }
    if selector := {**placement.get("nodeSelector", {}), **spec.get("nodeSelector", {})}:
        full["nodeSelector"] = selector
    if workers.pull_secrets:
        full["imagePullSecrets"] = [encode(each) for each in workers.pull_secrets]
    if priority := given.get(names.POD_PRIORITY_CLASS):
        full["priorityClassName"] = priority
    if account := given.get(names.POD_SERVICE_ACCOUNT):
        full["serviceAccountName"] = account
    if names.POPULATOR_KIND in given and (node := given.get(storage_labels.SELECTED_NODE)):
        full["nodeName"] = node
    made = {"name": name, "namespace": claim.metadata.namespace, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": full}


def _pod_security(spec: JsonObject) -> JsonObject:
    """The pod's security context: files of mounted volumes belong to the worker's group."""
    security: JsonObject = {"seccompProfile": {"type": "RuntimeDefault"}}
    if any(each.get("volumeMounts") for each in spec.get("containers", ())):
        security["fsGroup"] = WORKER_USER
    return security
