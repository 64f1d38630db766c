"""Which pod is evicted first, and the message that it gets; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kindling.node.eviction.thresholds import SIGNALS, Observation, Threshold
from kindling.node.stats.usage import ContainerUsage, PodUsage
from kindling.scheduler import requests
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects.quantity import BINARY_SI, Quantity

_OF_DISK = ("ephemeral-storage", "inodes")
_CRITICAL_PRIORITY = 2_000_000_000


def is_critical(pod: JsonObject) -> bool:
    """Whether the pod has the priority of system components: such pods are not evicted."""
    return get_int(pod, "spec", "priority") >= _CRITICAL_PRIORITY


def ranked(resource: str, pods: Sequence[JsonObject], usages: Mapping[str, PodUsage]) -> list[JsonObject]:
    """The pods, the first to be evicted first. `usages` are by uid.

    Pods without usage come first, then those that use more than they request, then those of lower priority,
    then those that use most beyond their request. For process IDs, requests do not count. Where disk runs
    out, a volume of so many files that they could not be counted is no known usage.
    """

    def order(pod: JsonObject) -> tuple[bool, bool, int, int]:
        usage = usages.get(get_str(pod, "metadata", "uid"))
        if usage is None or (resource in _OF_DISK and not usage.is_measured):
            return False, False, 0, 0
        used = _used(resource, usage)
        beyond = used - requests.of_pod(pod).get(resource, 0)
        exceeds = resource != "pids" and beyond > 0
        return True, not exceeds, get_int(pod, "spec", "priority"), -beyond

    return sorted(pods, key=order)


def _used(resource: str, pod: PodUsage) -> int:
    match resource:
        case "memory":
            return pod.reading.usage.working_set if pod.reading is not None else 0
        case "ephemeral-storage":
            return pod.local_storage.used
        case "inodes":
            return pod.local_storage.inodes
        case "pids":
            return pod.processes
    return 0


def message(
    resource: str,
    pod: JsonObject,
    usage: PodUsage | None,
    crossed: Sequence[Threshold],
    observations: Mapping[str, Observation],
) -> str:
    """Why a pod is evicted, in a kubelet's words."""
    text = f"The node was low on resource: {resource}. "
    for threshold in crossed:
        seen = observations.get(threshold.signal)
        if SIGNALS[threshold.signal].resource == resource and seen is not None:
            quantity = threshold.amount(seen.capacity)
            text += f"Threshold quantity: {quantity}, available: {seen.available}. "
            break
    if usage is None:
        return text
    definitions = {
        get_str(container, "name"): container
        for container in get_list(pod, "spec", "containers") + get_list(pod, "spec", "initContainers")
    }
    own = get_object(pod, "spec", "resources", "requests")
    if resource == "memory" and resource in own and usage.reading is not None:
        used, name = _bytes(usage.reading.usage.working_set), get_str(pod, "metadata", "name")
        text += _larger("Pod", name, used, Quantity.parse(own[resource]), resource)
    for container in usage.containers:
        spent = _of_container(resource, container)
        if container.name in definitions and spent is not None:
            asked = get_object(definitions[container.name], "resources", "requests").get(resource)
            request = Quantity.parse(asked) if asked is not None else Quantity.of(0)
            if spent > request:
                text += _larger("Container", container.name, spent, request, resource)
    return text


def _larger(kind: str, name: str, used: Quantity, request: Quantity, resource: str) -> str:
    return f"{kind} {name} was using {used}, request is {request}, has larger consumption of {resource}. "


def _of_container(resource: str, container: ContainerUsage) -> Quantity | None:
    if resource == "memory" and container.reading is not None:
        return _bytes(container.reading.usage.working_set)
    if resource == "ephemeral-storage" and container.rootfs is not None and container.logs is not None:
        return _bytes(container.rootfs.used + container.logs.used)
    return None


def _bytes(amount: int) -> Quantity:
    return Quantity.of(amount, BINARY_SI)
