"""What the pod's status in the API says about its containers."""

from __future__ import annotations

from kindling.node.runtime.interface import Container
from kubecore.json import JsonObject, get_list, get_object, get_str


def containers_with_probes(pod: JsonObject) -> list[JsonObject]:
    """Containers that may have probes: all but plain init containers."""
    sidecars = [
        item for item in get_list(pod, "spec", "initContainers") if get_str(item, "restartPolicy") == "Always"
    ]
    return sidecars + get_list(pod, "spec", "containers")


def reports_running(pod: JsonObject) -> bool:
    """Whether the status in the API has a container that is not terminated."""
    listed = get_list(pod, "status", "containerStatuses") + get_list(pod, "status", "initContainerStatuses")
    return any("terminated" not in get_object(item, "state") for item in listed)


def reported_status(pod: JsonObject, container: Container) -> JsonObject:
    """The container's status in the API, if it is about the container with this ID."""
    listed = get_list(pod, "status", "containerStatuses") + get_list(pod, "status", "initContainerStatuses")
    wanted = f"containerd://{container.id}"
    return next((item for item in listed if item.get("containerID") == wanted), {})
