"""What the status of a Job may say, and what may become of what it said (``/status`` of a Job).

A rule about several fields is asked only when one of them changes: a status that was written before its spec
changed is the controller's to correct, and must not keep everybody else from writing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kindling.apiserver.kinds.batch.indexes import count_indexes, shared_index
from kindling.apiserver.kinds.machinery import fields as f
from kubecore.json import JsonObject, get_bool, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.fields import OMITTED, FieldError, FieldPath, duplicate, invalid, required
from kubecore.objects.times import parse_time

_STATUS = FieldPath("status")
_CONDITIONS = _STATUS.child("conditions")
_COUNTS = f.status(*f.counts("active", "succeeded", "failed", "ready", "terminating"))
_TERMINAL = ("Failed", "Complete", "FailureTarget")


@dataclass(frozen=True, slots=True)
class _Write:
    """A write of a status: the job with its new and with its old one."""

    new: JsonObject
    old: JsonObject

    @property
    def status(self) -> JsonObject:
        """The new status."""
        return get_object(self.new, "status")

    @property
    def spec(self) -> JsonObject:
        """What the job is to do."""
        return get_object(self.new, "spec")

    def has(self, condition: str) -> bool:
        """Whether the new status has a condition."""
        return meta.is_condition_true(self.new, condition)

    def had(self, condition: str) -> bool:
        """Whether the old status has a condition."""
        return meta.is_condition_true(self.old, condition)

    @property
    def is_finished(self) -> bool:
        """Whether the job has come to its end, good or bad."""
        return self.has("Complete") or self.has("Failed")

    def changes(self, *names: str) -> bool:
        """Whether one of the fields or, with a capital letter, conditions differs."""
        before = get_object(self.old, "status")
        return any(
            self.has(name) != self.had(name)
            if name[0].isupper()
            else self.status.get(name) != before.get(name)
            for name in names
        )

    @property
    def finishes(self) -> bool:
        """Whether the job ends, or ends no longer, by this write."""
        return self.is_finished != (self.had("Complete") or self.had("Failed"))


_Rule = Callable[[_Write], Iterator[FieldError]]


def validate_job_status_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Counts are not negative, what is said of the end fits together, and what has ended stays so."""
    write = _Write(new, old)
    yield from _COUNTS(new, old)
    yield from _uncounted(write.status)
    for rule in _RULES:
        yield from rule(write)


def _uncounted(status: JsonObject) -> Iterator[FieldError]:
    """Pods that ended and are not counted yet: each once."""
    seen: set[str] = set()
    for field in ("succeeded", "failed"):
        for position, uid in enumerate(get_list(status, "uncountedTerminatedPods", field)):
            at = _STATUS.child("uncountedTerminatedPods", field).index(position)
            if not uid:
                yield invalid(at, uid, "must not be empty")
            elif uid in seen:
                yield duplicate(at, uid)
            seen.add(uid)


def _conflicts(write: _Write) -> Iterator[FieldError]:
    """Conditions that exclude each other."""
    if write.has("Complete"):
        for other, shown in (("Failed", "Failed=true"), ("FailureTarget", "FailureTarget=true")):
            if write.changes("Complete", other) and write.has(other):
                yield _refused(f"cannot set Complete=True and {shown} conditions")


def _completion_time(write: _Write) -> Iterator[FieldError]:
    """The time of a good end is there with it, and not before the start."""
    at, moment = _STATUS.child("completionTime"), write.status.get("completionTime")
    if write.changes("Complete", "completionTime"):
        if moment is not None and not write.has("Complete"):
            text = "cannot set completionTime when there is no Complete=True condition"
            yield invalid(at, moment, text)
        if moment is None and write.has("Complete"):
            yield required(at, "completionTime is required for Complete jobs")
    start = write.status.get("startTime")
    is_new = write.changes("startTime", "completionTime")
    if is_new and start and moment and parse_time(moment) < parse_time(start):
        yield invalid(at, moment, "completionTime cannot be set before startTime")


def _announced(write: _Write) -> Iterator[FieldError]:
    """An end is announced before the pods of the job are gone."""
    for end, sign, shown in (
        ("Failed", "FailureTarget", "FailureTarget=true"),
        ("Complete", "SuccessCriteriaMet", "SuccessCriteriaMet=true"),
    ):
        if write.changes(end, sign) and write.has(end) and not write.has(sign):
            yield _refused(f"cannot set {end}=True condition without the {shown} condition")


