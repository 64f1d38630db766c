"""The next actions for a pod that should run: a pure function of its runtime status.

Ephemeral containers start at once. Init containers run one after the other; sidecars among them only have to
start; containers follow once all are done. A lost sandbox is replaced, unless the pod has run and its restart
policy is Never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from kindling.node.pods import identity
from kindling.node.pods.container import find_container, is_restartable
from kindling.node.pods.runtime_status import LocalState, PodRuntimeStatus, ProbeResult
from kindling.node.runtime.interface import Container, ContainerState
from kubecore.json import JsonObject, get_list, get_str


@dataclass(frozen=True, slots=True)
class Kill:
    """A running container to stop, and why; the restart policy decides whether it is started again."""

    container: Container
    message: str


class SandboxAction(Enum):
    """What to do about the sandbox before anything else."""

    KEEP = "keep"
    CREATE = "create"
    KILL = "kill"
    """The pod has ended: stop everything."""


@dataclass(frozen=True, slots=True)
class PodActions:
    """What to create, kill and start next. `start` is in order."""

    sandbox: SandboxAction = SandboxAction.KEEP
    attempt: int = 0
    kill: Sequence[Kill] = field(default_factory=tuple)
    start: Sequence[str] = field(default_factory=tuple)


def compute_pod_actions(pod: JsonObject, observed: PodRuntimeStatus, local: LocalState) -> PodActions:
    """The actions for a pod that is not being deleted and whose phase is not final."""
    policy = get_str(pod, "spec", "restartPolicy", default="Always")
    if observed.sandbox is None or not observed.sandbox.ready:
        return _without_sandbox(pod, observed, policy)
    kills: list[Kill] = []
    starts = _debugging(pod, observed)
    initialized = _initialize(pod, observed, local, policy, kills, starts)
    if initialized is None:
        return PodActions(SandboxAction.KILL)
    if initialized:
        mains = [get_str(container, "name") for container in get_list(pod, "spec", "containers")]
        finished = [_consider(name, pod, observed, local, policy, kills, starts) for name in mains]
        if mains and all(finished):
            return PodActions(SandboxAction.KILL)
    return PodActions(kill=tuple(kills), start=tuple(starts))


def _debugging(pod: JsonObject, observed: PodRuntimeStatus) -> list[str]:
    """Ephemeral containers that have not been started: each runs once, whatever the others do."""
    names = (get_str(container, "name") for container in get_list(pod, "spec", "ephemeralContainers"))
    return [name for name in names if observed.newest(name) is None]


def should_restart(policy: str, exit_code: int) -> bool:
    """Whether a container that ended runs again."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def _without_sandbox(pod: JsonObject, observed: PodRuntimeStatus, policy: str) -> PodActions:
    mains = [get_str(container, "name") for container in get_list(pod, "spec", "containers")]
    newest = {name: observed.newest(name) for name in mains}
    ended = [item for item in newest.values() if item is not None]
    if policy == "Never" and any(True for _ in observed.all_containers()):
        return PodActions(SandboxAction.KILL)
    if len(ended) == len(mains) and all(
        item.state is ContainerState.EXITED and not should_restart(policy, item.exit_code) for item in ended
    ):
        return PodActions(SandboxAction.KILL)
    attempt = max((sandbox.attempt for sandbox in observed.sandboxes), default=-1) + 1
    return PodActions(SandboxAction.CREATE, attempt=attempt)


def _initialize(
    pod: JsonObject,
    observed: PodRuntimeStatus,
    local: LocalState,
    policy: str,
    kills: list[Kill],
    starts: list[str],
) -> bool | None:
    """Take the next step of initialization: True when it is complete, None when the pod has failed."""
    mains = [get_str(container, "name") for container in get_list(pod, "spec", "containers")]
    main_started = any(observed.current(name) is not None for name in mains)
    for container in get_list(pod, "spec", "initContainers"):
        name = get_str(container, "name")
        found = observed.current(name)
        if is_restartable(container):
            _consider(name, pod, observed, local, "Always", kills, starts)
            running = found is not None and found.state is ContainerState.RUNNING
            started = running and found is not None and local.probe_results_of(found).has_started
            started = started and found is not None and found.id not in local.starting
            if not started and not main_started:
                return False
            continue
        if main_started:
            continue
        if found is None or found.state in (ContainerState.CREATED, ContainerState.UNKNOWN):
            starts.append(name)
            return False
        if found.state is ContainerState.RUNNING:
            return False
        if found.exit_code != 0:
            if policy == "Never":
                return None
            starts.append(name)
            return False
    return True


def _consider(
    name: str,
    pod: JsonObject,
    observed: PodRuntimeStatus,
    local: LocalState,
    policy: str,
    kills: list[Kill],
    starts: list[str],
) -> bool:
    """Start, restart or kill one container as needed; True when it has ended and is not restarted."""
    found = observed.current(name)
    if found is None:
        previous = observed.newest(name)
        ended = previous is not None and previous.state is ContainerState.EXITED
        if ended and previous is not None and not should_restart(policy, previous.exit_code):
            return True
        starts.append(name)
        return False
    if found.state is ContainerState.RUNNING:
        if _is_changed(pod, found):
            # Whatever the restart policy says.
            kills.append(Kill(found, f"Container {name} definition changed, will be restarted"))
            starts.append(name)
            return False
        if name in local.resized:
            kills.append(Kill(found, f"Container {name} resize requires restart"))
            starts.append(name)
            return False
        results = local.probe_results_of(found)
        for kind, result in (("startup", results.startup), ("liveness", results.liveness)):
            if result is ProbeResult.FAILURE:
                ending = "will be restarted" if policy != "Never" else "will be killed"
                kills.append(Kill(found, f"Container {name} failed {kind} probe, {ending}"))
                break
        return False
    if found.state is ContainerState.EXITED and not should_restart(policy, found.exit_code):
        return True
    starts.append(name)
    return False


def _is_changed(pod: JsonObject, container: Container) -> bool:
    """Whether the container was made from another definition (of another image)."""
    made_from = container.annotations.get(identity.ANNOTATION_HASH)
    definition = find_container(pod, container.name)
    return made_from is not None and bool(definition) and made_from != identity.container_hash(definition)
