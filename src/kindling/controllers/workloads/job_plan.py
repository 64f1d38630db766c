"""What a Job needs next, and how it ends. Pure.

Every pod of a job carries a finalizer until its end is counted in the job's status, so that each end is
counted exactly once, even if pods are deleted by others meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kindling.controllers import pods as pod_facts
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.times import format_time, parse_time
from kubecore.resources import JOBS

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX_KEY = "batch.kubernetes.io/job-completion-index"
FIRST_BACKOFF_SECONDS = 10.0
LAST_BACKOFF_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a job, with reason and message."""

    success: bool
    reason: str
    message: str


REACHED = Verdict(True, "CompletionsReached", "Reached expected number of succeeded pods")
POLICY_REACHED_REASON = "SuccessPolicy"
FAILED_INDEXES = Verdict(False, "FailedIndexes", "Job has failed indexes")
MANY_FAILED_INDEXES = Verdict(
    False, "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
)
FAILURES_KEY = "batch.kubernetes.io/job-index-failure-count"
BACKOFF_EXCEEDED = Verdict(False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
DEADLINE_EXCEEDED = Verdict(False, "DeadlineExceeded", "Job was active longer than specified deadline")


def is_indexed(job: JsonObject) -> bool:
    """Whether pods are numbered."""
    return get_str(job, "spec", "completionMode") == "Indexed"


def is_suspended(job: JsonObject) -> bool:
    """Whether the job must have no pods now."""
    return get_object(job, "spec").get("suspend") is True


def is_over(job: JsonObject) -> bool:
    """Whether the job has ended for good."""
    return meta.is_condition_true(job, "Complete") or meta.is_condition_true(job, "Failed")


def pending_verdict(job: JsonObject) -> Verdict | None:
    """The result that was decided already, while the job waits for its last pods to end."""
    for kind, success in (("SuccessCriteriaMet", True), ("FailureTarget", False)):
        condition = meta.get_condition(job, kind)
        if condition is not None and condition.get("status") == "True":
            return Verdict(success, condition.get("reason", ""), condition.get("message", ""))
    return None


def index_of(pod: JsonObject) -> int | None:
    """The number of a pod of an indexed job."""
    text = meta.annotations(pod).get(INDEX_KEY, "")
    return int(text) if text.isdigit() else None


def parse_indexes(text: str) -> set[int]:
    """``1,3-5`` as numbers."""
    result: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        result.update(range(int(first), int(last or first) + 1))
    return result


def format_indexes(indexes: Iterable[int]) -> str:
    """Numbers as ``1,3-5``."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(
        str(first) if first == last else f"{first},{last}" if last == first + 1 else f"{first}-{last}"
        for first, last in parts
    )


def has_succeeded(pod: JsonObject) -> bool:
    """Whether the pod succeeded."""
    return get_str(pod, "status", "phase") == "Succeeded"


def has_failed(job: JsonObject, pod: JsonObject) -> bool:
    """Whether the pod failed; a terminating one counts too, unless podReplacementPolicy is Failed."""
    if get_str(pod, "status", "phase") == "Failed":
        return True
    waits = get_str(job, "spec", "podReplacementPolicy") == "Failed"
    return meta.is_being_deleted(pod) and not has_succeeded(pod) and not waits


@dataclass(slots=True)
class Count:
    """The job's pods by state, and the results of the ended ones."""

    active: list[JsonObject] = field(default_factory=list)
    terminating: int = 0
    succeeded: list[JsonObject] = field(default_factory=list)
    failed: list[JsonObject] = field(default_factory=list)
    ignored: list[JsonObject] = field(default_factory=list)


def count(job: JsonObject, pods: Sequence[JsonObject]) -> Count:
    """Sort the pods. Ended pods are listed only while they have the finalizer: the others are already counted
    in the status.

    Pods that are stopped because the job has succeeded do not count as failures.
    """
    result = Count()
    decided = pending_verdict(job)
    succeeded = decided is not None and decided.success
    for pod in pods:
        if meta.is_being_deleted(pod) and not pod_facts.is_finished(pod):
            result.terminating += 1
        tracked = TRACKING_FINALIZER in meta.finalizers(pod)
        if has_succeeded(pod):
            result.succeeded += [pod] if tracked else []
        elif has_failed(job, pod):
            if tracked:
                ignored = succeeded or failure_action(job, pod) == "Ignore"
                (result.ignored if ignored else result.failed).append(pod)
        elif not meta.is_being_deleted(pod):
            result.active.append(pod)
    return result


def failure_action(job: JsonObject, pod: JsonObject) -> str:
    """The action of the pod failure policy for a failed pod; Count when no rule matches."""
    for rule in get_list(job, "spec", "podFailurePolicy", "rules"):
        if _matches_exit_codes(rule, pod) or _matches_conditions(rule, pod):
            return str(rule.get("action", "Count"))
    return "Count"


def _matches_exit_codes(rule: JsonObject, pod: JsonObject) -> bool:
    wanted = rule.get("onExitCodes")
    if not wanted:
        return False
    statuses = [
        *get_list(pod, "status", "initContainerStatuses"),
        *get_list(pod, "status", "containerStatuses"),
    ]
    for status in statuses:
        if wanted.get("containerName") not in (None, status.get("name")):
            continue
        code = get_object(status, "state", "terminated").get("exitCode", 0)
        if code and (code in wanted.get("values", [])) == (wanted.get("operator") == "In"):
            return True
    return False


def _matches_conditions(rule: JsonObject, pod: JsonObject) -> bool:
    for pattern in get_list(rule, "onPodConditions"):
        condition = meta.get_condition(pod, pattern.get("type", ""))
        if condition is not None and condition.get("status") == (pattern.get("status") or "True"):
            return True
    return False


def policy_verdict(job: JsonObject, failed: Iterable[JsonObject]) -> Verdict | None:
    """The result that the pod failure policy demands."""
    for pod in failed:
        if failure_action(job, pod) == "FailJob":
            message = f"Pod {meta.namespace(pod)}/{meta.name(pod)} failed and matches the pod failure policy"
            return Verdict(False, "PodFailurePolicy", message)
    return None


def verdict(
    job: JsonObject, succeeded: int, failed: int, pods: Sequence[JsonObject], now: datetime
) -> Verdict | None:
    """Whether and why the job ends, with so many ends counted."""
    decided = pending_verdict(job)
    if decided is not None:
        return decided
    limit = get_int(job, "spec", "backoffLimit", default=6)
    restarts = 0
    if get_str(job, "spec", "template", "spec", "restartPolicy") == "OnFailure":
        restarts = sum(pod_facts.restarts(pod) for pod in pods if pod_facts.is_active(pod))
    if failed > limit or (restarts and restarts >= max(limit, 1)):
        return BACKOFF_EXCEEDED
    deadline = get_object(job, "spec").get("activeDeadlineSeconds")
    started = get_str(job, "status", "startTime")
    elapsed = (now - parse_time(started)).total_seconds() if started and not is_suspended(job) else 0.0
    if deadline is not None and started and elapsed >= deadline:
        return DEADLINE_EXCEEDED
    completions = get_object(job, "spec").get("completions")
    if completions is None:
        active = any(pod_facts.is_active(pod) for pod in pods)
        return REACHED if succeeded > 0 and not active else None
    return REACHED if succeeded >= completions else None


def wanted_active(job: JsonObject, succeeded: int, active: int) -> int:
    """How many pods should run now."""
    parallelism = get_int(job, "spec", "parallelism", default=1)
    completions = get_object(job, "spec").get("completions")
    if completions is None:
        # When one pod has succeeded, the job starts no more pods and waits for the running ones.
        return min(active, parallelism) if succeeded > 0 else parallelism
    return max(0, min(parallelism, int(completions) - succeeded))


def limits_indexes(job: JsonObject) -> bool:
    """Whether each completion index has its own backoff limit."""
    return is_indexed(job) and get_object(job, "spec").get("backoffLimitPerIndex") is not None


def index_failures(pod: JsonObject) -> int:
    """How often the completion index of this pod failed before."""
    text = meta.annotations(pod).get(FAILURES_KEY, "0")
    return int(text) if text.isdigit() else 0


def failures_of(index: int, pods: Iterable[JsonObject]) -> int:
    """How often a completion index failed so far, by the annotations of its pods."""
    return max(
        (
            index_failures(pod) + 1
            for pod in pods
            if index_of(pod) == index and get_str(pod, "status", "phase") == "Failed"
        ),
        default=0,
    )


def failed_indexes(job: JsonObject, failed: Iterable[JsonObject]) -> set[int]:
    """The completion indexes beyond their backoff limit: those known before, and newly failed ones."""
    result = parse_indexes(get_str(job, "status", "failedIndexes"))
    limit = get_int(job, "spec", "backoffLimitPerIndex")
    for pod in failed:
        index = index_of(pod)
        out_of_tries = index_failures(pod) >= limit or failure_action(job, pod) == "FailIndex"
        if index is not None and out_of_tries:
            result.add(index)
    return result


def success_policy_verdict(job: JsonObject, done: set[int]) -> Verdict | None:
    """The result that the success policy demands, given the completed indexes."""
    for position, rule in enumerate(get_list(job, "spec", "successPolicy", "rules")):
        chosen = parse_indexes(rule["succeededIndexes"]) if rule.get("succeededIndexes") else None
        counted = done if chosen is None else done & chosen
        needed = rule.get("succeededCount", len(chosen) if chosen is not None else 0)
        if needed and len(counted) >= needed:
            message = f"Matched rules at index {position}"
            return Verdict(True, POLICY_REACHED_REASON, message)
    return None


def indexes_verdict(job: JsonObject, done: set[int], failed: set[int]) -> Verdict | None:
    """The result of a job with a backoff limit per index: all completed or failed, or too many failed."""
    maximum = get_object(job, "spec").get("maxFailedIndexes")
    if maximum is not None and len(failed) > maximum:
        return MANY_FAILED_INDEXES
    total = get_int(job, "spec", "completions", default=1)
    return FAILED_INDEXES if failed and len(done | failed) >= total else None


def free_indexes(job: JsonObject, done: set[int], active: Iterable[JsonObject], wanted: int) -> list[int]:
    """The lowest completion indexes that are neither completed nor active."""
    taken = done | {index for pod in active if (index := index_of(pod)) is not None}
    total = get_int(job, "spec", "completions", default=1)
    return [index for index in range(total) if index not in taken][:wanted]


def backoff_seconds(job: JsonObject, failed: int, pods: Sequence[JsonObject], now: datetime) -> float:
    """The back-off in seconds before the next pod is created."""
    recent = [pod for pod in pods if get_str(pod, "status", "phase") == "Failed"]
    if not failed or not recent:
        return 0.0
    last = max(_finished_at(pod, now) for pod in recent)
    pause = min(FIRST_BACKOFF_SECONDS * 2 ** min(failed - 1, 16), LAST_BACKOFF_SECONDS)
    return float(max(0.0, pause - (now - last).total_seconds()))


def _finished_at(pod: JsonObject, now: datetime) -> datetime:
    """When the pod ended, from the most precise field of its status."""
    times = [
        get_str(status, "state", "terminated", "finishedAt")
        for status in get_list(pod, "status", "containerStatuses")
    ]
    if not any(times):
        ready = meta.get_condition(pod, "Ready") or {}
        times = [str(ready.get("lastTransitionTime") or ""), meta.creation_timestamp(pod)]
        times = [text for text in times if text][:1]
    known = [parse_time(text) for text in times if text]
    return max(known, default=now)


def pod(job: JsonObject, index: int | None, failures: int = 0) -> JsonObject:
    """A new pod of the job; `failures` is how often its completion index failed before."""
    made = pod_facts.from_template(get_object(job, "spec", "template"), job, JOBS)
    made["metadata"]["finalizers"] = [*made["metadata"].get("finalizers", []), TRACKING_FINALIZER]
    if index is None:
        return made
    metadata = made["metadata"]
    metadata["annotations"] = {**metadata.get("annotations", {}), INDEX_KEY: str(index)}
    if limits_indexes(job):
        metadata["annotations"][FAILURES_KEY] = str(failures)
    metadata["labels"] = {**metadata["labels"], INDEX_KEY: str(index)}
    metadata["generateName"] = f"{meta.name(job)}-{index}-"
    made["spec"].setdefault("hostname", f"{meta.name(job)}-{index}")
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX_KEY}']"}}
    spec = made["spec"]
    for container in (*get_list(spec, "initContainers"), *get_list(spec, "containers")):
        names = {entry.get("name") for entry in get_list(container, "env")}
        if "JOB_COMPLETION_INDEX" not in names:
            container["env"] = [
                *get_list(container, "env"),
                {"name": "JOB_COMPLETION_INDEX", "valueFrom": source},
            ]
    return made


def condition(kind: str, reason: str, message: str, now: datetime, status: str = "True") -> JsonObject:
    """A condition as jobs have them."""
    moment = format_time(now)
    return {
        "type": kind,
        "status": status,
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
        "reason": reason,
        "message": message,
    }
