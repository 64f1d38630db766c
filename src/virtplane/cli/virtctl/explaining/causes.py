"""Why a machine is in its state: one rule for each printable status."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from virtplane.api import labels
from virtplane.api.conditions import Condition
from virtplane.api.kubevirt_v1.volume_sources import ContainerDiskSource
from virtplane.cli.virtctl.explaining import disks, placement
from virtplane.cli.virtctl.explaining.answer import Answer, Change
from virtplane.cli.virtctl.explaining.facts import Facts
from virtplane.deletions.waits import Wait

_STRATEGY = "spec.runStrategy"


def explain(facts: Facts) -> Answer:
    """Why the machine is in its state, in one sentence."""
    status = facts.vm.observed.printable_status or ""
    failure = _condition(facts.vm.observed.conditions, "Failure", "True")
    if failure is not None and status not in _BEFORE_FAILURES:
        return _failed(facts, failure)
    rule = _RULES.get(status, _unknown)
    return rule(facts)


def _condition(conditions: tuple[Condition, ...], kind: str, status: str) -> Condition | None:
    return next((each for each in conditions if (each.type, each.status) == (kind, status)), None)


def _of_instance(facts: Facts, kind: str, status: str) -> Condition | None:
    return _condition(facts.instance.status.conditions, kind, status) if facts.instance is not None else None


def _failed(facts: Facts, failure: Condition) -> Answer:
    message = (failure.message or failure.reason or "").rstrip(".")
    changes: list[Change] = []
    for name, matcher in (
        ("instancetype", facts.vm.spec.instancetype),
        ("preference", facts.vm.spec.preference),
    ):
        if matcher is not None and name in message.lower():
            advice = f"name one that exists: kubectl get vmcluster{name},vm{name} -n {_namespace(facts)}"
            changes.append(Change(f"spec.{name}.name", matcher.name or "", advice))
    if "exceeded quota" in message:
        changes.append(
            Change("ResourceQuota spec.hard", "", "raise it, or ask for less: the numbers are above")
        )
    return Answer(f"virt-controller could not go on: {message}.", tuple(changes))


def _terminating(facts: Facts) -> Answer:
    return deleted(facts.deletion) if facts.deletion is not None else Answer("it is being deleted.")


def deleted(wait: Wait) -> Answer:
    """What is said of a deleted object that is still there."""
    changes = (Change("metadata.finalizers", wait.finalizer, wait.advice or "none: it goes by itself"),)
    return Answer(
        f"it was deleted at {wait.since} and waits: {wait.why}.",
        changes if wait.finalizer else (),
        (f"it waits {wait.end()}",) if wait.finalizer else (),
    )


def _ending(facts: Facts) -> str:
    grace = facts.vm.spec.instance.termination_grace_period_seconds
    seconds = 30 if grace is None else grace
    return f"its guest has {seconds} s to shut down (spec.template.spec.terminationGracePeriodSeconds)"


def _stopping(facts: Facts) -> Answer:
    change = Change(
        "spec.template.spec.terminationGracePeriodSeconds",
        str(facts.vm.spec.instance.termination_grace_period_seconds or ""),
        f"virtctl stop {facts.vm.metadata.name} --force --grace-period 0 does not wait",
    )
    return Answer(f"{_ending(facts)}.", (change,))


def _paused(facts: Facts) -> Answer:
    name = facts.vm.metadata.name
    paused = _of_instance(facts, "Paused", "True")
    if paused is not None and paused.reason == "PausedIOError":
        advice = "make room on the storage of its disks, or repair it: the guest goes on by itself"
        return Answer(
            "its guest was paused because the storage of a disk returned an error, which a full one does.",
            (Change("spec.template.spec.volumes", ", ".join(each for _, each in facts.volumes), advice),),
        )
    why = paused.message if paused is not None else "it is paused"
    return Answer(f"{why}.", (Change("spec.template.spec.startStrategy", "", f"virtctl unpause vm {name}"),))


def _running(facts: Facts) -> Answer:
    vm, node = facts.vm, facts.instance.status.node_name if facts.instance is not None else ""
    restart = _condition(vm.observed.conditions, "RestartRequired", "True")
    if restart is not None:
        advice = f"virtctl restart {vm.metadata.name}"
        return Answer(
            f"its guest runs on {node}, without changes that wait for a restart: {restart.message}",
            (Change("spec.template.spec", "", advice),),
        )
    unready = _of_instance(facts, "Ready", "False")
    if unready is None:
        return Answer(f"it waits for nothing: its guest runs on {node} and is ready.")
    probe = vm.spec.instance.readiness_probe
    field = "spec.template.spec.readinessProbe" if probe is not None else "Pod status.conditions[Ready]"
    change = Change(field, "", "see what it checks in the guest: virtctl console " + vm.metadata.name)
    return Answer(
        f"its guest runs on {node} and is not ready: {unready.message or unready.reason}.", (change,)
    )


def _image(facts: Facts) -> Answer:
    failure = _of_instance(facts, "Synchronized", "False")
    message = ((failure.message if failure is not None else "") or "its image cannot be pulled").rstrip(".")
    changes = []
    for index, volume in enumerate(facts.vm.spec.instance.volumes):
        disk = volume.container_disk
        if disk is None or not disk.image or disk.image not in message:
            continue
        field = f"spec.template.spec.volumes[{index}].containerDisk"
        changes.append(Change(f"{field}.image", disk.image, "name an image that the nodes can pull"))
        if _is_always_pulled(disk):
            advice = "IfNotPresent, if the nodes have the image already, as after `virtplane load`"
            changes.append(Change(f"{field}.imagePullPolicy", disk.image_pull_policy or "", advice))
    return Answer(f"it waits for an image: {message}.", tuple(changes))


def _is_always_pulled(disk: ContainerDiskSource) -> bool:
    """Whether nodes ask the registry for the image though they have it: the default for ``latest``."""
    if disk.image_pull_policy:
        return disk.image_pull_policy == "Always"
    _, _, name = disk.image.rpartition("/")
    return "@" not in name and name.partition(":")[2] in ("", "latest")


def _unschedulable(facts: Facts) -> Answer:
    condition = _of_instance(facts, "PodScheduled", "False")
    if condition is not None and "persistentvolumeclaim" in (condition.message or "").lower():
        unbound = disks.unbound_claim(facts) or disks.missing_claim(facts)
        if unbound is not None:
            return unbound
    found = placement.explained(facts)
    if found is not None:
        return found
    return Answer("it waits for a node: nobody says why.")


def _provisioning(facts: Facts) -> Answer:
    return disks.loading_content(facts) or _starting(facts)


def _binding(facts: Facts) -> Answer:
    return disks.unbound_claim(facts) or _starting(facts)


def _starting(facts: Facts) -> Answer:
    found = placement.explained(facts)
    if found is not None:
        return found
    failure = _of_instance(facts, "Synchronized", "False")
    if failure is not None:
        return Answer(f"it waits: {(failure.message or failure.reason or '').rstrip('.')}.")
    if facts.instance is None or facts.pod is None:
        return Answer("it is about to start: virt-controller has not made its pod yet.")
    return _pod(facts, facts.pod)


def _pod(facts: Facts, pod: JsonObject) -> Answer:
    node = get_str(pod, "spec", "nodeName")
    waiting = [
        get_object(each, "state", "waiting")
        for kind in ("initContainerStatuses", "containerStatuses")
        for each in get_list(pod, "status", kind)
    ]
    said = next((each for each in waiting if each), {})
    warning = facts.warnings.get(meta.uid(pod), "")
    if get_str(pod, "status", "phase") == "Pending":
        why = warning or get_str(said, "message") or get_str(said, "reason") or "nothing is told yet"
        return Answer(f"its pod {meta.name(pod)} is being started on {node or 'no node yet'}: {why}.")
    return Answer(f"its pod runs on {node}, where virt-handler is starting the guest.")


def _crashing(facts: Facts) -> Answer:
    failure = facts.vm.observed.start_failure
    times, again = (failure.consecutive_fail_count, failure.retry_after_timestamp) if failure else (0, "")
    message = _of_instance(facts, "Synchronized", "False")
    why = f": {message.message}" if message is not None and message.message else ""
    advice = "true keeps the launcher of the next failure, to look into: kubectl logs, virsh"
    return Answer(
        f"its guest has ended {times} times in a row soon after its start; the next is not before"
        f" {again}{why}.",
        (Change(f"spec.template.metadata.annotations[{labels.KEEP_LAUNCHER_ALIVE}]", "", advice),),
    )


def _stopped(facts: Facts) -> Answer:
    spec = facts.vm.spec
    strategy = spec.run_strategy or ("Always" if spec.running else "Halted")
    field = _STRATEGY if spec.run_strategy else "spec.running"
    value = strategy if spec.run_strategy else str(bool(spec.running)).lower()
    start = f"virtctl start {facts.vm.metadata.name}"
    if strategy in ("Halted", "Manual"):
        return Answer("it is off, as it should be.", (Change(field, value, start),))
    if strategy in ("RerunOnFailure", "Once"):
        return Answer(
            "its guest has shut itself down, and is not started again.", (Change(field, value, start),)
        )
    return Answer("it is off, and about to be started.", (Change(field, value, "none: look again"),))


def _receiving(facts: Facts) -> Answer:
    return Answer(
        "it waits for a guest from another cluster.", (Change(_STRATEGY, "WaitAsReceiver", "send one"),)
    )


def _migrating(facts: Facts) -> Answer:
    state = facts.instance.status.migration_state if facts.instance is not None else None
    target = (state.target_node if state is not None else "") or "another node"
    return Answer(f"its guest runs, and is being moved to {target}.")


def _unknown(facts: Facts) -> Answer:
    return Answer("no controller has reported on it: is virt-controller running?")


def _or_starting(rule: Callable[[Facts], Answer | None]) -> Callable[[Facts], Answer]:
    return lambda facts: rule(facts) or _starting(facts)


_BEFORE_FAILURES = ("Terminating", "ErrorUnschedulable", "DataVolumeError", "ErrorPvcNotFound")

_RULES: Mapping[str, Callable[[Facts], Answer]] = {
    "Terminating": _terminating,
    "Stopping": _stopping,
    "Migrating": _migrating,
    "Paused": _paused,
    "Running": _running,
    "ErrorPvcNotFound": _or_starting(disks.missing_claim),
    "DataVolumeError": _or_starting(disks.failed_content),
    "ErrorUnschedulable": _unschedulable,
    "Provisioning": _provisioning,
    "WaitingForVolumeBinding": _binding,
    "ErrImagePull": _image,
    "ImagePullBackOff": _image,
    "Starting": _starting,
    "CrashLoopBackOff": _crashing,
    "Stopped": _stopped,
    "WaitingForReceiver": _receiving,
}


def _namespace(facts: Facts) -> str:
    return facts.vm.metadata.namespace
