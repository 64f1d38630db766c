"""Resizing pods in place: whether the node can grant it, and changing what runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from kindling.node.pods import resources
from kindling.node.pods.admission import refusal
from kindling.node.pods.allocations import Allocations, view, wanted
from kindling.node.pods.cpu_quotas import CpuQuotas
from kindling.node.pods.pod_cgroups import PodCgroups
from kindling.node.pods.runtime_status import PodRuntimeStatus
from kindling.node.runtime.containerd import Containerd
from kindling.node.runtime.interface import ContainerState, RuntimeFailure
from kindling.scheduler import requests
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects.quantity import Quantity

_log = logging.getLogger(__name__)

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
DEFERRED, INFEASIBLE, ERROR = "Deferred", "Infeasible", "Error"
_NAMES = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Held:
    """Why a resize is not granted: Deferred until there is room, or Infeasible for ever on this node."""

    reason: str
    message: str


def obstacle(
    pod: JsonObject, others: Iterable[JsonObject], allocatable: Mapping[str, str], *, pinned: bool = False
) -> Held | None:
    """Why the node cannot grant what a pod's spec asks for, beside the `others`; None when it can.

    `pinned` says that the pod has processors of its own.
    """
    if pinned:
        text = "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy"
        return Held(INFEASIBLE, text)
    asked, capacity = requests.of_pod(pod), requests.parse_amounts(allocatable)
    for name in ("memory", "cpu"):
        if name in capacity and asked.get(name, 0) > capacity[name]:
            amounts = f"{name}, requested: {asked[name]}, capacity: {capacity[name]}"
            return Held(INFEASIBLE, f"Node didn't have enough capacity: {amounts}")
    found = refusal(pod, others, {name: allocatable[name] for name in _NAMES if name in allocatable})
    # Its own host ports are its already.
    return Held(DEFERRED, found.message) if found is not None and found.reason != "NodePorts" else None


def needs_restart(container: JsonObject, before: JsonObject) -> bool:
    """Whether the container's policy wants a restart for what changes of its resources."""
    policies = {
        get_str(entry, "resourceName"): get_str(entry, "restartPolicy")
        for entry in get_list(container, "resizePolicy")
    }
    return any(
        policies.get(name) == "RestartContainer"
        and _amounts(container["resources"], name) != _amounts(before, name)
        for name in _NAMES
    )


def is_resized(now: JsonObject, before: JsonObject) -> bool:
    """Whether processors or memory differ."""
    return any(_amounts(now, name) != _amounts(before, name) for name in _NAMES)


def _amounts(found: JsonObject, name: str) -> list[Quantity | None]:
    texts = (get_object(found, kind).get(name) for kind in ("requests", "limits"))
    return [None if text is None else Quantity.parse(text) for text in texts]


@dataclass
class _State:
    """What the conditions of one pod say."""

    held: Held | None = None
    in_progress: bool = False
    error: str = ""
    generation: int = 0


@dataclass
class ResizeServices:
    """What resizing needs from the rest of the node. `is_pinned` tells whether a pod has processors of its
    own; `record_event` takes pod, type, reason, message, container.
    """

    runtime: Containerd
    allocations: Allocations
    pod_cgroups: PodCgroups
    cpu_quotas: CpuQuotas
    admitted: Callable[[], Sequence[JsonObject]]
    allocatable: Callable[[], Mapping[str, str]]
    record_event: Callable[[JsonObject, str, str, str, str], None]
    node_memory_bytes: int
    is_pinned: Callable[[JsonObject], bool] = field(default=lambda _: False)


