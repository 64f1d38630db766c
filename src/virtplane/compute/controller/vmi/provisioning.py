"""The temporary pod that is the first consumer of claims with WaitForFirstConsumer."""

from __future__ import annotations

from kubecore.json import JsonObject, deep_copy, get_str
from kubecore.objects import meta
from virtplane.compute.controller import pods
from virtplane.compute.launcherpod.metadata import unique_name


def consumer_pod(launcher: JsonObject) -> JsonObject:
    """A pod with the placement and claims of `launcher` that ends at once."""
    pod = deep_copy(launcher)
    owner = get_str(meta.controller_of(launcher), "uid")
    prefix = get_str(pod, "metadata", "generateName")
    pod["metadata"]["name"] = unique_name(prefix, f"consumer of the claims of {owner}")
    pod["metadata"]["annotations"][pods.EPHEMERAL_ANNOTATION] = "true"
    spec = pod["spec"]
    compute = next(container for container in spec["containers"] if container["name"] == "compute")
    compute["command"] = ["/bin/bash", "-c", "echo", "bound PVCs"]
    for key in ("args", "livenessProbe", "readinessProbe"):
        compute.pop(key, None)
    claims = {volume["name"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume}
    compute["volumeMounts"] = [mount for mount in compute["volumeMounts"] if mount["name"] in claims]
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] in claims]
    spec["containers"] = [compute]
    spec.pop("initContainers", None)
    spec.pop("readinessGates", None)
    return pod
