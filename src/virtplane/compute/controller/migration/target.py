"""The target launcher pod of a migration."""

from __future__ import annotations

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import labels
from virtplane.api.kubevirt_v1.migration import (
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceMigrationState,
)
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller import pods
from virtplane.compute.launcherpod.inputs import RenderInputs
from virtplane.compute.launcherpod.metadata import CREATED_BY_LABEL, unique_name
from virtplane.compute.launcherpod.render import render_launcher_pod


def image_digests(source: JsonObject | None) -> dict[str, str]:
    """The images of the source's container disks, by volume name, pinned by digest."""
    pinned: dict[str, str] = {}
    status = get_object(source, "status")
    for item in [*get_list(status, "initContainerStatuses"), *get_list(status, "containerStatuses")]:
        name, image_id = get_str(item, "name"), get_str(item, "imageID")
        repository, _, digest = image_id.rpartition("://")[2].rpartition("@")
        # An image that was loaded into the node has no digest in any repository: its ID is that of its
        # configuration, under which nobody can pull it.
        if not name.startswith("volume") or not repository or not digest.startswith("sha256:"):
            continue
        pinned[name.removeprefix("volume").removesuffix("-init")] = f"{repository}@{digest}"
    return pinned


def host_model_selector(model: str, node: JsonObject | None) -> dict[str, str]:
    """The node labels for a guest with host-model CPU `model`, for migration from its present node."""
    if model not in ("", "host-model") or node is None:
        return {}
    selector: dict[str, str] = {}
    for label in meta.labels(node):
        model = label.removeprefix(labels.HOST_MODEL_CPU_PREFIX)
        feature = label.removeprefix(labels.HOST_MODEL_FEATURES_PREFIX)
        if model != label:
            selector[labels.CPU_MODEL_MIGRATION_PREFIX + model] = "true"
        elif feature != label:
            selector[labels.CPU_FEATURE_PREFIX + feature] = "true"
    return selector


def is_leftover(pod: JsonObject, vmi: VirtualMachineInstance, own: list[JsonObject]) -> bool:
    """Whether the target pod of a migration runs although no guest is in it, nor will be.

    A guest runs in the current pod of its instance, one of its `own`. It may move to the target of the
    migration that the instance's status names, unless that migration has failed. A target can be scheduled to
    the instance's node once the source pod there has ended: the node alone does not make it the current pod.
    """
    if pods.is_down(pod):
        return False
    if pods.node_of(pod) == (vmi.status.node_name or ""):
        current = pods.current_pod(vmi, own)
        return current is not None and meta.uid(current) != meta.uid(pod)
    state = vmi.status.migration_state or VirtualMachineInstanceMigrationState()
    is_current = state.migration_uid == meta.labels(pod).get(pods.MIGRATION_JOB_LABEL)
    return not is_current or bool(state.failed)


def render_target(
    inputs: RenderInputs, migration: VirtualMachineInstanceMigration, node: JsonObject | None
) -> JsonObject:
    """The target pod: like the source pod, but on another node and labelled with the migration."""
    pod = render_launcher_pod(inputs)
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["name"] = unique_name(metadata["generateName"], migration.metadata.uid)
    metadata["labels"][pods.MIGRATION_JOB_LABEL] = migration.metadata.uid
    metadata["annotations"][labels.MIGRATION_JOB_NAME] = migration.metadata.name
    selector = spec["nodeSelector"]
    selector.update(host_model_selector(inputs.domain.cpu.model or "", node))
    for label in meta.labels(node or {}):
        if label.startswith(labels.CPU_VENDOR_PREFIX):
            selector[label] = "true"
    for key, value in migration.spec.added_node_selector.items():
        selector.setdefault(key, value)
    term = {
        "labelSelector": {"matchLabels": {CREATED_BY_LABEL: inputs.uid}},
        "topologyKey": "kubernetes.io/hostname",
    }
    anti = spec.setdefault("affinity", {}).setdefault("podAntiAffinity", {})
    required = anti.setdefault("requiredDuringSchedulingIgnoredDuringExecution", [])
    required.append(term)
    return pod
