"""CronJobs: creates Jobs on a schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kindling.controllers.environment import OWNER_INDEX, Environment, controller_uid
from kindling.controllers.workloads import job_plan
from kubecore.errors import StatusError, ignoring
from kubecore.json import JsonObject, deep_copy, get_int, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.schedules import ScheduleError, times_after
from kubecore.objects.times import format_time, parse_time
from kubecore.resources import CRON_JOBS, JOBS
from kubecore.runtime import DONE, Key, RequeueAfter, Result

NAME = "cronjob-controller"
SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
MANY_MISSED = 100
"""More missed times than this are told as a warning; only the last one is made up for."""


class BadSchedule(Exception):
    """The schedule or the time zone is invalid."""


def schedule(cron_job: JsonObject, since: datetime) -> Iterator[datetime]:
    """The times after `since`, in the job's time zone. Raises BadSchedule."""
    try:
        zone = ZoneInfo(get_str(cron_job, "spec", "timeZone") or "UTC")
        return times_after(get_str(cron_job, "spec", "schedule"), since.astimezone(zone))
    except (ScheduleError, ZoneInfoNotFoundError, ValueError) as error:
        raise BadSchedule(str(error)) from error


def last_due(cron_job: JsonObject, now: datetime) -> tuple[datetime | None, int]:
    """The latest time at or before `now` that has not been acted on, and how many were missed.

    Raises BadSchedule.
    """
    text = get_str(cron_job, "status", "lastScheduleTime") or meta.creation_timestamp(cron_job)
    since = parse_time(text)
    deadline = get_object(cron_job, "spec").get("startingDeadlineSeconds")
    if deadline is not None:
        since = max(since, now - timedelta(seconds=deadline))
    due: datetime | None = None
    missed = 0
    for moment in schedule(cron_job, since):
        if moment > now:
            break
        due = moment.astimezone(UTC)
        missed += 1
        if missed > 10 * MANY_MISSED:
            # Limit the number of missed times after a large clock jump: start again from close to the
            # present.
            return last_due_near(cron_job, now), missed
    return due, missed


def last_due_near(cron_job: JsonObject, now: datetime) -> datetime | None:
    """The latest time at or before `now`, searched in growing windows before it."""
    for window in (timedelta(hours=1), timedelta(days=1), timedelta(days=40), timedelta(days=400)):
        due = None
        for moment in schedule(cron_job, now - window):
            if moment > now:
                break
            due = moment.astimezone(UTC)
        if due is not None:
            return due
    return None


def seconds_to_next(cron_job: JsonObject, now: datetime) -> float:
    """Seconds until the next time, plus a small margin. Raises BadSchedule."""
    moment = next(schedule(cron_job, now))
    return (moment - now).total_seconds() + 0.1


def job_for(cron_job: JsonObject, due: datetime) -> JsonObject:
    """The Job for a scheduled time. Its name is derived from the time, so that no time starts two Jobs."""
    template = get_object(cron_job, "spec", "jobTemplate")
    annotations = dict(get_object(template, "metadata", "annotations"))
    zone = get_str(cron_job, "spec", "timeZone")
    moment = due.astimezone(ZoneInfo(zone)).isoformat() if zone else format_time(due)
    annotations[SCHEDULED_AT] = moment
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": f"{meta.name(cron_job)}-{int(due.timestamp()) // 60}",
            "namespace": meta.namespace(cron_job),
            "labels": dict(get_object(template, "metadata", "labels")),
            "annotations": annotations,
            "ownerReferences": [meta.new_controller_ref(cron_job, CRON_JOBS)],
        },
        "spec": deep_copy(get_object(template, "spec")),
    }


def to_clean_up(cron_job: JsonObject, jobs: Sequence[JsonObject]) -> list[JsonObject]:
    """Ended jobs beyond the history limits, oldest first."""
    result = []
    for kind, limit_field, default in (
        ("Complete", "successfulJobsHistoryLimit", 3),
        ("Failed", "failedJobsHistoryLimit", 1),
    ):
        limit = get_int(cron_job, "spec", limit_field, default=default)
        ended = [job for job in jobs if meta.is_condition_true(job, kind)]
        ended.sort(key=lambda job: (get_str(job, "status", "startTime"), meta.name(job)))
        result += ended[: max(0, len(ended) - limit)]
    return result


def reference(job: JsonObject) -> JsonObject:
    """The reference to a running job in the status."""
    return {
        "kind": JOBS.kind,
        "apiVersion": JOBS.api_version,
        "namespace": meta.namespace(job),
        "name": meta.name(job),
        "uid": meta.uid(job),
        "resourceVersion": meta.resource_version(job),
    }


