"""Deleting finished jobs after their ``ttlSecondsAfterFinished``."""

from __future__ import annotations

from datetime import datetime, timedelta

from kindling.controllers.environment import Environment
from kindling.controllers.workloads import job_plan
from kubecore.errors import ignoring
from kubecore.json import JsonObject, get_object
from kubecore.objects import meta
from kubecore.objects.times import parse_time
from kubecore.resources import JOBS
from kubecore.runtime import DONE, Key, RequeueAfter, Result

NAME = "ttl-after-finished-controller"


def expires_at(job: JsonObject) -> datetime | None:
    """When the job is to be deleted; None for jobs that run or have no limit."""
    seconds = get_object(job, "spec").get("ttlSecondsAfterFinished")
    if seconds is None or not job_plan.is_over(job):
        return None
    for kind in ("Complete", "Failed"):
        condition = meta.get_condition(job, kind)
        if condition is not None and condition.get("status") == "True":
            return parse_time(condition["lastTransitionTime"]) + timedelta(seconds=seconds)
    return None


class FinishedJobs:
    """Keyed by job."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._client = environment.client
        self._jobs = environment.manager.informer(JOBS)
        environment.controller(NAME, self.reconcile).watch(self._jobs)

    async def reconcile(self, key: Key) -> Result:
        """Delete one job when its TTL has expired."""
        job = self._jobs.get(*key)
        due = expires_at(job) if job is not None else None
        if job is None or due is None or meta.is_being_deleted(job):
            return DONE
        remaining = (due - self._environment.clock()).total_seconds()
        if remaining > 0:
            return RequeueAfter(remaining)
        with ignoring(404):
            await self._client.delete(
                JOBS, key[1], key[0], propagation_policy="Foreground", uid=meta.uid(job)
            )
        return DONE
