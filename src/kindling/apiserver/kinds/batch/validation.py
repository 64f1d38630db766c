"""Jobs and CronJobs."""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kindling.apiserver.kinds.core.pods.validation import validate_template
from kindling.apiserver.kinds.core.pods.warnings import name_warning
from kindling.apiserver.kinds.machinery.checks import counts, one_of
from kindling.apiserver.kinds.machinery.fields import check_fields, choice, must
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import OMITTED, FieldError, FieldPath, invalid, not_supported, required, too_many
from kubecore.objects.selectors import (
    SelectorError,
    from_label_selector_object,
    validate_label_selector_object,
)

from .schedules import ScheduleError, check_schedule

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


def validate_job(job: JsonObject) -> Iterator[FieldError]:
    """A new job, its selector generated."""
    spec = get_object(job, "spec")
    yield from _validate_generated(job)
    yield from validate_job_spec(spec, _SPEC)
    yield from _validate_match(spec)


def _validate_match(spec: JsonObject) -> list[FieldError]:
    """The template carries the labels that the selector picks."""
    labels = get_object(spec, "template", "metadata", "labels")
    try:
        picks = from_label_selector_object(spec.get("selector"))
    except SelectorError:
        return []
    if spec.get("selector") is None or picks.matches(labels):
        return []
    at = _SPEC.child("template", "metadata", "labels")
    return [invalid(at, labels or None, "`selector` does not match template `labels`")]


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