class CronJobController:
    """Keyed by cron job."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._client = environment.client
        self._recorder = environment.recorder(NAME)
        self._cron_jobs = environment.manager.informer(CRON_JOBS)
        self._jobs = environment.manager.informer(JOBS, indexers={OWNER_INDEX: controller_uid})
        controller = environment.controller(NAME, self.reconcile)
        controller.watch(self._cron_jobs)
        controller.watch(self._jobs, _owner)

    async def reconcile(self, key: Key) -> Result:
        """Sync one cron job: record ended jobs, and start one when it is due."""
        found = self._cron_jobs.get(*key)
        if found is None or meta.is_being_deleted(found):
            return DONE
        cron_job = deep_copy(found)
        cron_job.setdefault("status", {})
        jobs = self._jobs.by_index(OWNER_INDEX, meta.uid(found))
        self._note_ended(cron_job, jobs)
        await self._clean_up(cron_job, jobs)
        result: Result = DONE
        if get_object(cron_job, "spec").get("suspend") is not True:
            try:
                result = await self._start_due(cron_job, jobs)
            except BadSchedule as error:
                schedule_text = get_str(cron_job, "spec", "schedule")
                message = f"unparseable schedule: {schedule_text} : {error}"
                self._recorder.event(found, "Warning", "UnparseableSchedule", message)
        if cron_job["status"] != get_object(found, "status"):
            await self._client.update(CRON_JOBS, cron_job, "status")
        return result

    def _note_ended(self, cron_job: JsonObject, jobs: Sequence[JsonObject]) -> None:
        status = cron_job["status"]
        running = {meta.uid(job): job for job in jobs if not job_plan.is_over(job)}
        listed = get_list(status, "active")
        for entry in listed:
            ended = next((job for job in jobs if meta.uid(job) == entry.get("uid")), None)
            if ended is not None and job_plan.is_over(ended):
                kind = "Complete" if meta.is_condition_true(ended, "Complete") else "Failed"
                message = f"Saw completed job: {meta.name(ended)}, condition: {kind}"
                self._recorder.event(cron_job, "Normal", "SawCompletedJob", message)
        kept = [entry for entry in listed if entry.get("uid") in running]
        known = {entry.get("uid") for entry in kept}
        kept += [reference(job) for uid, job in running.items() if uid not in known]
        status.pop("active", None)
        if kept:
            status["active"] = kept
        successes = [
            get_str(job, "status", "completionTime")
            for job in jobs
            if meta.is_condition_true(job, "Complete")
        ]
        latest = max([*successes, get_str(status, "lastSuccessfulTime")])
        if latest:
            status["lastSuccessfulTime"] = latest

    async def _clean_up(self, cron_job: JsonObject, jobs: Sequence[JsonObject]) -> None:
        for job in to_clean_up(cron_job, jobs):
            await self._delete(cron_job, job)

    async def _start_due(self, cron_job: JsonObject, jobs: Sequence[JsonObject]) -> Result:
        now = self._environment.clock()
        due, missed = last_due(cron_job, now)
        wait = RequeueAfter(seconds_to_next(cron_job, now))
        if due is None:
            return wait
        if missed > MANY_MISSED:
            message = (
                f"too many missed start times: {missed}. "
                "Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            )
            self._recorder.event(cron_job, "Warning", "TooManyMissedTimes", message)
        deadline = get_object(cron_job, "spec").get("startingDeadlineSeconds")
        if deadline is not None and due + timedelta(seconds=deadline) < now:
            message = f"Missed scheduled time to start a job: {format_time(due)}"
            self._recorder.event(cron_job, "Warning", "MissSchedule", message)
            return wait
        policy = get_str(cron_job, "spec", "concurrencyPolicy")
        running = [job for job in jobs if not job_plan.is_over(job)]
        if running and policy == "Forbid":
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._recorder.event(cron_job, "Normal", "JobAlreadyActive", message)
            return wait
        if policy == "Replace":
            for job in running:
                await self._delete(cron_job, job)
            cron_job["status"].pop("active", None)
        await self._start(cron_job, due)
        return wait

    async def _start(self, cron_job: JsonObject, due: datetime) -> None:
        status = cron_job["status"]
        try:
            job = await self._client.create(JOBS, job_for(cron_job, due))
        except StatusError as error:
            if error.reason == "AlreadyExists":
                status["lastScheduleTime"] = format_time(due)
                return
            self._recorder.event(cron_job, "Warning", "FailedCreate", f"Error creating job: {error.message}")
            raise
        self._recorder.event(cron_job, "Normal", "SuccessfulCreate", f"Created job {meta.name(job)}")
        status["active"] = [*get_list(status, "active"), reference(job)]
        status["lastScheduleTime"] = format_time(due)

    async def _delete(self, cron_job: JsonObject, job: JsonObject) -> None:
        with ignoring(404):
            await self._client.delete(
                JOBS, meta.name(job), meta.namespace(job), propagation_policy="Background"
            )
        self._recorder.event(cron_job, "Normal", "SuccessfulDelete", f"Deleted job {meta.name(job)}")


def _owner(job: JsonObject) -> list[Key]:
    found = meta.controller_of(job)
    return [(meta.namespace(job), found["name"])] if found and found["kind"] == CRON_JOBS.kind else []
