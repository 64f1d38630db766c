"""Jobs and CronJobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from kindling.apiserver.kinds.core.pods.defaults import default_pod_spec
from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_int, get_list, get_object, get_str
from kubecore.resources import CRON_JOBS, JOBS

from . import validation
from .job_status import validate_job_status_update

UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")


def default_job_spec(spec: JsonObject) -> None:
    """Defaults that jobs and job templates share."""
    template = spec.get("template") or {}
    if "spec" in template:
        default_pod_spec(template["spec"])
    for rule in get_list(spec, "podFailurePolicy", "rules"):
        for pattern in get_list(rule, "onPodConditions"):
            if not pattern.get("status"):
                pattern["status"] = "True"


class JobStrategy(BuiltinStrategy):
    """Pods that run to completion; the selector is generated unless a client insists."""

    metadata_checks = (1, 1)
    default_propagation = "Orphan"
    orphaning_warning = (
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "
        "remove them or set propagationPolicy=Orphan to suppress this warning"
    )
    rules = Rules(
        validation.validate_job,
        update=validation.validate_job_update,
        status=validate_job_status_update,
        warnings=validation.job_warnings,
    )

    def complete(self, obj: JsonObject) -> None:
        """Default to one pod and six retries; labels come from the template."""
        spec = obj["spec"]
        default_job_spec(spec)
        if "completions" not in spec and "parallelism" not in spec:
            spec["completions"] = 1
        spec.setdefault("parallelism", 1)
        if "backoffLimit" not in spec:
            # With backoffLimitPerIndex, the default of backoffLimit is unlimited.
            spec["backoffLimit"] = 2**31 - 1 if "backoffLimitPerIndex" in spec else 6
        labels = get_object(spec, "template", "metadata", "labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault(
            "podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
        )
        spec.setdefault("manualSelector", False)

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """The generated selector: the job's own uid."""
        super().prepare_for_create(ctx, obj)
        if not obj["spec"].get("manualSelector"):
            generate_selector(obj)

    def canonicalize(self, obj: JsonObject) -> None:
        """A job without labels gets those of its template, including generated ones."""
        labels = get_object(obj, "spec", "template", "metadata", "labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)

    def selectable_fields(self, obj: JsonObject) -> Mapping[str, str]:
        """How many pods succeeded."""
        return {"status.successful": str(get_int(obj, "status", "succeeded"))}


def generate_selector(obj: JsonObject) -> None:
    """Set selector and labels with the job's uid; validation judges those that the client wrote."""
    uid, name = get_str(obj, "metadata", "uid"), get_str(obj, "metadata", "name")
    template = obj["spec"].setdefault("template", {})
    owned = {**dict.fromkeys(UID_LABELS, uid), **dict.fromkeys(NAME_LABELS, name)}
    metadata = template.setdefault("metadata", {})
    given = metadata.get("labels") or {}
    # Keep labels of these names that the user set: validation refuses them.
    metadata["labels"] = {**owned, **given}
    if given and obj["metadata"].get("labels") == given:
        # Labels which the job got from its template follow it; a job without any gets them afterwards.
        obj["metadata"]["labels"] = dict(metadata["labels"])
    selector = obj["spec"].setdefault("selector", {})
    selector.setdefault("matchLabels", {}).setdefault(UID_LABELS[0], uid)


class CronJobStrategy(BuiltinStrategy):
    """Jobs on a schedule."""

    rules = Rules(
        validation.validate_new_cron_job,
        update=validation.validate_cron_job,
        warnings=validation.cron_job_warnings,
    )

    def complete(self, obj: JsonObject) -> None:
        """Set the defaults: concurrencyPolicy Allow, history limits of three successful jobs and one
        failed.
        """
        spec = obj["spec"]
        default_job_spec(get_object(spec, "jobTemplate", "spec"))
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)


def _job_state(obj: JsonObject) -> str:
    states = {item.get("type"): item.get("status") for item in get_list(obj, "status", "conditions")}
    for state in ("Complete", "Failed"):
        if states.get(state) == "True":
            return state
    if get_str(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    for state in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if states.get(state) == "True":
            return state
    return "Running"


def _job_duration(obj: JsonObject) -> str:
    start = p.moment(get_str(obj, "status", "startTime"))
    if start is None:
        return ""
    end = p.moment(get_str(obj, "status", "completionTime"))
    if end is None:
        for condition in get_list(obj, "status", "conditions"):
            if condition.get("type") == "Failed" and condition.get("status") == "True":
                end = p.moment(condition.get("lastTransitionTime"))
    return p.human_duration(((end or datetime.now(UTC)) - start).total_seconds())


def _job_completions(obj: JsonObject) -> str:
    spec = get_object(obj, "spec")
    succeeded = get_int(obj, "status", "succeeded")
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_spec(obj: JsonObject) -> JsonObject:
    return get_object(obj, "spec", "jobTemplate", "spec")


def _last_run(obj: JsonObject) -> str:
    last = get_str(obj, "status", "lastScheduleTime")
    return p.since(last) if last else p.NONE


_JOB_TABLE = p.Table(
    p.NAME,
    p.plain("Status", _job_state),
    p.plain("Completions", _job_completions),
    p.plain("Duration", _job_duration),
    p.AGE,
    *p.template_columns(),
    p.SELECTOR,
)
_CRON_TABLE = p.Table(
    p.NAME,
    p.plain("Schedule", "spec.schedule"),
    p.plain("Timezone", "spec.timeZone", empty=p.NONE),
    p.plain(
        "Suspend", lambda obj: "True" if get_object(obj, "spec").get("suspend") else "False", kind="boolean"
    ),
    p.plain("Active", lambda obj: len(get_list(obj, "status", "active")), kind="integer"),
    p.plain("Last Schedule", _last_run),
    p.AGE,
    *p.template_columns(lambda obj: get_object(_job_spec(obj), "template")),
    p.wide("Selector", lambda obj: p.format_selector(_job_spec(obj).get("selector"))),
)


def definitions() -> list[ResourceDefinition]:
    """Jobs and cron jobs."""
    jobs = builtin(JOBS, JobStrategy(), categories=("all",), table=_JOB_TABLE, fields=("status.successful",))
    jobs.field_label_error = 'field label "{label}" not supported for Job'
    return [
        jobs,
        builtin(CRON_JOBS, CronJobStrategy(), short=("cj",), categories=("all",), table=_CRON_TABLE),
    ]
