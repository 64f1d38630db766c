"""How pods print: the status that sums up phase, reasons and container states."""

from __future__ import annotations

from typing import Any

from kindling.apiserver.kinds.machinery import printing as p
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta

_COMPLETED = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


def _is_sidecar(container: JsonObject) -> bool:
    return bool(container.get("restartPolicy") == "Always")


def _terminated_text(state: JsonObject) -> str:
    if state.get("reason"):
        return str(state["reason"])
    if state.get("signal"):
        return f"Signal:{state['signal']}"
    return f"ExitCode:{state.get('exitCode', 0)}"


class _Summary:
    """The values in the rows of a pod."""

    def __init__(self, pod: JsonObject) -> None:
        self.pod = pod
        self.spec = get_object(pod, "spec")
        self.status = get_object(pod, "status")
        self.ready = 0
        self.restarts = 0
        self.last_restart = ""
        self.reason = get_str(self.status, "reason") or get_str(self.status, "phase")
        scheduled = meta.get_condition(pod, "PodScheduled") or {}
        if scheduled.get("reason") == "SchedulingGated":
            self.reason = "SchedulingGated"
        self.sidecars = {
            container["name"]: container
            for container in get_list(self.spec, "initContainers")
            if _is_sidecar(container)
        }
        self.total = len(get_list(self.spec, "containers")) + len(self.sidecars)
        if not self._initializing() or meta.is_condition_true(pod, "Initialized"):
            self._containers()
        self._deletion()

    def _count_restarts(self, status: JsonObject) -> None:
        self.restarts += status.get("restartCount", 0)
        finished = get_str(status, "lastState", "terminated", "finishedAt")
        self.last_restart = max(self.last_restart, finished)

    def _initializing(self) -> bool:
        total = len(get_list(self.spec, "initContainers"))
        sidecar_restarts = 0
        for position, status in enumerate(get_list(self.status, "initContainerStatuses")):
            state = get_object(status, "state")
            self._count_restarts(status)
            terminated = state.get("terminated")
            waiting = get_str(state, "waiting", "reason")
            sidecar = status.get("name") in self.sidecars
            if sidecar:
                sidecar_restarts += status.get("restartCount", 0)
            if terminated is not None and terminated.get("exitCode", 0) == 0:
                continue
            if sidecar and status.get("started"):
                if status.get("ready"):
                    self.ready += 1
                continue
            if terminated is not None:
                self.reason = f"Init:{_terminated_text(terminated)}"
            elif waiting and waiting != "PodInitializing":
                self.reason = f"Init:{waiting}"
            else:
                self.reason = f"Init:{position}/{total}"
            return True
        return False

    def _containers(self) -> None:
        sidecars = [
            status
            for status in get_list(self.status, "initContainerStatuses")
            if status.get("name") in self.sidecars
        ]
        self.restarts = sum(status.get("restartCount", 0) for status in sidecars)
        self.last_restart = max(
            (get_str(status, "lastState", "terminated", "finishedAt") for status in sidecars), default=""
        )
        running = False
        for status in reversed(get_list(self.status, "containerStatuses")):
            self._count_restarts(status)
            state = get_object(status, "state")
            waiting = get_str(state, "waiting", "reason")
            terminated = state.get("terminated")
            if waiting:
                self.reason = waiting
            elif terminated is not None:
                self.reason = _terminated_text(terminated)
            elif status.get("ready") and state.get("running") is not None:
                running = True
                self.ready += 1
        if self.reason == "Completed" and running:
            self.reason = "Running" if meta.is_condition_true(self.pod, "Ready") else "NotReady"

    def _deletion(self) -> None:
        if not get_str(self.pod, "metadata", "deletionTimestamp"):
            return
        if self.status.get("reason") == "NodeLost":
            self.reason = "Unknown"
        elif self.status.get("phase") not in ("Succeeded", "Failed"):
            self.reason = "Terminating"

    def restart_text(self) -> str:
        if self.restarts and self.last_restart:
            return f"{self.restarts} ({p.since(self.last_restart)} ago)"
        return str(self.restarts)

    def readiness_gates(self) -> str:
        gates = get_list(self.spec, "readinessGates")
        if not gates:
            return p.NONE
        met = sum(meta.is_condition_true(self.pod, gate.get("conditionType", "")) for gate in gates)
        return f"{met}/{len(gates)}"


def _cells(pod: JsonObject) -> list[Any]:
    row = _Summary(pod)
    addresses = get_list(pod, "status", "podIPs")
    return [
        get_str(pod, "metadata", "name"),
        f"{row.ready}/{row.total}",
        row.reason,
        row.restart_text(),
        p.age(pod),
        (addresses[0].get("ip") if addresses else get_str(pod, "status", "podIP")) or p.NONE,
        get_str(pod, "spec", "nodeName") or p.NONE,
        get_str(pod, "status", "nominatedNodeName") or p.NONE,
        row.readiness_gates(),
    ]


def _conditions(pod: JsonObject) -> list[JsonObject]:
    phase = get_str(pod, "status", "phase")
    message = _COMPLETED.get(phase)
    if message is None:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}]


POD_TABLE = p.Table(
    p.NAME,
    p.plain("Ready", description="Ready containers of all."),
    p.plain("Status", description="What the pod is doing, in one word."),
    p.plain("Restarts", description="How often its containers were started again, and when last."),
    p.AGE,
    p.wide("IP"),
    p.wide("Node"),
    p.wide("Nominated Node"),
    p.wide("Readiness Gates"),
    fill=_cells,
    condition=_conditions,
)
