"""Jobs and CronJobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kindling.apiserver.kinds.core.pods.internal import internal_pod_spec
from kindling.apiserver.kinds.core.pods.validation import validate_template
from kindling.apiserver.kinds.core.pods.warnings import name_warning, template_warnings
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.checks import IMMUTABLE, domain_prefixed_path, immutable
from kindling.apiserver.kinds.machinery.internal import internal_form
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    invalid,
    not_supported,
    required,
)
from kubecore.objects.schedules import ScheduleError, check_schedule
from kubecore.objects.selectors import (
    SelectorError,
    from_label_selector_object,
    validate_label_selector_object,
)

from .policies import INTERNAL_FAILURE, INTERNAL_SUCCESS, failure_policy, success_policy

MAX_CRON_NAME = 52
"""Names of a cron job's jobs get eleven more characters."""
GENERATED_LABELS = (
    ("controller-uid", "uid"),
    ("job-name", "name"),
    ("batch.kubernetes.io/controller-uid", "uid"),
    ("batch.kubernetes.io/job-name", "name"),
)
_SPEC = FieldPath("spec")
_MAX_INDEXED, _MAX_OF_MANY = 100_000, 10_000
_PREFIX = re.compile("^(CRON_)?TZ=[^ ]* *")
_NO_TIME_ZONE = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
_EXPLICIT = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"


def validate_job(job: JsonObject) -> Iterator[FieldError]:
    """A new job, its selector generated."""
    yield from _validate_generated(job)
    yield from _JOB(job)


