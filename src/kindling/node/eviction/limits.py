"""Pods that use more of the node's disk than they may; pure."""

from __future__ import annotations

from kindling.node.stats.usage import PodUsage
from kindling.scheduler import requests
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import go_quote
from kubecore.objects.quantity import BINARY_SI, Quantity

_STORAGE = "ephemeral-storage"


def is_limited(pod: JsonObject) -> bool:
    """Whether the pod limits its disk in any way."""
    volumes = get_list(pod, "spec", "volumes")
    sized = any("sizeLimit" in get_object(volume, "emptyDir") for volume in volumes)
    return sized or _STORAGE in requests.limits_of_pod(pod)


def excess(pod: JsonObject, usage: PodUsage) -> str:
    """Which limit the pod exceeds, in a kubelet's words; empty when none."""
    return _of_volumes(pod, usage) or _of_pod(pod, usage) or _of_containers(pod, usage)


def _of_volumes(pod: JsonObject, usage: PodUsage) -> str:
    used = {volume.name: volume.disk.used for volume in usage.volumes}
    for volume in get_list(pod, "spec", "volumes"):
        name, limit = get_str(volume, "name"), get_object(volume, "emptyDir").get("sizeLimit")
        if limit is None or name not in used:
            continue
        most = Quantity.parse(limit)
        if most > Quantity.of(0) and Quantity.of(used[name], BINARY_SI) > most:
            return f"Usage of EmptyDir volume {go_quote(name)} exceeds the limit {go_quote(str(most))}. "
    return ""


def _of_pod(pod: JsonObject, usage: PodUsage) -> str:
    most = requests.limits_of_pod(pod).get(_STORAGE)
    if most is None or usage.local_storage.used <= most:
        return ""
    shown = Quantity.of(most, BINARY_SI)
    return f"Pod ephemeral local storage usage exceeds the total limit of containers {shown}. "


def _of_containers(pod: JsonObject, usage: PodUsage) -> str:
    limits = {
        get_str(container, "name"): Quantity.parse(limit)
        for container in get_list(pod, "spec", "containers")
        if (limit := get_object(container, "resources", "limits").get(_STORAGE)) is not None
    }
    for container in usage.containers:
        most = limits.get(container.name)
        parts = [part.used for part in (container.rootfs, container.logs) if part is not None]
        if most is not None and most > Quantity.of(0) and Quantity.of(sum(parts), BINARY_SI) > most:
            limit = go_quote(str(most))
            return f"Container {container.name} exceeded its local ephemeral storage limit {limit}. "
    return ""
