"""A pod's status as a kubelet reports it: a pure function of the pod, its runtime status and local state."""

from __future__ import annotations

from datetime import UTC, datetime

from kindling.node.pods import identity
from kindling.node.pods.conditions import StatusInputs, conditions, has_begun
from kindling.node.pods.container import is_restartable
from kindling.node.pods.pod_actions import should_restart
from kindling.node.pods.resources import qos_class
from kindling.node.pods.runtime_status import Waiting
from kindling.node.runtime.interface import Container, ContainerState
from kubecore.json import JsonObject, get_bool, get_int, get_list, get_object, get_str
from kubecore.objects.times import format_time

_FINAL = ("Succeeded", "Failed")
_MAX_MESSAGES = 12 * 1024
"""Bytes of the termination messages of all containers of one pod: each has an equal share."""


def pod_status(pod: JsonObject, inputs: StatusInputs) -> JsonObject:
    """The new status. Conditions that others own are carried over from `pod`."""
    old = get_object(pod, "status")
    init = [
        _container_status(pod, container, inputs, init=True)
        for container in get_list(pod, "spec", "initContainers")
    ]
    main = [
        _container_status(pod, container, inputs, init=False)
        for container in get_list(pod, "spec", "containers")
    ]
    phase = _phase(pod, init, main, inputs)
    if get_str(old, "phase") in _FINAL:
        phase = get_str(old, "phase")
    shown = _shown_phase(phase, get_str(old, "phase"), inputs)
    status: JsonObject = {
        "observedGeneration": get_int(pod, "metadata", "generation", default=1),
        "phase": shown,
        "conditions": conditions(pod, phase, init, main, inputs),
        "startTime": get_str(old, "startTime") or inputs.now,
        "qosClass": qos_class(pod),
    }
    if inputs.node.ips:
        status["hostIP"] = inputs.node.ips[0]
        status["hostIPs"] = [{"ip": ip} for ip in inputs.node.ips]
    ips = _pod_ips(pod, phase, inputs)
    if ips:
        status["podIP"] = ips[0]
        status["podIPs"] = [{"ip": ip} for ip in ips]
    if init:
        status["initContainerStatuses"] = init
    if main:
        status["containerStatuses"] = main
    debugging = [
        _ephemeral_status(pod, each, inputs) for each in get_list(pod, "spec", "ephemeralContainers")
    ]
    if debugging:
        status["ephemeralContainerStatuses"] = debugging
    reason = inputs.reason or get_str(old, "reason")
    if reason:
        status |= {"reason": reason, "message": inputs.message or get_str(old, "message")}
    if shown not in _FINAL:
        status["resources"] = {}
    return status


def _shown_phase(phase: str, old: str, inputs: StatusInputs) -> str:
    """The phase to report. A final one is held back until the sandbox is stopped and its IP is free."""
    sandbox = inputs.observed.sandbox
    stands = sandbox is not None and sandbox.ready and not inputs.ending
    if phase in _FINAL and old not in _FINAL and stands:
        return old or "Pending"
    return phase


def _pod_ips(pod: JsonObject, phase: str, inputs: StatusInputs) -> tuple[str, ...]:
    if get_bool(pod, "spec", "hostNetwork"):
        return inputs.node.ips
    if inputs.observed.ips:
        return inputs.observed.ips
    if phase in _FINAL or inputs.ending:
        # The status of an ended pod keeps the pod's IP addresses, as a kubelet's does.
        return tuple(get_str(entry, "ip") for entry in get_list(pod, "status", "podIPs"))
    return ()


def timestamp(nanoseconds: int) -> str:
    """RFC 3339 with second precision, as API times are."""
    return format_time(datetime.fromtimestamp(nanoseconds / 1e9, UTC))


def _container_status(
    pod: JsonObject, container: JsonObject, inputs: StatusInputs, *, init: bool
) -> JsonObject:
    name = get_str(container, "name")
    history = inputs.observed.containers.get(name, ())
    found = history[0] if history else None
    results = inputs.local.probe_results_of(found) if found is not None else None
    running = found is not None and found.state is ContainerState.RUNNING
    hooked = found is not None and found.id not in inputs.local.starting
    started = running and hooked and results is not None and results.has_started
    ready = started and results is not None and results.is_ready
    if init and not is_restartable(container):
        ready = found is not None and found.state is ContainerState.EXITED and found.exit_code == 0
        started = started and running
    state, last = _states(pod, container, inputs, init=init)
    status: JsonObject = {
        "name": name,
        "state": state,
        "lastState": last,
        "ready": ready,
        "restartCount": _restarts(found),
        "image": get_str(container, "image"),
        "imageID": found.image_ref if found is not None else "",
        "started": started,
    }
    if found is not None:
        status["containerID"] = f"containerd://{found.id}"
        actual = inputs.local.actuated.get(name) or get_object(container, "resources")
        status["resources"] = {
            kind: values for kind in ("limits", "requests") if (values := get_object(actual, kind))
        }
        if running and get_object(container, "resources", "requests"):
            status["allocatedResources"] = get_object(container, "resources", "requests")
    mounts = [_mount_status(mount) for mount in get_list(container, "volumeMounts")]
    if mounts:
        status["volumeMounts"] = mounts
    return status