class Resizer:
    """Grants and carries out resizes of the pods of a node."""

    def __init__(self, services: ResizeServices) -> None:
        self._services = services
        self._states: dict[str, _State] = {}

    def view(self, pod: JsonObject) -> JsonObject:
        """The pod with the resources that it has been granted."""
        return view(pod, self._services.allocations.granted(pod))

    def decide(self, pod: JsonObject) -> None:
        """Grant what the pod's spec asks for, or note why not. Raises OSError."""
        services, uid = self._services, get_str(pod, "metadata", "uid")
        granted = services.allocations.granted(pod)
        if granted == wanted(pod):
            services.allocations.grant(pod)
            self._states.setdefault(uid, _State()).held = None
            return
        others = [each for each in services.admitted() if get_str(each, "metadata", "uid") != uid]
        held = obstacle(pod, others, services.allocatable(), pinned=services.is_pinned(pod))
        state = self._states.setdefault(uid, _State())
        generation = get_int(pod, "metadata", "generation", default=1)
        if held is not None:
            if held != state.held:
                text = _told(f"Pod resize {held.reason}", pod, held.message)
                services.record_event(pod, "Warning", f"Resize{held.reason}", text, "")
            state.held, state.generation = held, generation
            return
        services.allocations.grant(pod)
        self._states[uid] = _State(in_progress=True, generation=generation)
        services.record_event(pod, "Normal", "ResizeStarted", _told("Pod resize started", pod), "")

    async def actuate(self, pod: JsonObject, observed: PodRuntimeStatus) -> frozenset[str]:
        """Change what runs to what is granted; returns the containers that must be restarted for it.

        A failure is noted in the pod's conditions, and the next sync tries again. Raises OSError.
        """
        services, uid = self._services, get_str(pod, "metadata", "uid")
        granted = self.view(pod)
        self._assume(uid, granted, observed)
        actuated = services.allocations.actuated(uid)
        await services.cpu_quotas.hold_running(view(pod, dict(actuated)), observed)
        changed = [
            container
            for kind in ("containers", "initContainers")
            for container in get_list(granted, "spec", kind)
            if (before := actuated.get(get_str(container, "name"))) is not None
            and is_resized(get_object(container, "resources"), before)
        ]
        state = self._states.setdefault(uid, _State())
        if not changed and not state.in_progress:
            return frozenset()
        state.in_progress = True
        restarts = set()
        try:
            await services.pod_cgroups.loosen(view(pod, dict(actuated)), granted)
            for container in changed:
                name = get_str(container, "name")
                found = observed.current(name)
                if found is None or found.state is not ContainerState.RUNNING:
                    continue
                if needs_restart(container, actuated[name]):
                    restarts.add(name)
                    continue
                document = resources.linux_resources(granted, container, services.node_memory_bytes)
                document.pop("oom_score_adj")
                await services.runtime.update_resources(found.id, document)
                services.allocations.actuate(uid, name, get_object(container, "resources"))
            if restarts:
                return frozenset(restarts)
            await services.pod_cgroups.ensure(granted)
        except (RuntimeFailure, OSError) as error:
            if not state.error:
                text = _told("Pod resize error", granted, str(error))
                services.record_event(pod, "Warning", "ResizeError", text, "")
            _log.warning("resizing pod %s failed, trying again: %s", uid, error)
            state.error = str(error)
            return frozenset()
        self._states[uid] = _State(held=state.held, generation=state.generation)
        text = _told("Pod resize completed", granted)
        services.record_event(pod, "Normal", "ResizeCompleted", text, "")
        return frozenset()

    def _assume(self, uid: str, granted: JsonObject, observed: PodRuntimeStatus) -> None:
        """Take containers that an earlier version of the agent started for running with what they have."""
        known = self._services.allocations.actuated(uid)
        for name, amounts in wanted(granted).items():
            found = observed.current(name)
            if found is not None and name not in known:
                self._services.allocations.actuate(uid, name, amounts)

    def starting(self, pod: JsonObject, container: str) -> None:
        """Note that a container is started with what it is granted. Raises OSError."""
        granted = self._services.allocations.granted(pod)
        if container in granted:
            self._services.allocations.actuate(get_str(pod, "metadata", "uid"), container, granted[container])

    def conditions(self, uid: str) -> list[JsonObject]:
        """The pod's conditions of resizing, without times."""
        state = self._states.get(uid, _State())
        found: list[JsonObject] = []
        if state.held is not None:
            found.append(_condition(PENDING, state.generation, state.held.reason, state.held.message))
        if state.in_progress:
            found.append(_condition(IN_PROGRESS, state.generation, ERROR if state.error else "", state.error))
        return found

    def actuated(self, uid: str) -> Mapping[str, JsonObject]:
        """What the pod's containers run with."""
        return self._services.allocations.actuated(uid)

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone. Raises OSError."""
        self._states.pop(uid, None)
        self._services.allocations.forget(uid)


def _condition(kind: str, generation: int, reason: str, message: str) -> JsonObject:
    condition: JsonObject = {"type": kind, "status": "True", "observedGeneration": generation}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _told(prefix: str, pod: JsonObject, error: str = "") -> str:
    """The text of an event about a resize."""
    document: JsonObject = {}
    for kind in ("initContainers", "containers"):
        listed = [
            {"name": get_str(item, "name"), "resources": get_object(item, "resources")}
            for item in get_list(pod, "spec", kind)
        ]
        if listed:
            document[kind] = listed
    document["generation"] = get_int(pod, "metadata", "generation", default=1)
    if error:
        document["error"] = error
    return f"{prefix}: {orjson.dumps(document).decode()}"
