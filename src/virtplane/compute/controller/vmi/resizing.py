"""Room in the launcher's pod for the CPUs and memory that a running guest is to get.

The pod is resized in place; virt-handler plugs when the conditions say that the room is there. Where the node
has no room, or the pod cannot be resized, the change waits for a migration to a pod that is large enough.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubecore import resources
from kubecore.errors import StatusError
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.cluster.caches import Cluster
from virtplane.cluster.objects import described
from virtplane.compute import amounts, plugging
from virtplane.compute.controller import pods
from virtplane.compute.launcherpod.resources import compute_resources

Room = Mapping[str, tuple[str, str]]
"""Reason and message of the conditions of changes that wait, by their types."""

_COMPUTE = "compute"
_NAMES = ("cpu", "memory")
_REFUSALS = (400, 403, 404, 405, 422)
"""Answers to a resize that repeating it at once does not change."""
_LONGEST_MESSAGE = 1024


def changes_cpu(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest has other CPU sockets than its spec says."""
    topology, wanted = vmi.status.current_cpu_topology, vmi.spec.domain.cpu.sockets
    current = topology.sockets if topology is not None else None
    return bool(current and wanted and current != wanted)


def changes_memory(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest was asked to use other memory than its spec says."""
    memory, guest = vmi.status.memory, vmi.spec.domain.memory.guest
    requested = memory.guest_requested if memory is not None else None
    return bool(guest and requested) and amounts.to_bytes(guest) != amounts.to_bytes(requested)


def has_shrunk(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest has given back all memory that is more than its spec says."""
    memory = vmi.status.memory
    current = max(
        (amounts.to_bytes(each) for each in (memory.guest_current, memory.guest_requested))
        if memory
        else (0,)
    )
    return current <= amounts.to_bytes(vmi.spec.domain.memory.guest)


def wanted_resources(pod: JsonObject, fresh: JsonObject, *, may_shrink: bool) -> JsonObject:
    """CPU and memory that the pod's compute container is to have, where `fresh` is what a new one would get.

    Only what the container has already is changed: its class of service must stay.
    """
    present = _spec(pod)
    result: JsonObject = {}
    for kind in ("requests", "limits"):
        for name, amount in get_object(present, kind).items():
            wanted = get_object(fresh, kind).get(name)
            if name not in _NAMES or wanted is None:
                continue
            if not may_shrink:
                wanted = max(wanted, amount, key=Quantity.parse)
            result.setdefault(kind, {})[name] = wanted
    return result


def _spec(pod: JsonObject) -> JsonObject:
    found = (each for each in get_list(pod, "spec", "containers") if each.get("name") == _COMPUTE)
    return get_object(next(found, {}), "resources")


def is_asked_for(pod: JsonObject, wanted: JsonObject) -> bool:
    """Whether the pod's spec has the resources in `wanted`."""
    present = _spec(pod)
    return all(
        Quantity.parse(amount) == Quantity.parse(get_object(present, kind).get(name, "0"))
        for kind, amounts_of in wanted.items()
        for name, amount in amounts_of.items()
    )


def is_granted(pod: JsonObject, wanted: JsonObject) -> bool:
    """Whether the compute container runs with at least the resources in `wanted`."""
    statuses = get_list(pod, "status", "containerStatuses")
    status: JsonObject = next((each for each in statuses if each.get("name") == _COMPUTE), {})
    actual = get_object(status, "resources")
    return is_asked_for(pod, wanted) and all(
        Quantity.parse(get_object(actual, kind).get(name, "0")) >= Quantity.parse(amount)
        for kind, amounts_of in wanted.items()
        for name, amount in amounts_of.items()
    )


def room(vmi: VirtualMachineInstance, pod: JsonObject, wanted: JsonObject, failure: str) -> Room:
    """What the conditions of the pending changes say; `failure` is why the pod could not be resized."""
    fits = {
        plugging.CPU_CHANGE: (plugging.cpu_fits_in_place(vmi.spec), plugging.cpu_room(vmi.spec)),
        plugging.MEMORY_CHANGE: (plugging.memory_fits_in_place(vmi.spec), plugging.memory_room(vmi.spec)),
    }
    found: dict[str, tuple[str, str]] = {}
    for kind, (in_place, message) in fits.items():
        if not in_place:
            text = "the guest has CPUs or huge pages of its own, which a running pod cannot get more of"
            found[kind] = ("PodResizeInfeasible", text)
        elif failure:
            found[kind] = ("PodResizeFailed", failure[:_LONGEST_MESSAGE])
        elif is_granted(pod, wanted):
            found[kind] = (plugging.POD_RESIZED, message)
        else:
            found[kind] = _held(pod)
    return found


def _held(pod: JsonObject) -> tuple[str, str]:
    condition = meta.get_condition(pod, "PodResizePending") or {}
    reason = get_str(condition, "reason")
    if condition.get("status") != "True" or reason not in ("Infeasible", "Deferred"):
        return "", ""  # the kubelet has not looked at it yet, or is at it
    return f"PodResize{reason}", get_str(condition, "message")[:_LONGEST_MESSAGE]


async def sync(cluster: Cluster, vmi: VirtualMachineInstance, pod: JsonObject) -> Room:
    """Resize the pod for the guest's pending changes; returns what their conditions say.

    Raises StatusError for what may succeed when it is repeated.
    """
    if vmi.status.phase != "Running" or pods.is_down(pod):
        return {}
    grows = changes_cpu(vmi) or changes_memory(vmi)
    if not grows and not (has_shrunk(vmi) and _was_resized(pod)):
        return {}
    try:
        fresh = compute_resources(cluster.render_inputs(vmi))
    except ValueError:
        return {}
    wanted = wanted_resources(pod, fresh, may_shrink=has_shrunk(vmi))
    failure = ""
    if not is_asked_for(pod, wanted) and _fits(vmi):
        failure = await _resize(cluster, vmi, pod, wanted)
    return room(vmi, pod, wanted, failure) if grows else {}


def _fits(vmi: VirtualMachineInstance) -> bool:
    """Whether a resize serves one of the changes."""
    cpu = changes_cpu(vmi) and plugging.cpu_fits_in_place(vmi.spec)
    return cpu or plugging.memory_fits_in_place(vmi.spec)


def _was_resized(pod: JsonObject) -> bool:
    """Whether the pod's spec was changed since the pod was made."""
    generation = get_object(pod, "metadata").get("generation")
    return isinstance(generation, int) and generation > 1


async def _resize(cluster: Cluster, vmi: VirtualMachineInstance, pod: JsonObject, wanted: JsonObject) -> str:
    """Ask for the resources; returns why the API server refuses, or the empty string."""
    body = {"spec": {"containers": [{"name": _COMPUTE, "resources": wanted}]}}
    name, namespace = meta.name(pod), meta.namespace(pod)
    try:
        await cluster.client.patch(
            resources.PODS, name, body, namespace, type="strategic", subresource="resize"
        )
    except StatusError as error:
        if error.code not in _REFUSALS:
            raise
        text = f"pod {name} cannot be resized: {error.message}"
        known = {(item.reason, item.message) for item in vmi.status.conditions}
        if ("PodResizeFailed", text[:_LONGEST_MESSAGE]) not in known:
            cluster.recorder.event(described(vmi), "Warning", "FailedPodPatch", text[:_LONGEST_MESSAGE])
        return text
    return ""