def _ephemeral_status(pod: JsonObject, container: JsonObject, inputs: StatusInputs) -> JsonObject:
    """An ephemeral container is never ready, and whether it has started nobody asks."""
    status = _container_status(pod, container, inputs, init=False)
    state = status["state"]
    history = inputs.observed.containers.get(get_str(container, "name"), ())
    if history and history[0].state is ContainerState.EXITED:
        state = _terminated(history[0], _message_limit(pod))
    del status["started"]
    status.pop("allocatedResources", None)
    return status | {"ready": False, "state": state, "lastState": {}}


def _mount_status(mount: JsonObject) -> JsonObject:
    status = {"name": get_str(mount, "name"), "mountPath": get_str(mount, "mountPath")}
    if get_bool(mount, "readOnly"):
        return status | {"readOnly": True, "recursiveReadOnly": "Disabled"}
    return status


def _states(
    pod: JsonObject, container: JsonObject, inputs: StatusInputs, *, init: bool
) -> tuple[JsonObject, JsonObject]:
    """The current and the last state."""
    name = get_str(container, "name")
    history = inputs.observed.containers.get(name, ())
    default = _default_waiting(pod, init=init)
    limit = _message_limit(pod)
    waiting = inputs.local.waiting.get(name)
    if not history:
        if inputs.ending:
            return _lost(), {}
        return _waiting(waiting or default), {}
    newest = history[0]
    last = _terminated(history[1], limit) if len(history) > 1 else {}
    if newest.state is ContainerState.RUNNING:
        return {"running": {"startedAt": timestamp(newest.started_at)}}, last
    if newest.state is ContainerState.EXITED:
        policy = "Always" if init and is_restartable(container) else _policy(pod)
        again = should_restart(policy, newest.exit_code)
        if init and not is_restartable(container) and newest.exit_code == 0:
            again = False
        if waiting is not None and again and not inputs.ending:
            return _waiting(waiting), _terminated(newest, limit)
        return _terminated(newest, limit), last
    if inputs.ending:
        return _lost(), last
    return _waiting(waiting or default), last


def _policy(pod: JsonObject) -> str:
    return get_str(pod, "spec", "restartPolicy", default="Always")


def _default_waiting(pod: JsonObject, *, init: bool) -> Waiting:
    return Waiting("PodInitializing" if get_list(pod, "spec", "initContainers") else "ContainerCreating")


def _waiting(waiting: Waiting) -> JsonObject:
    details = {"reason": waiting.reason}
    return {"waiting": details | ({"message": waiting.message} if waiting.message else {})}


def _lost() -> JsonObject:
    return {
        "terminated": {
            "exitCode": 137,
            "reason": "ContainerStatusUnknown",
            "message": "The container could not be located when the pod was terminated",
            "startedAt": None,
            "finishedAt": None,
        }
    }


def _message_limit(pod: JsonObject) -> int:
    """How many bytes each container's termination message may have."""
    count = len(get_list(pod, "spec", "initContainers")) + len(get_list(pod, "spec", "containers"))
    return _MAX_MESSAGES // max(count, 1)


def _terminated(container: Container, message_limit: int) -> JsonObject:
    details: JsonObject = {
        "exitCode": container.exit_code,
        "reason": container.reason or ("Completed" if container.exit_code == 0 else "Error"),
        # A container that never started gets the epoch (1970), as from a kubelet.
        "startedAt": timestamp(container.started_at),
        "finishedAt": timestamp(container.finished_at),
        "containerID": f"containerd://{container.id}",
    }
    if container.message:
        # Drop a character that the limit cuts in two: the bytes left of it are not valid UTF-8.
        details["message"] = container.message.encode()[:message_limit].decode("utf-8", "ignore")
    return {"terminated": details}


def _restarts(container: Container | None) -> int:
    if container is None:
        return 0
    return int(container.annotations.get(identity.ANNOTATION_RESTARTS, container.attempt))


def _phase(pod: JsonObject, init: list[JsonObject], main: list[JsonObject], inputs: StatusInputs) -> str:
    if inputs.reason and inputs.ending:
        return "Failed"
    policy = _policy(pod)
    if not inputs.ending:
        for container, status in zip(get_list(pod, "spec", "initContainers"), init, strict=True):
            ended = get_object(status, "state", "terminated")
            if is_restartable(container):
                if not status["started"] and not has_begun(main):
                    return "Pending"
                continue
            if ended and ended["exitCode"] == 0:
                continue
            if ended and policy == "Never":
                return "Failed"
            return "Pending"
    running = sum("running" in item["state"] for item in main)
    stopped = [
        get_object(item["state"], "terminated") or get_object(item["lastState"], "terminated")
        for item in main
        if "running" not in item["state"]
    ]
    if any(not item for item in stopped):
        return "Failed" if inputs.ending else "Pending"
    if running:
        return "Running"
    succeeded = all(item["exitCode"] == 0 for item in stopped)
    if inputs.ending:
        return "Succeeded" if succeeded else "Failed"
    if policy == "Always":
        return "Running"
    if succeeded:
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"
