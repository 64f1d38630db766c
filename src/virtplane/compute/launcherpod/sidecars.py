"""Hook sidecars: containers that change the domain, requested by annotation or by network binding plugins."""

from __future__ import annotations

import orjson

from kubecore.json import JsonObject, get_object, get_str
from virtplane.api import labels
from virtplane.api.images import SIDECAR_IMAGE
from virtplane.api.paths import HOOK_SOCKET_DIR
from virtplane.compute.launcherpod import resources
from virtplane.compute.launcherpod.containers import refuse_own_image, restricted
from virtplane.compute.launcherpod.inputs import RenderInputs
from virtplane.compute.launcherpod.volumes import VolumeSet

ANNOTATION = labels.HOOK_SIDECARS
_SOCKET_VOLUME = "hook-sidecar-sockets"
_NO_IMAGE = f"a sidecar names no image, and virt-operator's variable {SIDECAR_IMAGE} none either"


def requested_sidecars(inputs: RenderInputs) -> list[JsonObject]:
    """The sidecars of this instance, the user's first.

    Raises ValueError for an unreadable annotation, and for the launcher's own image with a command of the
    user: that image may be reserved for the product. A sidecar without image and command runs the entrypoint
    of the installation's sidecar image.
    """
    asked: list[JsonObject] = []
    annotation = inputs.annotations.get(ANNOTATION)
    if annotation and inputs.settings.gate("Sidecar"):
        asked += _of_annotation(annotation)
        for item in asked:
            named = get_str(item, "image")
            if named or item.get("command") or item.get("args"):
                place = f"annotation {ANNOTATION}"
                refuse_own_image(
                    inputs, place if named else f"{place}: {_NO_IMAGE}", named or inputs.images.sidecar
                )
    seen: set[str] = set()
    for interface in inputs.devices.interfaces:
        plugin = interface.binding.name if interface.binding is not None else ""
        registered = inputs.settings.binding_plugins.get(plugin)
        image = registered.sidecar_image if registered is not None else None
        if image and plugin not in seen:
            seen.add(plugin)
            asked.append({"image": image, "imagePullPolicy": inputs.settings.image_pull_policy})
    return asked


def _of_annotation(text: str) -> list[JsonObject]:
    found = orjson.loads(text)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ValueError(f"annotation {ANNOTATION} is not a JSON list of sidecars")
    return found


def sidecar_containers(inputs: RenderInputs, pod_volumes: VolumeSet) -> list[JsonObject]:
    """A container for each sidecar; their sockets and shared files become volumes of the pod."""
    asked = requested_sidecars(inputs)
    if not asked:
        return []
    pod_volumes.add({"name": _SOCKET_VOLUME, "emptyDir": {}}, HOOK_SOCKET_DIR)
    return [_container(inputs, pod_volumes, index, item) for index, item in enumerate(asked)]


def _container(inputs: RenderInputs, pod_volumes: VolumeSet, index: int, sidecar: JsonObject) -> JsonObject:
    mounts: list[JsonObject] = [
        {"name": _SOCKET_VOLUME, "mountPath": HOOK_SOCKET_DIR, "subPath": f"hook-sidecar-{index}"}
    ]
    container: JsonObject = {
        "name": f"hook-sidecar-{index}",
        "image": get_str(sidecar, "image") or inputs.images.sidecar,
        "imagePullPolicy": get_str(sidecar, "imagePullPolicy") or inputs.settings.image_pull_policy,
        "resources": resources.support_resources(inputs, "sidecar"),
        "securityContext": restricted(group=True),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    for key in ("command", "args"):
        if sidecar.get(key):
            container[key] = sidecar[key]
    script = get_object(sidecar, "configMap")
    if script:
        name = get_str(script, "name")
        pod_volumes.add({"name": name, "configMap": {"name": name, "defaultMode": 0o755}})
        mounts.append({"name": name, "mountPath": script.get("hookPath"), "subPath": script.get("key")})
    shared = get_object(sidecar, "pvc")
    if shared:
        name = get_str(shared, "name")
        pod_volumes.add({"name": name, "persistentVolumeClaim": {"claimName": name}})
        mounts.append({"name": name, "mountPath": shared.get("volumePath")})
        if shared.get("sharedComputePath"):
            pod_volumes.mounts.append({"name": name, "mountPath": shared["sharedComputePath"]})
    return container