def _finished(write: _Write) -> Iterator[FieldError]:
    """A job that has ended has no pods that run, end or are not counted yet."""
    if not write.is_finished:
        return
    status = write.status
    active, terminating = get_int(status, "active"), get_int(status, "terminating")
    if (write.finishes or write.changes("active")) and active > 0:
        yield invalid(_STATUS.child("active"), active, "active>0 is invalid for finished job")
    if (write.finishes or write.changes("startTime")) and not get_str(status, "startTime"):
        yield required(_STATUS.child("startTime"), "startTime is required for finished job")
    uncounted = get_object(status, "uncountedTerminatedPods")
    if (write.finishes or write.changes("uncountedTerminatedPods")) and any(uncounted.values()):
        text = "uncountedTerminatedPods needs to be empty for finished job"
        yield invalid(_STATUS.child("uncountedTerminatedPods"), uncounted, text)
    if (write.finishes or write.changes("terminating")) and terminating > 0:
        yield invalid(_STATUS.child("terminating"), terminating, "terminating>0 is invalid for finished job")


def _indexes(write: _Write) -> Iterator[FieldError]:
    """Lists of indexes are of jobs that count by index, and no index has both ends."""
    completed, failed = write.status.get("completedIndexes") or "", write.status.get("failedIndexes")
    completions = write.spec.get("completions")
    is_limited = write.spec.get("backoffLimitPerIndex") is not None
    if write.changes("completedIndexes"):
        yield from _listed("completedIndexes", completed, completions)
    if write.changes("failedIndexes") and failed is not None and is_limited:
        yield from _listed("failedIndexes", failed, completions)
    if write.changes("completedIndexes") and completed and write.spec.get("completionMode") != "Indexed":
        text = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield invalid(_STATUS.child("completedIndexes"), completed, text)
    if write.changes("failedIndexes") and failed is not None and not is_limited:
        text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield invalid(_STATUS.child("failedIndexes"), failed, text)
    if write.changes("completedIndexes", "failedIndexes") and completions is not None and failed is not None:
        shared = shared_index(completed, failed, completions)
        if shared is not None:
            text = f"failedIndexes and completedIndexes overlap at index: {shared}"
            yield invalid(_STATUS.child("failedIndexes"), failed, text)


def _listed(field: str, indexes: str, completions: int | None) -> Iterator[FieldError]:
    if completions is None:
        return
    try:
        count_indexes(indexes, completions)
    except ValueError as error:
        yield invalid(_STATUS.child(field), indexes, f"error parsing {field}: {error}")


def _ready(write: _Write) -> Iterator[FieldError]:
    """Of the pods that run, some are ready."""
    ready = write.status.get("ready")
    if write.changes("ready", "active") and ready is not None and ready > get_int(write.status, "active"):
        yield invalid(_STATUS.child("ready"), ready, "cannot set more ready pods than active")


def _success(write: _Write) -> Iterator[FieldError]:
    """A job whose criteria are met has not failed, and one with a policy completes by it."""
    is_met = write.has("SuccessCriteriaMet")
    for other, shown in (("Failed", "Failed=true"), ("FailureTarget", "FailureTarget=true")):
        if is_met and write.has(other):
            yield _refused(f"cannot set SuccessCriteriaMet=True and {shown} conditions")
    if write.spec.get("successPolicy") is not None and not is_met and write.has("Complete"):
        yield _refused("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")


def _lasting(write: _Write) -> Iterator[FieldError]:
    """What has ended stays so, and nothing that was counted is forgotten."""
    for kind in _TERMINAL:
        if write.had(kind) and not write.has(kind):
            yield _refused(f"cannot disable the terminal {kind}=True condition")
    counters = ["failed"]
    spec = write.spec
    if spec.get("completionMode") != "Indexed" or spec.get("completions") != spec.get("parallelism"):
        counters.append("succeeded")
    for counter in counters:
        if get_int(write.status, counter) < get_int(write.old, "status", counter):
            text = f"cannot decrease the {counter} counter"
            yield invalid(_STATUS.child(counter), get_int(write.status, counter), text)


def _times(write: _Write) -> Iterator[FieldError]:
    """Times that are known stay."""
    before = get_object(write.old, "status")
    completed = write.status.get("completionTime")
    if completed and before.get("completionTime") and write.changes("completionTime"):
        yield invalid(_STATUS.child("completionTime"), completed, "completionTime cannot be mutated")
    if before.get("startTime") and write.changes("startTime") and not get_bool(write.spec, "suspend"):
        yield required(_STATUS.child("startTime"), "startTime cannot be removed for unsuspended job")


def _criteria(write: _Write) -> Iterator[FieldError]:
    """Criteria that are met stay so, and are met before the end."""
    is_met, was_met = write.has("SuccessCriteriaMet"), write.had("SuccessCriteriaMet")
    if was_met and not is_met:
        yield _refused("cannot disable the SuccessCriteriaMet=True condition")
    if write.had("Complete") and is_met and not was_met:
        yield _refused("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")


def _refused(text: str) -> FieldError:
    return invalid(_CONDITIONS, OMITTED, text)


_RULES: tuple[_Rule, ...] = (
    _conflicts,
    _completion_time,
    _announced,
    _finished,
    _indexes,
    _ready,
    _success,
    _lasting,
    _times,
    _criteria,
)
