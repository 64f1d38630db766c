"""Jobs and CronJobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kindling.apiserver.kinds.core.pods.internal import internal_pod_spec
from kindling.apiserver.kinds.core.pods.validation import validate_template
from kindling.apiserver.kinds.core.pods.warnings import name_warning, template_warnings
from kindling.apiserver.kinds.machinery import fields as f
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.checks import one_of
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import OMITTED, FieldError, FieldPath, invalid, not_supported, required
from kubecore.objects.schedules import ScheduleError, check_schedule
from kubecore.objects.selectors import (
    SelectorError,
    from_label_selector_object,
    validate_label_selector_object,
)

MAX_CRON_NAME = 52
"""Names of a cron job's jobs get eleven more characters."""
GENERATED_LABELS = (
    ("controller-uid", "uid"),
    ("job-name", "name"),
    ("batch.kubernetes.io/controller-uid", "uid"),
    ("batch.kubernetes.io/job-name", "name"),
)
_SPEC = FieldPath("spec")
_MAX_INDEXED = 100_000
_FAILURE_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
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


def _indexes(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    if spec.get("completionMode") != "Indexed":
        for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(field) is not None:
                yield invalid(path.child(field), spec[field], "requires indexed completion mode")
    elif spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required(path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified")


def _indexed(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    completions, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    if spec.get("completionMode") != "Indexed":
        return
    if completions is None:
        yield required(path.child("completions"), "when completion mode is Indexed")
    elif parallelism > _MAX_INDEXED:
        text = f"must be less than or equal to {_MAX_INDEXED} when completion mode is Indexed"
        yield invalid(path.child("parallelism"), parallelism, text)


def _failure_policy(path: FieldPath, spec: JsonObject) -> Iterable[FieldError]:
    """What is done about failed pods, by rules that name containers of the template."""
    pod = get_object(spec, "template", "spec")
    containers = {item.get("name") for field in _CONTAINERS for item in get_list(pod, field)}

    def container(path: FieldPath, name: str) -> Iterator[FieldError]:
        if name not in containers:
            yield invalid(
                path, name, "must be one of the container or initContainer names in the pod template"
            )

    def action(path: FieldPath, action: str) -> Iterable[FieldError]:
        if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            return [invalid(path, action, "requires the backoffLimitPerIndex to be set")]
        return one_of(path, action, _FAILURE_ACTIONS)

    rule = (
        f.must("action", action, detail=f"valid values: {', '.join(_FAILURE_ACTIONS)}"),
        f.given("onExitCodes", _OPERATOR, f.given("containerName", container), _exit_codes),
        _one_condition,
    )
    return f.check_fields(spec, path, f.part("podFailurePolicy", f.may("rules", f.fewer(20), f.items(*rule))))


_CONTAINERS = ("containers", "initContainers")
_OPERATOR = f.must("operator", f.choice("In", "NotIn"), detail='valid values: "In", "NotIn"')


def _one_condition(path: FieldPath, rule: JsonObject) -> Iterator[FieldError]:
    codes, conditions = rule.get("onExitCodes"), get_list(rule, "onPodConditions")
    if codes is not None and conditions:
        yield invalid(path, OMITTED, "specifying both OnExitCodes and OnPodConditions is not supported")
    if codes is None and not conditions:
        yield invalid(path, OMITTED, "specifying one of OnExitCodes and OnPodConditions is required")


def _exit_codes(path: FieldPath, codes: JsonObject) -> Iterator[FieldError]:
    values, at = codes.get("values") or [], path.child("values")
    if not values:
        yield invalid(at, values, "at least one value is required")
    yield from f.fewer(255)(at, values)
    if codes.get("operator") == "In" and 0 in values:
        yield invalid(at.index(values.index(0)), 0, "must not be 0 for the In operator")


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
    _indexes,
    f.given("completionMode", f.choice("Indexed", "NonIndexed")),
    _indexed,
    _failure_policy,
    _replacement,
    f.given("selector", f.selector),
    f.part("template", validate_template),
    _restart_policy,
)
"""The spec of a job or of a cron job's template."""
_JOB = f.spec(*_JOB_SPEC, _match)


def validate_job_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """On updates, suspended jobs that never ran may change their scheduling; else the template is
    immutable.
    """
    spec, before = get_object(new, "spec"), get_object(old, "spec")
    # Judged as a new job and again as a change: the server reports the findings of both.
    yield from validate_job(new)
    yield from _JOB(new)
    elastic = (
        spec.get("completionMode") == "Indexed"
        and spec.get("completions") == spec.get("parallelism")
        and before.get("completions") == before.get("parallelism")
    )
    fields = [
        "selector",
        "template",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
    ]
    fields += ["successPolicy"] + ([] if elastic else ["completions"])
    for field in fields:
        given, known = spec.get(field), before.get(field)
        if field == "template" and before.get("suspend") and not get_str(old, "status", "startTime"):
            given, known = _without_placement(given or {}), _without_placement(known or {})
        if field == "template" and get_object(given or {}, "spec") != get_object(known or {}, "spec"):
            shown = internal_pod_spec(get_object(spec, "template", "spec"))
            yield invalid(_SPEC.child("template", "spec"), shown, "field is immutable")
        elif given != known:
            yield invalid(_SPEC.child(field), spec.get(field), "field is immutable")


def _without_placement(template: JsonObject) -> JsonObject:
    placement = ("nodeSelector", "affinity", "tolerations", "schedulingGates", "topologySpreadConstraints")
    spec = {key: value for key, value in get_object(template, "spec").items() if key not in placement}
    metadata = dict(get_object(template, "metadata"))
    for field in ("labels", "annotations"):
        metadata.pop(field, None)
    return {"metadata": metadata, "spec": spec}


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
    return _cron_spec(get_object(old, "spec"))(cron)


def _cron_spec(before: JsonObject) -> Callable[[JsonObject], Iterable[FieldError]]:
    """The rules of a spec that was `before`."""

    def schedule(path: FieldPath, schedule: str) -> Iterator[FieldError]:
        if "TZ" in schedule:
            if schedule != before.get("schedule"):
                yield invalid(path, schedule, _NO_TIME_ZONE)
            return
        try:
            check_schedule(schedule)
        except ScheduleError as error:
            yield invalid(path, schedule, str(error))

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