def validate_job_spec(spec: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """The spec of a job or of a cron job's template."""
    yield from counts(
        spec,
        path,
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    )
    yield from _validate_indexes(spec, path)
    mode = spec.get("completionMode")
    if mode is not None:
        if mode not in ("NonIndexed", "Indexed"):
            yield not_supported(path.child("completionMode"), mode, ["Indexed", "NonIndexed"])
        elif mode == "Indexed":
            yield from _validate_indexed(spec, path)
    if spec.get("podFailurePolicy") is not None:
        yield from _validate_failure_policy(spec, path.child("podFailurePolicy"))
    if spec.get("podReplacementPolicy") is not None:
        at = path.child("podReplacementPolicy")
        if spec.get("podFailurePolicy") is not None:
            yield from one_of(at, spec["podReplacementPolicy"], ("Failed",))
        else:
            yield from one_of(at, spec["podReplacementPolicy"], ("Failed", "TerminatingOrFailed"))
    if spec.get("selector") is not None:
        yield from validate_label_selector_object(spec["selector"], path.child("selector"))
    template = spec.get("template") or {}
    yield from validate_template(template, path.child("template"))
    policy = get_object(template, "spec").get("restartPolicy", "")
    at = path.child("template", "spec", "restartPolicy")
    if policy in ("", "Always"):
        yield required(at, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield not_supported(at, policy, ["OnFailure", "Never"])
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        yield invalid(at, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _validate_indexes(spec: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    if spec.get("completionMode") != "Indexed":
        for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(field) is not None:
                yield invalid(path.child(field), spec[field], "requires indexed completion mode")
    elif spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required(path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified")


def _validate_indexed(spec: JsonObject, path: FieldPath) -> list[FieldError]:
    completions, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    if completions is None:
        return [required(path.child("completions"), "when completion mode is Indexed")]
    if parallelism > _MAX_INDEXED:
        text = f"must be less than or equal to {_MAX_INDEXED} when completion mode is Indexed"
        return [invalid(path.child("parallelism"), parallelism, text)]
    return []


def _validate_failure_policy(spec: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    rules = get_list(spec, "podFailurePolicy", "rules")
    if len(rules) > 20:
        yield too_many(path.child("rules"), len(rules), 20)
    containers = {
        item.get("name")
        for field in ("containers", "initContainers")
        for item in get_list(spec, "template", "spec", field)
    }
    for position, rule in enumerate(rules):
        here = path.child("rules").index(position)
        action = rule.get("action", "")
        if not action:
            yield required(here.child("action"), f"valid values: {', '.join(_FAILURE_ACTIONS)}")
        elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            yield invalid(here.child("action"), action, "requires the backoffLimitPerIndex to be set")
        else:
            yield from one_of(here.child("action"), action, _FAILURE_ACTIONS)
        codes = rule.get("onExitCodes")
        if isinstance(codes, dict):
            yield from _validate_exit_codes(codes, here.child("onExitCodes"), containers)
        conditions = get_list(rule, "onPodConditions")
        if codes is not None and conditions:
            yield invalid(here, OMITTED, "specifying both OnExitCodes and OnPodConditions is not supported")
        if codes is None and not conditions:
            yield invalid(here, OMITTED, "specifying one of OnExitCodes and OnPodConditions is required")


def _validate_exit_codes(
    codes: JsonObject, path: FieldPath, containers: set[str | None]
) -> Iterator[FieldError]:
    operator = codes.get("operator", "")
    yield from check_fields(
        codes, path, must("operator", choice("In", "NotIn"), detail='valid values: "In", "NotIn"')
    )
    name = codes.get("containerName")
    if name is not None and name not in containers:
        text = "must be one of the container or initContainer names in the pod template"
        yield invalid(path.child("containerName"), name, text)
    values = codes.get("values") or []
    if not values:
        yield invalid(path.child("values"), values, "at least one value is required")
    elif len(values) > 255:
        yield too_many(path.child("values"), len(values), 255)
    if operator == "In" and 0 in values:
        yield invalid(path.child("values").index(values.index(0)), 0, "must not be 0 for the In operator")


def validate_job_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A change: suspended jobs that never ran may get another placement; else the template stays."""
    spec, before = get_object(new, "spec"), get_object(old, "spec")
    # Judged as a new job and again as a change: the server reports the findings of both.
    yield from validate_job(new)
    yield from validate_job_spec(spec, _SPEC)
    yield from _validate_match(spec)
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
        if given != known:
            yield invalid(_SPEC.child(field), spec.get(field), "field is immutable")


def _without_placement(template: JsonObject) -> JsonObject:
    placement = ("nodeSelector", "affinity", "tolerations", "schedulingGates", "topologySpreadConstraints")
    spec = {key: value for key, value in get_object(template, "spec").items() if key not in placement}
    metadata = dict(get_object(template, "metadata"))
    for field in ("labels", "annotations"):
        metadata.pop(field, None)
    return {"metadata": metadata, "spec": spec}


def validate_job_status_update(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Counts are not negative, and finished jobs stay finished."""
    status, path = get_object(new, "status"), FieldPath("status")
    yield from counts(status, path, "active", "succeeded", "failed", "ready", "terminating")
    for kind in ("Complete", "Failed"):
        was = any(
            c.get("type") == kind and c.get("status") == "True" for c in get_list(old, "status", "conditions")
        )
        still = any(
            c.get("type") == kind and c.get("status") == "True" for c in get_list(status, "conditions")
        )
        if was and not still:
            yield invalid(
                path.child("conditions"), None, f"cannot disable the terminal {kind}=True condition"
            )


def job_warnings(job: JsonObject) -> list[str]:
    """Names and sizes that make trouble for pods."""
    found = name_warning(job)
    spec = get_object(job, "spec")
    if spec.get("completionMode") == "Indexed":
        completions, parallelism = spec.get("completions") or 0, spec.get("parallelism") or 0
        if completions > _MAX_INDEXED and parallelism > 10_000:
            found.append(
                "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher "
                "than 10^4, Kubernetes might not be able to track completedIndexes when a big number of "
                "indexes fail"
            )
    return found


def validate_cron_job(cron: JsonObject, old: JsonObject | None) -> Iterator[FieldError]:
    """A cron job; on updates a schedule that stays is not judged again."""
    spec = get_object(cron, "spec")
    before = get_object(old, "spec") if old is not None else {}
    yield from _validate_cron_spec(spec, before)
    name = get_str(cron, "metadata", "name")
    if old is None and len(name) > MAX_CRON_NAME:
        yield invalid(FieldPath("metadata", "name"), name, f"must be no more than {MAX_CRON_NAME} characters")


def _validate_cron_spec(spec: JsonObject, before: JsonObject) -> Iterator[FieldError]:
    schedule = spec.get("schedule", "")
    at = _SPEC.child("schedule")
    if not schedule:
        yield required(at)
    else:
        yield from _validate_schedule(schedule, before, at)
    yield from counts(spec, _SPEC, "startingDeadlineSeconds")
    if "timeZone" in spec and spec.get("timeZone") != before.get("timeZone"):
        yield from _validate_time_zone(spec["timeZone"], _SPEC.child("timeZone"))
    yield from check_fields(spec, _SPEC, must("concurrencyPolicy", choice("Allow", "Forbid", "Replace")))
    template = get_object(spec, "jobTemplate", "spec")
    job_path = _SPEC.child("jobTemplate", "spec")
    if template.get("selector") is not None:
        yield invalid(job_path.child("selector"), template["selector"], "`selector` will be auto-generated")
    if template.get("manualSelector"):
        yield not_supported(job_path.child("manualSelector"), True, ["nil", "false"])
    yield from validate_job_spec(template, job_path)
    yield from counts(spec, _SPEC, "successfulJobsHistoryLimit", "failedJobsHistoryLimit")


def _validate_schedule(schedule: str, before: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    if "TZ" in schedule:
        if schedule != before.get("schedule"):
            yield invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
        return
    try:
        check_schedule(schedule)
    except ScheduleError as error:
        yield invalid(path, schedule, str(error))


def _validate_time_zone(zone: str, path: FieldPath) -> list[FieldError]:
    if not zone:
        return [invalid(path, zone, "timeZone must be nil or non-empty string")]
    if zone.lower() == "local":
        return [
            invalid(
                path,
                zone,
                "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
            )
        ]
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return [invalid(path, zone, f"unknown time zone {zone}")]
    return []


def cron_job_warnings(cron: JsonObject) -> list[str]:
    """Names that pods cannot have, and time zones in the schedule."""
    found = name_warning(cron)
    if "TZ" in get_str(cron, "spec", "schedule"):
        found.append(
            "spec.schedule: TZ or CRON_TZ used in spec.schedule is not officially supported, see "
            "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        )
    return found
