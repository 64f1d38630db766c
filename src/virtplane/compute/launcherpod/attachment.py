"""The pod that brings hotplugged volumes to the node of a running guest.

One pod carries all volumes that are ready; it is owned by the launcher pod, so that it is deleted with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubecore.json import JsonObject, deep_copy, get_list, get_str
from kubecore.objects import meta
from virtplane.api import labels
from virtplane.api.kubevirt_v1.volumes import Volume, claim_name
from virtplane.api.launcherpods import QEMU_USER
from virtplane.api.pod_security import restricted_container
from virtplane.compute.launcherpod import resources
from virtplane.compute.launcherpod.inputs import PROGRAMS, RenderInputs
from virtplane.compute.launcherpod.volumes import is_block

_TOLERATED = ("disk-pressure", "memory-pressure", "network-unavailable", "pid-pressure", "unschedulable")


def render_attachment_pod(
    inputs: RenderInputs,
    launcher: JsonObject,
    volumes: Sequence[Volume],
    mounted: frozenset[str] = frozenset(),
) -> JsonObject:
    """The attachment pod for `volumes` of `launcher`. Filesystem volumes in `mounted` are not mounted
    again.
    """
    node = get_str(launcher, "spec", "nodeName")
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    terms = [{"matchExpressions": [hostname]}]
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    pod_volumes: list[JsonObject] = [{"name": "hotplug-disks", "emptyDir": {}}]
    container = _container(inputs)
    for volume in volumes:
        name, claim = volume.name, claim_name(volume)
        pod_volumes.append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
        if is_block(inputs, claim):
            path = f"/path/{name}/{meta.uid(inputs.claims[claim])}"
            container.setdefault("volumeDevices", []).append({"name": name, "devicePath": path})
        elif name not in mounted:
            container["volumeMounts"].append({"name": name, "mountPath": f"/{name}"})
    return _pod(inputs, launcher, container, pod_volumes, affinity)


def render_trigger_pod(inputs: RenderInputs, launcher: JsonObject, volume: Volume) -> JsonObject:
    """A pod that ends at once: it is there for the claim of `volume` to be bound where the guest is."""
    claim = claim_name(volume)
    container = _container(inputs)
    container["command"] = ["/bin/bash", "-c", "exit", "0"]
    container["volumeMounts"] = []
    if is_block(inputs, claim):
        container["volumeDevices"] = [{"name": volume.name, "devicePath": "/dev/hotplugblockdevice"}]
    else:
        container["volumeMounts"] = [{"name": volume.name, "mountPath": "/pvc"}]
    near = {
        "labelSelector": {"matchLabels": dict(meta.labels(launcher))},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    pod_volumes = [{"name": volume.name, "persistentVolumeClaim": {"claimName": claim}}]
    pod = _pod(inputs, launcher, container, pod_volumes, affinity)
    pod["metadata"]["annotations"]["kubevirt.io/ephemeral-provisioning"] = "true"
    pod["spec"]["restartPolicy"] = "Never"
    return pod


def _pod(
    inputs: RenderInputs,
    launcher: JsonObject,
    container: JsonObject,
    volumes: list[JsonObject],
    affinity: JsonObject,
) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "hp-volume-",
            "namespace": inputs.namespace_name,
            "labels": {"kubevirt.io": "hotplug-disk"},
            "annotations": {
                labels.OWNER_VMI_NAME: inputs.name,
                "kubevirt.io/owner-vmi-uid": inputs.uid,
            },
            "ownerReferences": [_owner(launcher)],
        },
        "spec": {
            "containers": [container],
            "affinity": affinity,
            "tolerations": _tolerations(launcher),
            "volumes": volumes,
            "terminationGracePeriodSeconds": 0,
        },
    }


def _owner(launcher: JsonObject) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": meta.name(launcher),
        "uid": meta.uid(launcher),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _container(inputs: RenderInputs) -> JsonObject:
    level = (inputs.vmi.status.selinux_context or "").partition(":")[2]
    parts = level.split(":")
    return {
        "name": "hotplug-disk",
        "image": inputs.images.launcher,
        "imagePullPolicy": inputs.settings.image_pull_policy,
        "command": ["/bin/sh", "-c", f"{PROGRAMS}/container-disk --copy-path /path/hp"],
        "resources": resources.support_resources(inputs, "hotplug-disk"),
        "securityContext": {
            **restricted_container(QEMU_USER),
            "seLinuxOptions": {"level": ":".join(parts[2:]) if len(parts) > 2 else "s0"},
        },
        "volumeMounts": [
            {"name": "hotplug-disks", "mountPath": "/path", "mountPropagation": "HostToContainer"}
        ],
    }


def _tolerations(launcher: JsonObject) -> list[JsonObject]:
    own = deep_copy({"items": get_list(launcher, "spec", "tolerations")})["items"]
    pressure = [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoSchedule"}
        for name in _TOLERATED
    ]
    return [*own, *(item for item in pressure if item not in own)]