def _match(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    """The template carries the labels that the selector picks."""
    labels = get_object(spec, "template", "metadata", "labels")
    try:
        picks = from_label_selector_object(spec.get("selector"))
    except SelectorError:
        return
    if spec.get("selector") is not None and not picks.matches(labels):
        at = path.child("template", "metadata", "labels")
        yield invalid(at, labels or None, "`selector` does not match template `labels`")


def _validate_generated(job: JsonObject) -> Iterator[FieldError]:
    spec = get_object(job, "spec")
    if spec.get("manualSelector"):
        return
    if spec.get("selector") is None:
        yield required(_SPEC.child("selector"))
        return
    labels = get_object(spec, "template", "metadata", "labels")
    at = _SPEC.child("template", "metadata", "labels")
    for label, field in GENERATED_LABELS:
        wanted = get_str(job, "metadata", field)
        if label not in labels:
            yield required(at.key(label), "must be '" + wanted + "'")
        elif labels[label] != wanted:
            yield invalid(at, labels, f"must be '{wanted}'")
    generated = {label: get_str(job, "metadata", field) for label, field in GENERATED_LABELS}
    selector = spec["selector"]
    if not validate_label_selector_object(selector, at) and not from_label_selector_object(selector).matches(
        generated
    ):
        yield invalid(_SPEC.child("selector"), selector, "`selector` not auto-generated")


def _limits(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    """Indexes that may fail are counted where the failures of each are."""
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required(path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified")


def _indexed(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    """What only jobs that count by index may have, and how large such jobs may be."""
    if spec.get("completionMode") != "Indexed":
        if spec.get("completionMode") == "NonIndexed":
            for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
                if spec.get(field) is not None:
                    yield invalid(path.child(field), spec[field], "requires indexed completion mode")
        return
    completions, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    failed, at = spec.get("maxFailedIndexes"), path.child("maxFailedIndexes")
    if completions is None:
        yield required(path.child("completions"), "when completion mode is Indexed")
    if parallelism > _MAX_INDEXED:
        text = f"must be less than or equal to {_MAX_INDEXED} when completion mode is Indexed"
        yield invalid(path.child("parallelism"), parallelism, text)
    if failed is not None and completions is not None and failed > completions:
        yield invalid(at, failed, "must be less than or equal to completions")
    if failed is not None and failed > _MAX_INDEXED:
        yield invalid(at, failed, f"must be less than or equal to {_MAX_INDEXED}")
    if (completions or 0) > _MAX_INDEXED and spec.get("backoffLimitPerIndex") is not None:
        yield from _many_indexes(path, spec)


def _many_indexes(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    """The limits of jobs with so many indexes that each failure is expensive to keep."""
    failed, parallelism = spec.get("maxFailedIndexes"), spec.get("parallelism") or 0
    at = path.child("maxFailedIndexes")
    text = (
        f"must be less than or equal to {_MAX_OF_MANY} when completions are above {_MAX_INDEXED} and used "
        "with backoff limit per index"
    )
    if failed is None:
        yield required(at, f"must be specified when completions is above {_MAX_INDEXED}")
    if parallelism > _MAX_OF_MANY:
        yield invalid(path.child("parallelism"), parallelism, text)
    if failed is not None and failed > _MAX_OF_MANY:
        yield invalid(at, failed, text)


def _replacement(path: FieldPath, spec: JsonObject) -> list[FieldError]:
    several = () if spec.get("podFailurePolicy") is not None else ("TerminatingOrFailed",)
    return f.check_fields(spec, path, f.given("podReplacementPolicy", f.choice("Failed", *several)))


def _restart_policy(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    policy = get_str(spec, "template", "spec", "restartPolicy")
    at = path.child("template", "spec", "restartPolicy")
    if policy in ("", "Always"):
        yield required(at, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield not_supported(at, policy, ["OnFailure", "Never"])
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        yield invalid(at, policy, 'only "Never" is supported when podFailurePolicy is specified')


_JOB_SPEC: tuple[f.Row, ...] = (
    *f.counts("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit"),
    *f.counts("ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes"),
    _limits,
    f.given("managedBy", domain_prefixed_path, f.shorter(63)),
    f.given("completionMode", f.choice("Indexed", "NonIndexed")),
    _indexed,
    failure_policy,
    success_policy,
    _replacement,
    f.given("selector", f.selector),
    f.part("template", validate_template),
    _restart_policy,
)
"""The spec of a job or of a cron job's template."""
_JOB = f.spec(*_JOB_SPEC, _match)


def validate_job_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Only sizes, limits and, of a suspended job, some of the template change."""
    spec, before = get_object(new, "spec"), get_object(old, "spec")
    # Judged as a new job and again as a change: the server reports the findings of both.
    yield from validate_job(new)
    yield from _JOB(new)
    yield from _completions(spec, before)
    yield from immutable(_SPEC.child("selector"), spec.get("selector"), before.get("selector"))
    yield from _template_stays(spec, old)
    for field, shape in _FROZEN.items():
        shown, was = internal_form(spec.get(field), shape), internal_form(before.get(field), shape)
        yield from immutable(_SPEC.child(field), shown, was)


_FROZEN: dict[str, JsonObject | None] = {
    "completionMode": None,
    "podFailurePolicy": INTERNAL_FAILURE,
    "backoffLimitPerIndex": None,
    "managedBy": None,
    "successPolicy": INTERNAL_SUCCESS,
}
"""What never changes, in the shape in which errors quote it."""


def _template_stays(spec: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """The template is immutable, but for what a suspended job may still change."""
    template, known = get_object(spec, "template"), get_object(old, "spec", "template")
    loose = _loose_fields(old)
    given, before = _fixed(template, loose), _fixed(known, loose)
    if given["spec"] != before["spec"]:
        shown = internal_pod_spec(get_object(template, "spec"))
        yield invalid(_SPEC.child("template", "spec"), shown, IMMUTABLE)
    elif given != before:
        yield invalid(_SPEC.child("template"), template, IMMUTABLE)


def _loose_fields(job: JsonObject) -> frozenset[str]:
    """What of a job's template may change: where pods run, until it starts; what they take, at rest."""
    if not get_object(job, "spec").get("suspend"):
        return frozenset()
    if not get_str(job, "status", "startTime"):
        return frozenset(["placement", "resources"])
    conditions = get_list(job, "status", "conditions")
    at_rest = any(each.get("type") == "Suspended" and each.get("status") == "True" for each in conditions)
    at_rest = at_rest and not get_object(job, "status").get("active")
    return frozenset(["resources"]) if at_rest else frozenset()


def _fixed(template: JsonObject, loose: frozenset[str]) -> JsonObject:
    """The part of a pod template that may not change."""
    spec, metadata = dict(get_object(template, "spec")), dict(get_object(template, "metadata"))
    if "placement" in loose:
        for field in ("nodeSelector", "tolerations", "schedulingGates"):
            spec.pop(field, None)
        for field in ("labels", "annotations"):
            metadata.pop(field, None)
        affinity = get_object(spec, "affinity")
        spec["affinity"] = {kind: rules for kind, rules in affinity.items() if kind != "nodeAffinity"}
    if "resources" in loose:
        for field in ("containers", "initContainers"):
            if field in spec:
                spec[field] = [_without_resources(container) for container in get_list(spec, field)]
    return {"metadata": metadata, "spec": spec}


def _without_resources(container: JsonObject) -> JsonObject:
    return {key: value for key, value in container.items() if key != "resources"}


def _completions(spec: JsonObject, before: JsonObject) -> Iterator[FieldError]:
    """How many completions there are stays, but for indexed jobs that run all of them at once."""
    wanted, at = spec.get("completions"), _SPEC.child("completions")
    if wanted == before.get("completions"):
        return
    if spec.get("completionMode") != "Indexed":
        yield invalid(at, wanted, IMMUTABLE)
    elif wanted is not None and wanted != spec.get("parallelism"):
        yield invalid(at, wanted, "can only be modified in tandem with spec.parallelism")


def job_warnings(job: JsonObject, old: JsonObject | None) -> Iterator[str]:
    """Names and sizes that make trouble for pods, and those of the pod template."""
    if old is None:
        yield from _new_job_warnings(job)
    before = p.template_of(old) if old is not None else None
    yield from template_warnings(p.template_of(job), ("spec", "template"), before)


def _new_job_warnings(job: JsonObject) -> Iterator[str]:
    yield from name_warning(job)
    spec = get_object(job, "spec")
    if spec.get("completionMode") == "Indexed":
        completions, parallelism = spec.get("completions") or 0, spec.get("parallelism") or 0
        if completions > _MAX_INDEXED and parallelism > 10_000:
            yield (
                "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher "
                "than 10^4, Kubernetes might not be able to track completedIndexes when a big number of "
                "indexes fail"
            )


def validate_new_cron_job(cron: JsonObject) -> Iterator[FieldError]:
    """A new cron job."""
    yield from validate_cron_job(cron, {})
    name = get_str(cron, "metadata", "name")
    if len(name) > MAX_CRON_NAME:
        text = f"must be no more than {MAX_CRON_NAME} characters"
        yield invalid(FieldPath("metadata", "name"), name, text)


def validate_cron_job(cron: JsonObject, old: JsonObject) -> Iterable[FieldError]:
    """A change of a cron job: a schedule that stays is not judged again."""
    return _cron_spec(get_object(old, "spec"), get_object(cron, "spec").get("timeZone"))(cron)


def _cron_spec(before: JsonObject, zone: str | None) -> Callable[[JsonObject], Iterable[FieldError]]:
    """The rules of a spec that was `before` and has now this time zone."""

    def schedule(path: FieldPath, schedule: str) -> Iterator[FieldError]:
        try:
            check_schedule(_PREFIX.sub("", schedule))
        except ScheduleError as error:
            yield invalid(path, schedule, str(error))
        if "TZ" in schedule and "TZ" not in get_str(before, "schedule"):
            yield invalid(path, schedule, _NO_TIME_ZONE)
        elif "TZ" in schedule and zone is not None:
            yield invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")

    def time_zone(path: FieldPath, zone: str) -> list[FieldError]:
        problem = "" if zone == before.get("timeZone") else _zone_problem(zone)
        return [invalid(path, zone, problem)] if problem else []

    return f.spec(
        f.must("schedule", schedule),
        *f.counts("startingDeadlineSeconds"),
        f.given("timeZone", time_zone),
        f.must("concurrencyPolicy", f.choice("Allow", "Forbid", "Replace")),
        f.part("jobTemplate", f.part("spec", _generated_selector, *_JOB_SPEC)),
        *f.counts("successfulJobsHistoryLimit", "failedJobsHistoryLimit"),
    )


def _generated_selector(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    if spec.get("selector") is not None:
        yield invalid(path.child("selector"), spec["selector"], "`selector` will be auto-generated")
    if spec.get("manualSelector"):
        yield not_supported(path.child("manualSelector"), True, ["nil", "false"])


def _zone_problem(zone: str) -> str:
    if not zone:
        return "timeZone must be nil or non-empty string"
    if zone.lower() == "local":
        return _EXPLICIT
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"unknown time zone {zone}"
    return ""


def cron_job_warnings(cron: JsonObject, old: JsonObject | None) -> Iterator[str]:
    """Names that pods cannot have, time zones in the schedule, and those of the pod template."""
    if old is None:
        yield from _new_cron_job_warnings(cron)
    path = ("spec", "jobTemplate", "spec", "template")
    yield from template_warnings(get_object(cron, *path), path, get_object(old, *path) if old else None)


def _new_cron_job_warnings(cron: JsonObject) -> Iterator[str]:
    yield from name_warning(cron)
    if "TZ" in get_str(cron, "spec", "schedule"):
        yield (
            "spec.schedule: TZ or CRON_TZ used in spec.schedule is not officially supported, see "
            "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        )
